"""A commit of stages lets others append: nobody waits for it, and no twin of its rows slips in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import DiskFull, LogReadOnly
from echomesh.events import Event
from echomesh.log import AsyncTopicLog, LogOptions, LogReader, TopicLog, stage_copy
from echomesh.log.stage_commit import StageCommit
from echomesh.log.storage import RealStorage
from echomesh.native.log_staged import CoveredWindow
from echomesh.native.log_window import Window, WindowBudget
from tests.log.support import EIO, ENOSPC, FOREVER, FaultyStorage, crash, events_of, small, stored


def event(number: int, text: str = "x") -> bytes:
    return Event(type="t", source="/s", id=str(number), data=text, time=None).encode()


def windowed(**changes: Any) -> LogOptions:
    return small(**({"duplicate_bytes": 4 << 20} | changes))


def staged(log: TopicLog, rows: dict[str, list[bytes]], epoch: int = 0) -> str:
    stage = log.stage("w", epoch, "r")
    for topic, events in rows.items():
        for one in events:
            stage.add(topic, one)
    return stage.close().stage


@contextmanager
def halfway(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Stops the next copy before its first row: one event tells that it is there, the other lets it go on."""
    reached, go_on = threading.Event(), threading.Event()
    copies = stage_copy.copies

    def slowly(*given: Any) -> Iterator[tuple[int, int, int, bytes]]:
        reached.set()
        assert go_on.wait(60)
        yield from copies(*given)

    with monkeypatch.context() as patch:
        patch.setattr(stage_copy, "copies", slowly)
        yield reached, go_on
        go_on.set()


@pytest.mark.parametrize("reopened", [False, True], ids=["open", "reopened"])
def test_a_twin_that_comes_between_the_offsets_and_the_copy_gets_the_rows_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: bool
) -> None:
    log = TopicLog(tmp_path, windowed())
    log.append_many("a", [event(0), event(1)])
    if reopened:
        log.close()
        log = TopicLog(tmp_path, windowed())
    rows = [event(i) for i in range(10, 20)]
    name = staged(log, {"a": rows, "b": rows[:3]})
    with halfway(monkeypatch) as (reached, go_on):
        commit = threading.Thread(target=log.commit, args=("w", 0, "r", [name]))
        commit.start()
        assert reached.wait(30)
        assert log.append("a", event(13)) == 5
        assert log.append_many("b", [event(11), event(99), event(99)]) == [1, 3, 3]
        assert log.append("a", event(1)) == 1
        assert log.append("a", event(50)) == 12
        go_on.set()
        commit.join()
    assert log.append_many("a", [event(10), event(19), event(50), event(51)]) == [2, 11, 12, 13]
    assert isinstance(log.core.topics["TST", "a"].window, Window)
    assert not isinstance(log.core.topics["TST", "a"].window, CoveredWindow)
    crash(log)
    expected = [event(0), event(1), *rows, event(50), event(51)]
    assert stored(tmp_path, "a") == expected
    with TopicLog(tmp_path, windowed()) as log:
        assert log.append_many("a", [event(13), event(50)]) == [5, 12]
    assert stored(tmp_path, "a") == expected
    assert stored(tmp_path, "b") == [*rows[:3], event(99)]


def test_a_twin_for_an_event_loop_is_answered_when_the_commit_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with AsyncTopicLog(tmp_path, windowed(background=True)) as log:
            made = await log.stage("w", 0, "r")
            for i in range(5):
                await made.add("a", event(i))
            name = (await made.close()).stage
            with halfway(monkeypatch) as (reached, go_on):
                commit = asyncio.create_task(log.commit("w", 0, "r", [name]))
                assert await asyncio.to_thread(reached.wait, 30)
                assert [await log.append("a", event(2)), await log.append("a", event(7))] == [2, 5]
                go_on.set()
                assert (await commit).rows == 5

    asyncio.run(scenario())
    assert stored(tmp_path, "a") == [event(0), event(1), event(2), event(3), event(4), event(7)]


def test_of_twins_in_a_stage_the_first_counts_and_one_that_was_there_before_counts_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TopicLog(tmp_path, windowed()) as log:
        log.append("a", event(1))
        name = staged(log, {"a": [event(1), event(2), event(2)]})
        with halfway(monkeypatch) as (reached, go_on):
            commit = threading.Thread(target=log.commit, args=("w", 0, "r", [name]))
            commit.start()
            assert reached.wait(30)
            assert log.append_many("a", [event(1), event(2)]) == [0, 2]
            go_on.set()
            commit.join()
        assert log.append_many("a", [event(1), event(2)]) == [0, 2]
        assert len(events_of(log.reader().topic("a"))) == 4


def test_rows_of_a_commit_that_failed_have_no_twins(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, windowed(storage=disk))
    log.append("a", event(0))
    name = staged(log, {"a": [event(1)], "b": [event(1)]})
    disk.only = "journal"
    disk.fail["pwrite"] = (1, ENOSPC)
    with pytest.raises(DiskFull):
        log.commit("w", 0, "r", [name])
    assert log.append_many("a", [event(1), event(1)]) == [1, 1]
    assert log.commit("w", 0, "r", [name]).offsets == {("TST", "a"): (2, 1), ("TST", "b"): (0, 1)}
    crash(log)
    assert stored(tmp_path, "a") == [event(0), event(1), event(1)]


