"""The two faces of the log, used as users use them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from echomesh.errors import LogBehind, LogLocked, MessageTooLarge, UnknownTopic, UsageError
from echomesh.events import Event
from echomesh.log import AsyncTopicLog, LogReader, TopicLog
from tests.log.support import crash, events_of, small, stored


def test_events_get_consecutive_offsets_from_zero(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log:
        assert [log.append("a", b"x") for _ in range(3)] == [0, 1, 2]
        assert log.append_many("a", [b"y", b"z"]) == [3, 4]
        assert log.append("b", b"x") == 0
        assert log.append("a", b"other", environment="PRD") == 0
        assert events_of(log.reader().topic("a")) == [b"x", b"x", b"x", b"y", b"z"]


def test_what_was_appended_is_there_after_the_log_was_opened_again(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log:
        log_id = log.log_id
        log.append_many("a", [b"1", b"2"])
    with TopicLog(tmp_path) as log:
        assert log.report.clean
        assert log.log_id == log_id
        assert log.append("a", b"3") == 2
    assert stored(tmp_path, "a") == [b"1", b"2", b"3"]


def test_a_crash_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    for i in range(100):
        log.append(f"t{i % 3}", b"%d" % i)
    crash(log)
    for _ in range(2):  # a reader alone, then a reader after recovery
        for t in range(3):
            assert stored(tmp_path, f"t{t}") == [b"%d" % i for i in range(100) if i % 3 == t]
        crash(TopicLog(tmp_path, small()))


def test_an_event_is_stored_as_it_is_encoded_on_the_wire(tmp_path: Path) -> None:
    event = Event(type="order.created", source="/shop", data={"id": 7})
    with TopicLog(tmp_path) as log:
        log.append("orders", event)
    assert Event.decode(stored(tmp_path, "orders")[0]) == event


def test_an_event_over_64_kib_is_written_once_and_survives_a_crash(tmp_path: Path) -> None:
    log = TopicLog(tmp_path)
    large = bytes(range(256)) * 1024
    log.append_many("a", [b"before", large, b"after"])
    assert log.core.commits.kept > len(large)
    crash(log)
    assert stored(tmp_path, "a") == [b"before", large, b"after"]
    journal = b"".join(path.read_bytes() for path in (tmp_path / "journal").iterdir())
    assert large not in journal
    with TopicLog(tmp_path) as log:
        assert log.append("a", b"more") == 3
    assert stored(tmp_path, "a")[3] == b"more"


def test_an_event_over_the_limit_is_refused(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log:
        with pytest.raises(MessageTooLarge):
            log.append("a", bytes((64 << 20) + 1))
        assert log.append("a", b"x") == 0


def test_a_second_writer_is_told_who_has_the_directory(tmp_path: Path) -> None:
    with TopicLog(tmp_path), pytest.raises(LogLocked) as caught:
        TopicLog(tmp_path)
    assert caught.value.pid > 0
    TopicLog(tmp_path).close()


def test_origins_travel_with_their_records(tmp_path: Path) -> None:
    origin = b"o" * 16 + (7).to_bytes(8, "little")
    with TopicLog(tmp_path) as log:
        log.append("a", b"x", origin=origin)
        log.append("a", b"y")
        assert [record[2] for record in log.reader().topic("a").read(0)] == [origin, None]


def test_reading_from_a_time_finds_the_first_event_that_is_not_older(tmp_path: Path) -> None:
    now = [1000]
    with TopicLog(tmp_path, small(clock=lambda: now[0])) as log:
        for i in range(200):
            now[0] = 1000 + i * 10
            log.append("a", b"%d" % i)
        now[0] = 5  # a clock that was set back
        log.append("a", b"late")
        reader = log.reader().topic("a")
        for i in range(0, 200, 17):
            assert reader.offset_at(1000 + i * 10) == i
            assert reader.offset_at(1000 + i * 10 - 5) == i
        assert reader.offset_at(1 << 60) == reader.end
        assert reader.read(200)[0][1] == 1000 + 199 * 10


def test_reading_beyond_the_end_or_an_unknown_topic_is_an_error(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log:
        log.append("a", b"x")
        reader = log.reader()
        assert len(reader.topic("a").read(1)) == 0
        with pytest.raises(LogBehind):
            reader.topic("a").read(2)
        with pytest.raises(UnknownTopic):
            reader.topic("b")
        with pytest.raises(UsageError):
            log.create("a", level="os")


def test_many_threads_share_one_sync(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log:

        def work(number: int) -> None:
            for i in range(50):
                log.append("a", b"%d:%d" % (number, i))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = events_of(log.reader().topic("a"))
        assert len(found) == 400
        assert log.core.commits.last_number < 400
        for number in range(8):
            mine = [event for event in found if event.startswith(b"%d:" % number)]
            assert mine == [b"%d:%d" % (number, i) for i in range(50)]


def test_many_appends_in_flight_are_answered_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncTopicLog(tmp_path) as log:
            answered: list[int] = []
            futures = [log.append("a", b"%d" % i) for i in range(1000)]
            for future in futures:
                future.add_done_callback(lambda done: answered.append(done.result()))
            assert await asyncio.gather(*futures) == list(range(1000))
            await asyncio.sleep(0)
            assert answered == list(range(1000))
            assert await log.append_many("b", [b"1", b"2"]) == [0, 1]
            assert log.core.commits.last_number < 20

    asyncio.run(scenario())
    assert stored(tmp_path, "a") == [b"%d" % i for i in range(1000)]


def test_more_than_the_memory_for_commits_takes_waits_its_turn(tmp_path: Path) -> None:
    options = small(background=True, frame_bytes=8192, kept_bytes=65536, segment_bytes=1 << 20)

    async def scenario() -> None:
        async with AsyncTopicLog(tmp_path, options) as log:
            futures = [log.append("a", b"%04d" % i * 50) for i in range(3000)]
            assert await asyncio.gather(*futures) == list(range(3000))
            assert log.core.commits.kept <= 65536 + 8192 + 512

    asyncio.run(scenario())
    assert stored(tmp_path, "a") == [b"%04d" % i * 50 for i in range(3000)]


def test_a_reader_sees_a_new_topic_and_waits_for_its_events(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log, LogReader(tmp_path) as reader:
        assert reader.topics() == []
        log.append("a", b"0")
        topic = reader.topic("a")
        assert not topic.wait(1, timeout=0.01)
        timer = threading.Timer(0.05, log.append, ("a", b"1"))
        timer.start()
        assert topic.wait(1, timeout=30)
        timer.join()
        assert [batch.events() for batch in topic.follow(0, timeout=0.01)] == [[b"0", b"1"]]
