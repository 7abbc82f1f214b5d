"""Topics that trade durability for speed: no offset is ever given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomesh.errors import HoleError, OffsetGone
from echomesh.log import LogReader, TopicLog
from tests.log.support import crash, events_of, small, stored


def test_an_os_topic_goes_on_behind_its_lease_after_a_crash(tmp_path: Path) -> None:
    given: list[int] = []
    for round in range(4):
        log = TopicLog(tmp_path, small())
        log.create("o", level="os")
        given += [log.append("o", b"%d.%d" % (round, i)) for i in range(40)]
        crash(log)
    assert len(set(given)) == len(given) == 160
    assert given == sorted(given)
    with TopicLog(tmp_path, small()) as log:
        assert log.report.lost
        topic = log.reader().topic("o")
        found, holes, offset = [], [], 0
        while offset < topic.end:
            try:
                records = topic.read(offset)
            except HoleError as hole:
                holes.append((offset, hole.first, hole.last))
                offset = hole.last + 1
                continue
            found += [record[0] for record in records]
            offset = records.next_offset
        assert found == given
        assert len(holes) == 4
        assert all(offset == first <= last for offset, first, last in holes)


def test_an_os_topic_that_was_closed_in_order_has_no_hole(tmp_path: Path) -> None:
    for round in range(3):
        with TopicLog(tmp_path, small()) as log:
            log.create("o", level="os")
            assert log.append("o", b"%d" % round) == round
    assert stored(tmp_path, "o") == [b"0", b"1", b"2"]


def test_an_os_topic_is_read_without_a_writer_as_far_as_it_survived(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    log.create("o", level="os")
    for i in range(100):
        log.append("o", b"%d" % i * 20)
    crash(log)
    assert stored(tmp_path, "o") == [b"%d" % i * 20 for i in range(100)]


def test_a_none_topic_lives_in_memory_and_resumes_from_now(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    log.create("n", level="none")
    assert [log.append("n", b"%d" % i) for i in range(5)] == [0, 1, 2, 3, 4]
    assert stored(tmp_path, "n") == [b"0", b"1", b"2", b"3", b"4"]
    assert not list((tmp_path / "topics").rglob("*.seg"))
    crash(log)
    with TopicLog(tmp_path, small()) as log:
        first = log.append("n", b"again")
        assert first > 4
        topic = log.reader().topic("n")
        assert events_of(topic) == [b"again"]
        with pytest.raises(OffsetGone):
            topic.read(0)


def test_retention_removes_whole_segments_by_size_and_tells_a_reader_behind(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(retention_bytes=8192)) as log, LogReader(tmp_path) as reader:
        log.append("a", b"0")
        behind = reader.topic("a")
        assert len(behind.read(0)) == 1
        for i in range(1, 500):
            log.append("a", b"%03d" % i * 10)
        log.core.keeper.care()
        topic = log.core.topics["TST", "a"]
        assert 0 < topic.earliest < 500
        with pytest.raises(OffsetGone) as caught:
            behind.read(1)
        assert (caught.value.first, caught.value.last) == (1, topic.earliest - 1)
        assert events_of(behind) == [b"%03d" % i * 10 for i in range(topic.earliest, 500)]
        earliest = topic.earliest
    with TopicLog(tmp_path, small()) as log:
        assert log.reader().topic("a").earliest == earliest


def test_a_reader_that_came_before_the_writer_tells_what_retention_removed_from_a_hole(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        for i in range(500):
            log.append("a", b"%03d" % i * 10)
    with LogReader(tmp_path) as reader:
        behind, fresh = reader.topic("a"), reader.topic("a")
        behind.read(0, max_records=1)
        with TopicLog(tmp_path, small(retention_bytes=1)) as log:
            log.core.retain()
            earliest = log.reader().topic("a").earliest
        assert earliest > 100
        for topic in (behind, fresh):
            with pytest.raises(OffsetGone) as caught:
                topic.read(100)
            assert (caught.value.first, caught.value.last) == (100, earliest - 1)


def test_retention_removes_whole_segments_by_age(tmp_path: Path) -> None:
    now = [10**9]
    with TopicLog(tmp_path, small(retention_s=10.0, clock=lambda: now[0])) as log:
        for i in range(200):
            now[0] += 10**8
            log.append("a", b"%03d" % i * 20)
        log.core.keeper.care()
        topic = log.reader().topic("a")
        oldest = topic.read(topic.earliest)[0][1]
        assert 0 < topic.earliest < 120
        assert oldest < now[0] - 10 * 10**9 + 5 * 10**9


def test_retention_looks_at_no_directory_of_a_topic_that_did_not_change(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(retention_bytes=8192)) as log:
        for i in range(300):
            log.append("busy", b"%03d" % i * 10)
        for t in range(50):
            log.append(f"quiet/{t}", b"x")
        retention = log.core.retention
        log.core.keeper.care()
        assert retention.looked == 1
        for _ in range(5):
            log.append("busy", b"y")
            log.core.keeper.care()
        assert retention.looked <= 2, "only when a segment of it was sealed"


def test_retention_by_age_needs_no_index(tmp_path: Path) -> None:
    now = [10**9]
    with TopicLog(tmp_path, small(retention_s=10.0, clock=lambda: now[0])) as log:
        for i in range(200):
            now[0] += 10**8
            log.append("a", b"%03d" % i * 20)
        log.core.keeper.sync()
        for index in (tmp_path / "topics").rglob("*.idx"):
            index.unlink()
        log.core.keeper.care()
        assert log.reader().topic("a").earliest > 0


def test_what_retention_removed_before_a_crash_is_gone_and_not_corrupt(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small(retention_bytes=8192))
    for i in range(500):
        log.append("a", b"%03d" % i * 10)
    log.core.retain()
    earliest = log.core.topics["TST", "a"].earliest
    assert earliest > 0
    crash(log)
    for _ in range(2):
        with LogReader(tmp_path) as reader:
            topic = reader.topic("a")
            assert topic.earliest == earliest
            assert len(events_of(topic)) == 500 - earliest
        with TopicLog(tmp_path, small()) as again:
            assert not again.report.corrupt