def test_more_rows_than_are_moved_at_once_are_all_known(tmp_path: Path) -> None:
    with TopicLog(tmp_path, windowed(segment_bytes=1 << 20)) as log:
        name = staged(log, {"a": [event(i) for i in range(10_000)]})
        assert log.commit("w", 0, "r", [name]).rows == 10_000
        assert log.append_many("a", [event(i) for i in range(0, 10_000, 7)]) == list(range(0, 10_000, 7))
        assert log.shrunk_windows == []


def test_a_commit_that_does_not_fit_into_the_memory_for_windows_tells_it(tmp_path: Path) -> None:
    with TopicLog(tmp_path, windowed(duplicate_bytes=20_000)) as log:
        name = staged(log, {"a": [event(i) for i in range(1000)]})
        log.commit("w", 0, "r", [name])
        assert log.shrunk_windows == [("TST", "a")]
        assert log.append("a", event(999)) == 999


def test_a_covered_window_is_the_two_of_them() -> None:
    budget = WindowBudget(1 << 20)
    own, rows = Window(budget, bytes(16), 100, 10**9), Window(budget, bytes(16), 100, 10**9)
    for window, first in ((own, 0), (rows, 10)):
        for i in range(5):
            assert window.find(event(first + i), 5) == -1
            window.enter(i, 5)
    covered = CoveredWindow(own, rows, 100, 5)
    assert len(covered) == 10
    assert [covered.find(event(i), 6) for i in (0, 4, 10, 14, 20)] == [0, 4, 100, 104, -1]
    covered.enter(200, 6)
    assert covered.find(event(20), 7) == own.find(event(20), 7) == 200
    assert not covered.settle(3)
    assert [covered.find(event(i), 6) for i in (0, 10, 12, 13, 14, 20)] == [0, 100, 102, 103, 104, 200]
    covered.drop_from(200)
    assert covered.settle(100)
    assert [own.find(event(i), 6) for i in (0, 10, 14, 20)] == [0, 100, 104, -1]
    assert covered.find(b"no event", 6) == -2


