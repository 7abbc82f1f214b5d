"""An event with the source and id of a recent one is stored once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import LogReadOnly
from echomesh.events import Event
from echomesh.log import AsyncTopicLog, LogOptions, TopicLog
from echomesh.native.log_window import Window, WindowBudget
from tests.log.support import EIO, FOREVER, FaultyStorage, crash, small, stored


def event(number: int, source: str = "/s") -> bytes:
    return Event(type="t", source=source, id=str(number), data=b"x" * number).encode()


def options(**changes: Any) -> LogOptions:
    return small(**({"duplicate_bytes": 1 << 20} | changes))


def test_a_duplicate_gets_the_first_ones_offset_and_is_stored_once(tmp_path: Path) -> None:
    with TopicLog(tmp_path, options()) as log:
        assert log.append_many("a", [event(1), event(2), event(1), event(2), event(3)]) == [0, 1, 0, 1, 2]
        assert log.append("a", event(1, "/other")) == 3
        assert log.append("b", event(1)) == 0
        assert log.append_many("a", [b"no event", b"no event"]) == [4, 5]


def test_the_window_holds_over_a_restart_and_a_crash(tmp_path: Path) -> None:
    with TopicLog(tmp_path, options()) as log:
        log.append_many("a", [event(i) for i in range(30)])
    log = TopicLog(tmp_path, options())
    assert log.append_many("a", [event(3), event(99)]) == [3, 30]
    crash(log)
    with TopicLog(tmp_path, options()) as log:
        assert log.append_many("a", [event(3), event(99), event(100)]) == [3, 30, 31]


def test_the_window_ends_by_age_and_by_number(tmp_path: Path) -> None:
    now = [10**9]
    with TopicLog(tmp_path, options(clock=lambda: now[0], duplicate_s=10.0, duplicate_events=5)) as log:
        assert log.append("a", event(0)) == 0
        now[0] += 9 * 10**9
        assert log.append("a", event(0)) == 0
        now[0] += 2 * 10**9
        assert log.append("a", event(0)) == 1
        for i in range(1, 6):
            log.append("a", event(i))
        assert log.append("a", event(0)) == 7


def test_a_twin_of_one_in_flight_is_answered_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncTopicLog(tmp_path, options(background=True)) as log:
            futures = [log.append("a", event(1)) for _ in range(50)]
            assert not any(future.done() for future in futures)
            assert await asyncio.gather(*futures) == [0] * 50

    asyncio.run(scenario())
    assert len(stored(tmp_path, "a")) == 1


def test_a_twin_of_one_that_was_refused_is_not_taken_for_stored(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, options(storage=disk))
    log.append("a", event(0))
    disk.fail["fdatasync"] = (FOREVER, EIO)
    for _ in range(2):
        try:
            log.append("a", event(1))
        except LogReadOnly:
            continue
        raise AssertionError("acknowledged")
    crash(log)


def test_the_windows_of_a_node_share_one_memory_and_say_when_they_shrink() -> None:
    budget = WindowBudget(64 * 1024)
    windows = [Window(budget, bytes(16), 10_000, 10**18) for _ in range(3)]
    for window in windows:
        for i in range(1000):
            assert window.find(event(i), i) == -1
            window.enter(i, i)
    assert budget.used <= budget.limit
    assert budget.shrunk > 0
    assert windows[0].find(event(999), 1000) == 999
    assert any(window.shrunk for window in windows)


def test_a_window_agrees_with_a_dictionary() -> None:
    window = Window(WindowBudget(1 << 20), bytes(16), 50, 10**18)
    kept: dict[int, int] = {}
    for i in range(5000):
        key = (i * 7919) % 120
        found = window.find(event(key), i)
        assert found == kept.get(key, -1)
        if found < 0:
            window.enter(i, i)
            kept[key] = i
            if len(kept) > 50:
                del kept[next(iter(kept))]
        if i % 97 == 0:
            last = max(kept.values())
            window.drop_from(last)
            kept = {k: v for k, v in kept.items() if v < last}


def test_a_large_window_agrees_with_a_dictionary() -> None:
    """One that has pages of its own, which it left for larger ones as it grew."""
    most, more = 150_000, 100_000
    budget = WindowBudget(1 << 30)
    window = Window(budget, bytes(16), most, 10**18)
    for number in range(most + more):
        assert window.find(event(number % 50, f"/{number // 50}"), number) == -1
        window.enter(number, number)
    assert len(window) == most
    for number in range(0, most + more, 97):
        expected = number if number >= more else -1
        assert window.find(event(number % 50, f"/{number // 50}"), most + more) == expected
    window.drop_from(most)
    assert window.find(event(0, f"/{most // 50}"), most + more) == -1
    assert window.find(event(49, f"/{most // 50 - 1}"), most + more) == most - 1
    assert budget.used > 0
    del window
    assert budget.used == 0


def test_a_window_that_grows_when_its_oldest_are_gone_keeps_the_others() -> None:
    """Its entries stand around the ring's end then, and half of them move."""
    age = 200_000
    window = Window(WindowBudget(1 << 30), bytes(16), 1 << 20, age)
    first_ones, pause = 100_000, 160_000
    times = [*range(first_ones), *(pause + number // 4 for number in range(400_000))]
    for number, now in enumerate(times):
        assert window.find(event(number % 50, f"/{number // 50}"), now) == -1
        window.enter(number, now)
    last = times[-1]
    assert len(window) == sum(now >= last - age for now in times)
    for number in range(0, len(times), 61):
        expected = number if times[number] >= last - age else -1
        assert window.find(event(number % 50, f"/{number // 50}"), last) == expected


@pytest.mark.parametrize("level", ["os", "none"])
def test_duplicates_are_recognized_at_the_other_levels_too(tmp_path: Path, level: str) -> None:
    with TopicLog(tmp_path, options()) as log:
        log.create("a", level=level)
        assert log.append_many("a", [event(1), event(2), event(1), event(3)]) == [0, 1, 0, 2]
        assert log.append("a", event(2)) == 1
        assert len(stored(tmp_path, "a")) == 3


def test_the_window_of_an_os_topic_holds_over_a_restart_and_a_crash(tmp_path: Path) -> None:
    with TopicLog(tmp_path, options()) as log:
        log.create("a", level="os")
        log.append_many("a", [event(i) for i in range(30)])
    log = TopicLog(tmp_path, options())
    assert log.append_many("a", [event(3), event(99)]) == [3, 30]
    crash(log)
    with TopicLog(tmp_path, options()) as log:
        assert log.append_many("a", [event(3), event(99)]) == [3, 30]


def test_staged_rows_are_in_the_window_as_soon_as_they_are_committed(tmp_path: Path) -> None:
    with TopicLog(tmp_path, options()) as log:
        log.append("a", event(0))
        made = log.stage("w", 0, "r")
        made.add("a", event(1))
        log.commit("w", 0, "r", [made.close().stage])
        assert log.append_many("a", [event(1), event(2)]) == [1, 2]


@pytest.mark.parametrize("adopt_bytes", [0, 1 << 30])
@pytest.mark.parametrize("sizes", [[30, 40, 50], [45, 75], [70, 50], [120], [119, 1]])
def test_of_more_staged_rows_than_the_window_holds_it_has_the_last(
    tmp_path: Path, sizes: list[int], adopt_bytes: int
) -> None:
    with TopicLog(tmp_path, options(duplicate_events=50, adopt_bytes=adopt_bytes, segment_bytes=1 << 20)) as log:
        log.append("a", event(500))
        numbers, stages = iter(range(120)), []
        for size in sizes:
            made = log.stage("w", 0, "r")
            for _ in range(size):
                made.add("a", event(next(numbers)))
            stages.append(made.close().stage)
        log.commit("w", 0, "r", stages)
        known = [119, 100, 76, 75, 74, 72]
        assert log.append_many("a", [event(number) for number in known]) == [1 + number for number in known]
        assert log.append_many("a", [event(number) for number in (0, 30, 68, 69, 500)]) == [121, 122, 123, 124, 125]


def test_a_window_with_staged_rows_between_forgets_exactly_what_was_not_committed() -> None:
    window = Window(WindowBudget(1 << 20), bytes(16), 100, 10**18)
    for number, offset in [(0, 0), (1, 10), (2, 11), (3, 1), (4, 2)]:
        assert window.find(event(number), 1) == -1
        window.enter(offset, 1)
    window.drop_from(10)
    assert [window.find(event(number), 1) for number in range(5)] == [0, -1, -1, 1, 2]


def test_a_log_says_whose_window_had_to_shrink(tmp_path: Path) -> None:
    with TopicLog(tmp_path, options(duplicate_bytes=4096)) as log:
        log.append("a", event(0))
        assert log.shrunk_windows == []
        log.append_many("a", [event(i) for i in range(1, 200)])
        assert log.shrunk_windows == [("TST", "a")]
