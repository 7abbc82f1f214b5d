"""Stages that become segments as they are: read, damaged, converted, removed, and never seen before their commit."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import LogCorrupt, LogReadOnly, StageMissing
from echomesh.events import Event
from echomesh.log import LogReader, TopicLog, arrow, stage_copy, stage_file
from echomesh.log.adopted import adopted, marks_of
from echomesh.log.stage_commit import StageCommit
from echomesh.log.stage_file import Staged
from echomesh.log.staging import Committed
from tests.log.parquet_support import compacted
from tests.log.support import EIO, ENOSPC, FaultyStorage, crash, events_of, small, stored
from tests.log.test_damage import survivors
from tests.log.test_recovery import frames, ruin
from tests.support.counts import FULL, count


def event(number: int, size: int = 10) -> bytes:
    return Event(type="t", source="/s", id=str(number), data="x" * size, time=None).encode()


def commit(log: TopicLog, *parts: list[bytes], topic: str = "a", epoch: int = 0) -> list[str]:
    """Commits a stage for each part."""
    stages = []
    for part, events in enumerate(parts):
        stage = log.stage("w", epoch, "r", part)
        for one in events:
            stage.add(topic, one)
        stages.append(stage.close().stage)
    log.commit("w", epoch, "r", stages)
    return stages


def files(directory: Path, topic: int = 0) -> list[Path]:
    return sorted((directory / "topics" / f"{topic:08d}").glob("*.rows"))


def test_a_stage_becomes_a_segment_without_being_copied(tmp_path: Path) -> None:
    rows = [event(i) for i in range(20)]
    with TopicLog(tmp_path, small(segment_bytes=1 << 14)) as log:
        log.append_many("a", [b"first", b"second"])
        stage = log.stage("w", 0, "r")
        for one in rows:
            stage.add("a", one)
        staged = stage.close().stage
        inode = (tmp_path / "staging" / f"{staged}.stage").stat().st_ino
        assert log.commit("w", 0, "r", [staged]).offsets == {("TST", "a"): (2, 20)}
        (made,) = files(tmp_path)
        assert made.stat().st_ino == inode
        assert log.append("a", b"last") == 22
        expected = [b"first", b"second", *rows, b"last"]
        assert events_of(log.reader().topic("a")) == expected
        topic = log.reader().topic("a")
        for offset in range(23):
            assert topic.read(offset, max_records=1)[0][0] == offset
            assert topic.read(offset).events()[0] == expected[offset]
        times = {topic.read(offset, max_records=1).time_ns(0) for offset in range(2, 22)}
        assert len(times) == 1
        assert topic.offset_at(times.pop()) == 2
        assert stored(tmp_path, "a") == expected
        crash(log)
    assert stored(tmp_path, "a") == expected
    with TopicLog(tmp_path, small(segment_bytes=1 << 14)) as log:
        assert log.append("a", b"more") == 23
        log.core.keeper.care()
        assert not list((tmp_path / "staging").iterdir()), "the segment has the only name that is left"
    assert stored(tmp_path, "a") == [*expected, b"more"]


def test_what_a_reader_gets_is_what_a_copy_would_have_been(tmp_path: Path) -> None:
    rows = [event(i, i * 7 % 90) for i in range(60)]
    for name, least in (("whole", 0), ("copied", 1 << 30)):
        with TopicLog(tmp_path / name, small(adopt_bytes=least, segment_bytes=1 << 16, clock=lambda: 77)) as log:
            commit(log, rows[:30], [], rows[30:])
    assert len(files(tmp_path / "whole")) == 2
    assert not files(tmp_path / "copied")
    with LogReader(tmp_path / "whole") as whole, LogReader(tmp_path / "copied") as copied:
        one, other = whole.topic("a"), copied.topic("a")
        raw = b"".join(bytes(one.read(offset, max_records=30).raw()) for offset in (0, 30))
        assert raw == bytes(other.read(0).raw())
        assert arrow.table(arrow.batches(one, 0)).equals(arrow.table(arrow.batches(other, 0)))


@pytest.mark.parametrize("why", ["tiny", "large", "mixed", "no links"])
def test_other_stages_are_copied(tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyStorage()
    changes: dict[str, Any] = {"tiny": {"adopt_bytes": 1 << 20}, "large": {"segment_bytes": 1024}}.get(why, {})
    rows = [event(i) for i in range(30)]
    with TopicLog(tmp_path, small(disk, **changes)) as log:
        if why == "no links":

            def refuse(old: str, new: str) -> None:
                raise OSError(errno.EPERM, "no links here", new)

            monkeypatch.setattr(disk, "link", refuse)
        stage = log.stage("w", 0, "r")
        for one in rows:
            stage.add("a", one)
        if why == "mixed":
            stage.add("b", rows[0])
        log.commit("w", 0, "r", [stage.close().stage])
        assert not files(tmp_path)
        assert stored(tmp_path, "a") == rows
        assert not list(tmp_path.rglob("*.room"))


@pytest.mark.parametrize("code", [EIO, ENOSPC])
def test_a_commit_whose_journal_fails_leaves_nothing_and_can_be_made_again(tmp_path: Path, code: int) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("a", b"0")
    disk.only, disk.fail["pwrite"] = "/journal/", (1 if code == ENOSPC else 2, code)
    rows = [event(i) for i in range(10)]
    stage = log.stage("w", 0, "r")
    for one in rows:
        stage.add("a", one)
    staged = stage.close().stage
    with pytest.raises(Exception, match=r"room|refused|EIO"):
        log.commit("w", 0, "r", [staged])
    assert not files(tmp_path)
    assert not list(tmp_path.rglob("*.room"))
    disk.fail.clear()
    if code == ENOSPC:
        assert log.append("a", b"1") == 1
        assert events_of(log.reader().topic("a")) == [b"0", b"1"]
        assert log.commit("w", 0, "r", [staged]).offsets == {("TST", "a"): (2, 10)}
        assert events_of(log.reader().topic("a")) == [b"0", b"1", *rows]
    crash(log)
    with TopicLog(tmp_path, small()) as log:
        found = stored(tmp_path, "a")
        assert found in ([b"0"], [b"0", *rows], [b"0", b"1", *rows])
        assert log.append("a", b"last") == len(found)


def test_what_is_committed_and_not_yet_in_its_place_is_read_and_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [event(i) for i in range(10)]
    log = TopicLog(tmp_path, small())
    log.append("a", b"0")

    def fail(commit: StageCommit) -> None:
        raise OSError(EIO, "the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(StageCommit, "_adopt", fail)
        with pytest.raises(LogReadOnly):
            commit(log, rows)
    assert events_of(log.reader().topic("a")) == [b"0"], "readers wait before it"
    crash(log)
    assert not files(tmp_path)
    assert stored(tmp_path, "a") == [b"0", *rows], "without a writer the journal tells"
    with TopicLog(tmp_path, small()) as log:
        assert log.commit("w", 0, "r", []).repeated
        assert log.append("a", b"1") == 11
        assert len(files(tmp_path)) == 1
    assert stored(tmp_path, "a") == [b"0", *rows, b"1"]


def test_a_stage_that_is_gone_before_it_was_in_its_place_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TopicLog(tmp_path, small())
    with monkeypatch.context() as patch:
        patch.setattr(StageCommit, "_adopt", lambda commit: None)
        commit(log, [event(i) for i in range(10)])
    crash(log)
    for path in (tmp_path / "staging").iterdir():
        path.unlink()
    with TopicLog(tmp_path, small()) as log:
        assert log.report.corrupt == [("a", 0, 9)]
        assert log.append("a", b"10") == 10
        with pytest.raises(LogCorrupt) as caught:
            log.reader().topic("a").read(3)
        assert (caught.value.first, caught.value.last) == (3, 9)
        assert events_of(log.reader().topic("a"), 10) == [b"10"]


def filled(directory: Path) -> tuple[Path, list[bytes]]:
    """A log with one small adopted segment: its path, and the events."""
    events = [b"event %d" % i * (i + 1) for i in range(6)]
    with TopicLog(directory, small()) as log:
        commit(log, events)
    (path,) = files(directory)
    return path, events


def twenty(log: TopicLog, directory: Path) -> tuple[Staged, Path]:
    """A stage of twenty rows, and its file."""
    stage = log.stage("w", 0, "r")
    for i in range(20):
        stage.add("a", event(i))
    staged = stage.close()
    return staged, directory / "staging" / f"{staged.stage}.stage"


def told(log: TopicLog, staged: Staged) -> Committed:
    """A commit of a writer that tells what its stage has to have."""
    return log.core.stages.commit("w", 0, "r", [staged.stage], sums=[(staged.rows, staged.checksum)])


def test_a_stage_that_was_cut_short_is_not_committed(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=1 << 16)) as log:
        staged, path = twenty(log, tmp_path)
        whole = path.read_bytes()
        for length in range(0, len(whole), 1 if FULL else 13):
            path.write_bytes(whole[:length])
            with pytest.raises(StageMissing):
                told(log, staged)
            assert not list(tmp_path.rglob("*.room"))
        path.write_bytes(whole)
        with pytest.raises(StageMissing, match="checksum"):
            told(log, staged._replace(checksum=staged.checksum ^ 1))
        assert told(log, staged).rows == 20
        assert len(files(tmp_path)) == 1


def test_what_tells_the_rows_of_a_stage_is_checked(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=1 << 16, duplicate_bytes=1 << 20)) as log:
        staged, path = twenty(log, tmp_path)
        whole = path.read_bytes()
        found = stage_copy.look(log.core.storage, log.core.paths, staged.stage)
        assert found.ending_at - found.end >= 20 * 16
        for at in range(found.end, found.ending_at, 1 if FULL else 17):
            spoilt = bytearray(whole)
            spoilt[at] ^= 1
            path.write_bytes(spoilt)
            with pytest.raises(StageMissing):
                told(log, staged)
        path.write_bytes(whole)
        assert told(log, staged).rows == 20


def test_a_row_that_the_disk_has_spoilt_before_the_commit_is_not_served(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=1 << 16)) as log:
        staged, path = twenty(log, tmp_path)
        data = bytearray(path.read_bytes())
        data[data.index(event(7)) + 3] ^= 1
        path.write_bytes(data)
        with pytest.raises(StageMissing, match="row 8 is damaged"):
            log.commit("w", 0, "r", [staged.stage])
        told(log, staged)
    served, bad = survivors(tmp_path)
    assert bad == [(7, 7)]
    assert [offset for offset, _ in served] == [*range(7), *range(8, 20)]


def test_every_flipped_bit_is_found_and_never_served(tmp_path: Path) -> None:
    path, events = filled(tmp_path)
    good = path.read_bytes()
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        topic.read(0)
        start, stop = topic.starts[0], topic.place[2]
    for bit in range(0, stop * 8, 1 if FULL else 3):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(flipped)
        served, bad = survivors(tmp_path)
        assert len(bad) == 1, bit
        assert all(events[offset] == one for offset, one in served)
        first, last = bad[0]
        assert {offset for offset, _ in served} | set(range(first, last + 1)) == set(range(6))
        if bit >= start * 8:
            assert first == last, "only the row with the flipped bit is lost"


def test_files_full_of_nonsense_never_crash_a_reader(tmp_path: Path) -> None:
    path, events = filled(tmp_path)
    good = path.read_bytes()
    chosen = random.Random(5)
    for _ in range(count(200, 20_000)):
        noisy = bytearray(good)
        start = chosen.randrange(len(noisy))
        noisy[start : start + chosen.randint(1, 60)] = chosen.randbytes(chosen.randint(0, 60))
        path.write_bytes(noisy)
        served, _ = survivors(tmp_path)
        assert all(events[offset] == one for offset, one in served)


def test_rows_inside_an_event_are_not_mistaken_for_rows(tmp_path: Path) -> None:
    inside = filled(tmp_path / "one")[0].read_bytes()
    events = [b"x" * 4 + inside, b"x" * 36 + inside, b"last"]
    with TopicLog(tmp_path / "other", small(segment_bytes=1 << 16)) as log:
        commit(log, events)
    assert stored(tmp_path / "other", "a") == events


def test_an_index_is_made_with_it_and_made_again_when_it_is_gone(tmp_path: Path) -> None:
    rows = [event(i, 400) for i in range(1000)]
    with TopicLog(tmp_path, small(segment_bytes=1 << 20)) as log:
        commit(log, rows)
        log.append("a", b"behind")
        log.core.keeper.care()
        index = log.reader().topic("a").index_of(0)
        marks, whole = index.read()
        assert whole
        assert len(marks) > 10
        (path,) = files(tmp_path)
        (segment,) = adopted(str(path.parent), [path.name]).values()
        assert marks == marks_of(log.core.storage, segment)
        Path(index.path).unlink()
        assert log.reader().topic("a").read(777).events()[0] == rows[777]
        log.core.keeper.upkeep.round()
        assert index.read() == (marks, True)
        assert log.reader().topic("a").read(777, max_records=1).events() == [rows[777]]


def test_it_is_converted_like_any_other_segment(tmp_path: Path) -> None:
    rows = [event(i, 50) for i in range(200)]
    with TopicLog(tmp_path, small(segment_bytes=1 << 16)) as log:
        commit(log, rows[:100], rows[100:])
        log.append("a", event(999))
    with LogReader(tmp_path) as reader:
        before = list(reader.topic("a").read(0)) + list(reader.topic("a").read(100))
    report = compacted(tmp_path, min_age_s=0.0)
    assert [segment.done for segment in report.segments] == [True, True]
    assert not files(tmp_path)
    with LogReader(tmp_path) as reader:
        assert list(reader.topic("a").read(0)) + list(reader.topic("a").read(100)) == before
        assert events_of(reader.topic("a")) == [*rows, event(999)]


def test_retention_removes_it_whole(tmp_path: Path) -> None:
    rows = [event(i, 50) for i in range(40)]
    with TopicLog(tmp_path, small(segment_bytes=1 << 16, retention_bytes=3000)) as log:
        for epoch in range(4):
            commit(log, rows[epoch * 10 : epoch * 10 + 10], epoch=epoch)
        log.core.retain()
        topic = log.reader().topic("a")
        assert 0 < topic.earliest < 40
        assert topic.earliest % 10 == 0
        assert events_of(topic) == rows[topic.earliest :]
        assert len(files(tmp_path)) == (40 - topic.earliest) // 10
        earliest = topic.earliest
        crash(log)
    with TopicLog(tmp_path, small(segment_bytes=1 << 16)) as log:
        assert log.reader().topic("a").earliest == earliest
        assert len(files(tmp_path)) == (40 - earliest) // 10, "what was removed does not come back"


@pytest.mark.parametrize("tells", [True, False])
def test_twins_are_recognized_behind_it_and_over_a_restart(
    tmp_path: Path, tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = small(duplicate_bytes=1 << 20)
    with TopicLog(tmp_path, options) as log:
        if not tells:  # as one that was written by a task on the same machine
            monkeypatch.setattr(stage_file, "MOST_KNOWN_BYTES", -1)
        commit(log, [event(i) for i in range(6)], [event(i) for i in range(5, 9)] + [b"no event"])
        assert len(files(tmp_path)) == 2
        assert [log.append("a", event(i)) for i in range(9)] == [0, 1, 2, 3, 4, 5, 7, 8, 9]
        assert log.append("a", b"no event") == 11
    with TopicLog(tmp_path, options) as log:
        assert log.append_many("a", [event(8), event(9)]) == [9, 12]


@pytest.mark.parametrize("ruined", [(1,), (2,), (1, 2), (2, 3), (1, 2, 3)])
def test_where_the_journal_is_ruined_the_segments_of_all_kinds_tell(tmp_path: Path, ruined: tuple[int, ...]) -> None:
    rows = [event(i) for i in range(5)]
    log = TopicLog(tmp_path, small())
    for one in (b"0", b"1"):
        log.append("a", one)
    commit(log, rows)
    for one in (b"7", b"8"):
        log.append("a", one)
    assert len(files(tmp_path)) == 1
    (journal,) = (tmp_path / "journal").iterdir()
    crash(log)
    places = frames(journal)
    for number in ruined:
        ruin(journal, places[number], 60)
    assert stored(tmp_path, "a") == [b"0", b"1", *rows, b"7", b"8"]
    with TopicLog(tmp_path, small()) as log:
        assert any("missing" in note for note in log.report.notes)
        assert not log.report.corrupt
        assert log.append("a", b"9") == 9
    assert stored(tmp_path, "a") == [b"0", b"1", *rows, b"7", b"8", b"9"]


def test_without_a_checkpoint_the_file_tells_where_the_topic_ends(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append("a", b"first")
        commit(log, [event(i) for i in range(10)])
    for name in ("checkpoint", "checkpoint.copy"):
        (tmp_path / name).unlink()
    with TopicLog(tmp_path, small()) as log:
        assert log.append("a", b"last") == 11
    assert stored(tmp_path, "a") == [b"first", *(event(i) for i in range(10)), b"last"]