class Waiting(RealStorage):
    """A disk on which room for a commit's segments takes as long as it is told."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.paths: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        handle = super().open(path, create=create)
        self.paths[handle] = path
        return handle

    def open_past_cache(self, path: str) -> int:
        handle = super().open_past_cache(path)
        self.paths[handle] = path
        return handle

    def allocate(self, handle: int, size: int) -> None:
        if self.where in self.paths[handle]:
            self.reached.set()
            assert self.go_on.wait(60)
        super().allocate(handle, size)


def test_nobody_waits_for_the_room_that_a_commit_needs_nor_for_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Waiting("staging/")
    log = TopicLog(tmp_path, windowed(storage=disk, background=True, segment_bytes=1 << 16))
    log.append("t0", event(-1))
    rows = {f"t{t}": [event(i, "y" * 1000) for i in range(t * 200, t * 200 + 200)] for t in range(3)}
    name = staged(log, rows)
    with halfway(monkeypatch) as (reached, go_on):
        commit = threading.Thread(target=log.commit, args=("w", 0, "r", [name]))
        commit.start()
        assert disk.reached.wait(30)
        # Old topics and new ones, into segments that are there and such that begin.
        before = {f"t{t}": log.append_many(f"t{t}", [b"before" * 200] * 60)[-1] + 1 for t in range(3)}
        assert log.append("new", b"1") == 0
        assert stored(tmp_path, "t0") == [event(-1), *[b"before" * 200] * 60]
        disk.go_on.set()
        assert reached.wait(30)
        for t in range(3):
            assert log.append(f"t{t}", b"behind") == before[f"t{t}"] + 200
        assert log.append_many("newer", [b"1" * 1000] * 200)[-1] == 199
        assert stored(tmp_path, "t1") == [b"before" * 200] * 60, "readers wait for the copy"
        go_on.set()
        commit.join()
    for topic, events in rows.items():
        first = [event(-1)] if topic == "t0" else []
        assert stored(tmp_path, topic) == [*first, *[b"before" * 200] * 60, *events, b"behind"]
    log.close()
    assert not list((tmp_path / "staging").glob("*.room"))


def test_a_topic_that_gets_full_while_room_is_made_is_given_segments_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TopicLog(tmp_path, small(segment_bytes=4096, adopt_bytes=1 << 20)) as log:
        log.append("a", b"first")
        name = staged(log, {"a": [b"%d" % i * 50 for i in range(30)]})
        prepare = StageCommit._prepare
        filled: list[list[int]] = []

        def meanwhile(commit: StageCommit) -> None:
            prepare(commit)
            if not filled:
                filled.append(log.append_many("a", [b"between" * 100] * 3))

        monkeypatch.setattr(StageCommit, "_prepare", meanwhile)
        assert log.commit("w", 0, "r", [name]).offsets == {("TST", "a"): (4, 30)}
        assert log.append("a", b"last") == 34
        expected = [b"first", *[b"between" * 100] * 3, *(b"%d" % i * 50 for i in range(30)), b"last"]
        assert events_of(log.reader().topic("a")) == expected
        crash(log)
    assert stored(tmp_path, "a") == expected


@pytest.mark.parametrize(("call", "where"), [("allocate", "staging"), ("pwrite", ".room"), ("pwrite", "journal")])
def test_a_commit_that_fails_leaves_nothing_where_readers_look(tmp_path: Path, call: str, where: str) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("a", b"0")
    name = staged(log, {"a": [b"row" * 100] * 20, "b": [b"row" * 100] * 20})
    disk.only = where
    for skipped in range(3):
        disk.skip, disk.fail[call] = skipped, (1, ENOSPC)
        with pytest.raises(DiskFull):
            log.commit("w", 0, "r", [name])
        assert sorted(path.name for path in tmp_path.rglob("*.seg")) == ["00000000000000000000.seg"]
        assert not list(tmp_path.rglob("*.room"))
        log.append("a", b"%d" % (skipped + 1))
        assert stored(tmp_path, "a") == [b"%d" % i for i in range(skipped + 2)]
        if where == "journal":
            break
    disk.fail.clear()
    assert log.commit("w", 0, "r", [name]).rows == 40
    crash(log)
    assert stored(tmp_path, "b") == [b"row" * 100] * 20


def test_a_segment_that_was_begun_for_an_append_that_failed_goes_with_it(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("a", b"0" * 1500)
    disk.only = "journal"
    disk.fail["pwrite"] = (1, ENOSPC)
    with pytest.raises(DiskFull):
        log.append("a", b"1" * 1500)
    # It fits behind the first one, and readers must not look for it in the segment that was begun.
    assert log.append("a", b"small") == 1
    with LogReader(tmp_path) as reader:
        assert events_of(reader.topic("a")) == [b"0" * 1500, b"small"]
    crash(log)
    assert stored(tmp_path, "a") == [b"0" * 1500, b"small"]


def test_an_os_topic_on_a_failing_disk_loses_no_handles_and_begins_no_segments(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.create("o", level="os")
    log.append("o", b"0" * 1500)
    disk.only = "topics"
    disk.fail["pwrite"] = (FOREVER, EIO)
    open_before = set(disk.paths)
    for size in [10, 1500] * 20:
        with pytest.raises(LogReadOnly):
            log.append("o", b"1" * size)
    assert len(set(disk.paths) - open_before) <= 2
    disk.fail.clear()
    assert log.append("o", b"small") == 1
    assert stored(tmp_path, "o") == [b"0" * 1500, b"small"]
    crash(log)


class Interfering:
    """The high-watermarks of a log; just before they are moved, somebody appends."""

    def __init__(self, log: TopicLog) -> None:
        self.log = log
        self.water = log.core.water
        self.others: list[threading.Thread] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.water, name)

    def move(self, highs: list[tuple[int, int]]) -> None:
        self.others.append(threading.Thread(target=self.log.append, args=("a", b"meanwhile")))
        self.others[-1].start()
        self.others[-1].join(0.2)  # it may have to wait until this is done
        self.water.move(highs)


def test_what_is_appended_while_a_copy_ends_is_not_hidden_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append("a", b"first")
        name = staged(log, {"a": [b"row"]})
        water = Interfering(log)
        monkeypatch.setattr(log.core, "water", water)
        log.commit("w", 0, "r", [name])
        for other in water.others:
            other.join()
        assert events_of(log.reader().topic("a")) == [b"first", b"row", b"meanwhile"]


@pytest.mark.parametrize("large", [False, True], ids=["fits", "apart"])
def test_a_commit_that_is_interrupted_takes_nothing_and_leaves_what_others_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    with TopicLog(tmp_path, windowed()) as log:
        log.append_many("a", [event(0), event(1)])
        topic = log.core.topics["TST", "a"]
        rows = [event(i, "y" * (800 if large else 1)) for i in range(10, 15)]
        name = staged(log, {"a": rows, "b": rows})
        assert log.core.commits.add(topic, event(2), 1) == 2, "waits to be committed"
        reserve = StageCommit._reserve

        def interrupted(commit: StageCommit, key: tuple[str, str], share: Any) -> None:
            if key[1] == "b":
                raise KeyboardInterrupt
            reserve(commit, key, share)

        with monkeypatch.context() as patch:
            patch.setattr(StageCommit, "_reserve", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.commit("w", 0, "r", [name])
        assert log.append_many("a", [event(10), event(3)]) == [3, 4]
        assert events_of(log.reader().topic("a")) == [event(0), event(1), event(2), event(10), event(3)]
        assert log.commit("w", 0, "r", [name]).offsets == {("TST", "a"): (5, 5), ("TST", "b"): (0, 5)}
        expected = [event(0), event(1), event(2), event(10), event(3), *rows]
        assert events_of(log.reader().topic("a")) == expected
        crash(log)
    assert stored(tmp_path, "a") == expected
    assert stored(tmp_path, "b") == rows
