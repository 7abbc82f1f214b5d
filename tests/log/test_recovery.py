"""What survives damage of the journal and the checkpoint: nothing that was acknowledged goes without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomesh.errors import HoleError, LogCorrupt
from echomesh.log import LogReader, TopicLog
from echomesh.log.layout import HEADER_BYTES
from tests.log.support import EIO, FaultyStorage, crash, events_of, small, stored
from tests.support.counts import FULL

EVENTS = [b"event %d" % i * (i + 1) for i in range(6)]


def crashed(directory: Path) -> Path:
    """A log that was killed with one frame for each event in its journal; the journal file."""
    log = TopicLog(directory, small())
    for event in EVENTS:
        log.append("a", event)
    crash(log)
    (journal,) = [path for path in (directory / "journal").iterdir() if any(path.read_bytes()[:8])]
    return journal


def frames(journal: Path) -> list[int]:
    """Where its frames begin."""
    data = journal.read_bytes()
    return [at for at in range(0, len(data), 512) if any(data[at : at + 8])]


def ruin(path: Path, start: int, length: int = 16) -> None:
    """More than one flipped bit."""
    data = bytearray(path.read_bytes())
    data[start : start + length] = bytes(byte ^ 0x5A for byte in data[start : start + length])
    path.write_bytes(data)


def reboot(directory: Path) -> None:
    """The file of high-watermarks is of another boot."""
    water = directory / "watermarks"
    data = bytearray(water.read_bytes())
    data[32:48] = bytes(16)
    water.write_bytes(data)


def lose_segments(directory: Path) -> None:
    """A power cut before they were synced."""
    for segment in (directory / "topics").rglob("*.seg"):
        segment.write_bytes(b"")


@pytest.mark.parametrize("power_cut", [False, True])
def test_every_flipped_bit_of_the_journal_is_put_right(tmp_path: Path, power_cut: bool) -> None:
    journal = crashed(tmp_path)
    if power_cut:
        lose_segments(tmp_path)
        reboot(tmp_path)
    good = journal.read_bytes()
    size = len(good.rstrip(b"\0"))
    lengths = {at: int.from_bytes(good[at : at + 4], "little") for at in frames(journal)}
    for bit in range(0, size * 8, 1 if FULL else 11):
        at = max(start for start in lengths if start * 8 <= bit)
        if bit // 8 - at >= lengths[at]:
            continue
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << (bit % 8)
        journal.write_bytes(flipped)
        assert stored(tmp_path, "a") == EVENTS, bit
    with TopicLog(tmp_path, small()) as log:
        assert any("put right" in note for note in log.report.notes)
        assert not log.report.corrupt
        assert log.append("a", b"more") == len(EVENTS)


def test_a_ruined_last_commit_is_kept_when_its_records_are_whole_in_the_segment(tmp_path: Path) -> None:
    journal = crashed(tmp_path)
    reboot(tmp_path)
    ruin(journal, frames(journal)[-1] + 80)
    assert stored(tmp_path, "a") == EVENTS
    with TopicLog(tmp_path, small()) as log:
        assert log.report.kept == [("a", 5, 5)]
        assert log.append("a", b"more") == 6
    assert stored(tmp_path, "a") == [*EVENTS, b"more"]


def test_an_acknowledged_event_that_is_nowhere_whole_is_an_error_with_its_range(tmp_path: Path) -> None:
    journal = crashed(tmp_path)
    ruin(journal, frames(journal)[-1] + 80)
    (segment,) = (tmp_path / "topics").rglob("*.seg")
    ruin(segment, len(segment.read_bytes().rstrip(b"\0")) - 20)
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        assert events_of_first(topic, 5) == EVENTS[:5]
        with pytest.raises(LogCorrupt) as caught:
            topic.read(5)
        assert (caught.value.first, caught.value.last) == (5, 5)
    with TopicLog(tmp_path, small()) as log:
        assert log.report.corrupt == [("a", 5, 5)]
        assert log.append("a", b"more") == 6, "the lost one's offset is not given again"
    with TopicLog(tmp_path, small()) as log:
        topic = log.reader().topic("a")
        with pytest.raises(LogCorrupt):
            topic.read(5)
        assert events_of(topic, 6) == [b"more"]


def events_of_first(topic: object, until: int) -> list[bytes]:
    """Events 0 up to an offset."""
    found: list[bytes] = []
    while len(found) < until:
        found += topic.read(len(found), max_records=until - len(found)).events()  # type: ignore[attr-defined]
    return found


def test_a_torn_last_commit_after_a_power_cut_is_dropped_and_what_it_held_is_reported(tmp_path: Path) -> None:
    journal = crashed(tmp_path)
    lose_segments(tmp_path)
    reboot(tmp_path)
    ruin(journal, frames(journal)[-1] + 80)
    assert stored(tmp_path, "a") == EVENTS[:5]
    with TopicLog(tmp_path, small()) as log:
        assert log.report.doubtful == [("a", 5, 5)]
        assert any("torn" in note for note in log.report.notes)
        assert log.append("a", b"more") == 5


def test_a_ruined_commit_in_the_middle_is_made_good_from_the_segments(tmp_path: Path) -> None:
    journal = crashed(tmp_path)
    reboot(tmp_path)
    ruin(journal, frames(journal)[3], 100)
    assert stored(tmp_path, "a") == EVENTS
    with TopicLog(tmp_path, small()) as log:
        assert any("missing" in note for note in log.report.notes)
        assert not log.report.corrupt
    assert stored(tmp_path, "a") == EVENTS


def test_a_ruined_commit_in_the_middle_that_is_nowhere_whole_is_reported_with_its_range(tmp_path: Path) -> None:
    journal = crashed(tmp_path)
    lose_segments(tmp_path)
    reboot(tmp_path)
    places = frames(journal)
    ruin(journal, places[2], 100)
    ruin(journal, places[3], 100)
    with LogReader(tmp_path) as reader, pytest.raises(LogCorrupt) as caught:
        reader.topic("a").read(2)
    assert (caught.value.first, caught.value.last) == (2, 3)
    with TopicLog(tmp_path, small()) as log:
        assert log.report.corrupt == [("a", 2, 3)]
        assert events_of(log.reader().topic("a"), 4) == EVENTS[4:]


def test_a_topic_whose_birth_is_ruined_keeps_its_name_and_its_events(tmp_path: Path) -> None:
    journal = crashed(tmp_path)
    ruin(journal, 0, 400)
    assert stored(tmp_path, "a") == EVENTS
    with TopicLog(tmp_path, small()) as log:
        assert any("birth" in note for note in log.report.notes)
        assert log.append("a", b"more") == 6


def test_events_of_a_topic_whose_name_is_lost_are_found_under_another_one(tmp_path: Path) -> None:
    journal = crashed(tmp_path)
    reboot(tmp_path)
    ruin(journal, 0, 400)
    (tmp_path / "topics" / "00000000.name").unlink()
    with TopicLog(tmp_path, small()) as log:
        assert log.append("b", b"new") == 0
        assert events_of(log.reader().topic("lost/00000000")) == EVENTS


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.copy"])
def test_one_damaged_checkpoint_changes_nothing(tmp_path: Path, name: str) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append_many("a", EVENTS)
        made = log.stage("w", 3, "r")
        made.add("b", b"row")
        log.commit("w", 3, "r", [made.close().stage])
    ruin(tmp_path / name, 30)
    assert stored(tmp_path, "a") == EVENTS
    with TopicLog(tmp_path, small()) as log:
        assert any("made anew" in note for note in log.report.notes)
        assert log.commit("w", 3, "r", []).repeated
        assert log.append("a", b"more") == 6
    with TopicLog(tmp_path, small()) as log:
        assert not log.report.notes


@pytest.mark.parametrize("how", ["ruined", "gone"])
@pytest.mark.parametrize("clean", [True, False])
def test_without_any_checkpoint_the_log_is_rebuilt_from_segments_and_journal(
    tmp_path: Path, how: str, clean: bool
) -> None:
    log = TopicLog(tmp_path, small())
    log.create("o", level="os")
    given = [log.append("o", b"%d" % i) for i in range(20)]
    for i in range(100):
        log.append("a", b"%03d" % i * 20)
        log.append("deep/b", b"%d" % i)
        if i == 60:
            log.core.keeper.sync()
            log.core.keeper.checkpoint()
    log.close() if clean else crash(log)
    for name in ("checkpoint", "checkpoint.copy"):
        if how == "gone":
            (tmp_path / name).unlink()
        else:
            ruin(tmp_path / name, 20)
    assert stored(tmp_path, "a") == [b"%03d" % i * 20 for i in range(100)]
    with TopicLog(tmp_path, small()) as log:
        assert any("no checkpoint" in note for note in log.report.notes)
        assert events_of(log.reader().topic("deep/b")) == [b"%d" % i for i in range(100)]
        assert log.append("a", b"more") == 100
        assert log.append("o", b"x") > max(given)
        with pytest.raises(HoleError):
            log.reader().topic("o").read(20)
    assert stored(tmp_path, "a")[100] == b"more"


def test_a_damaged_record_does_not_end_a_rebuilt_topic(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append_many("a", EVENTS)
    (segment,) = (tmp_path / "topics").rglob("*.seg")
    ruin(segment, HEADER_BYTES + 30, 4)
    for name in ("checkpoint", "checkpoint.copy"):
        (tmp_path / name).unlink()
    for journal in (tmp_path / "journal").iterdir():
        journal.unlink()
    with TopicLog(tmp_path, small()) as log:
        assert log.append("a", b"more") == 6
        topic = log.reader().topic("a")
        assert events_of(topic, 1) == [*EVENTS[1:], b"more"]
        with pytest.raises(LogCorrupt):
            topic.read(0)


def test_a_journal_file_that_stood_ready_before_a_failure_does_not_hide_later_commits(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk, journal_bytes=1 << 14))
    log.append("a", b"0")
    log.core.keeper.offer()
    disk.only = "journal"
    disk.fail["fdatasync"] = (1, EIO)
    log.append("a", b"1")
    disk.fail.clear()
    events = [b"%d" % i for i in range(100)]
    for event in events[2:]:
        log.append("a", event)
        if event == b"5":
            log.core.keeper.offer()
    crash(log)
    assert stored(tmp_path, "a") == events


def test_a_journal_file_that_failed_is_not_used_again(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("a", b"0")
    failed = disk.paths[log.core.commits.current]
    disk.only = "journal"
    disk.fail["pwrite"] = (1, EIO)
    log.append("a", b"1")
    log.core.keeper.care()
    assert not Path(failed).exists()
    log.close()
    assert stored(tmp_path, "a") == [b"0", b"1"]


def test_a_topic_that_was_never_committed_leaves_nothing_to_the_next_one_with_its_number(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    log.append("a", b"1")
    begun = log.core.topic("TST", "begun")
    begun.make_room(100)
    (tmp_path / "topics" / "00000001" / "00000000000000000003.seg").write_bytes(b"of a commit that failed")
    crash(log)
    log = TopicLog(tmp_path, small())
    events = [b"%d" % i * 100 for i in range(50)]
    log.append_many("other", events)
    assert events_of(log.reader().topic("other")) == events
    crash(log)
    for path in tmp_path.glob("checkpoint*"):
        path.unlink()
    with TopicLog(tmp_path, small()) as log:
        assert sorted(name for _, name in log.core.topics) == ["a", "other"]
        assert events_of(log.reader().topic("other")) == events


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_topic_whose_birth_is_in_a_ruined_last_commit_is_kept_with_its_events(tmp_path: Path, rebooted: bool) -> None:
    log = TopicLog(tmp_path, small())
    log.append("a", b"1")
    log.append("b", b"1")
    crash(log)
    (journal,) = [path for path in (tmp_path / "journal").iterdir() if any(path.read_bytes()[:8])]
    ruin(journal, frames(journal)[-1] + 40, 200)
    if rebooted:
        reboot(tmp_path)
    assert stored(tmp_path, "b") == [b"1"]
    with TopicLog(tmp_path, small()) as log:
        assert ("b", 0, 0) in log.report.kept
        assert log.append("b", b"2") == 1
    assert stored(tmp_path, "a") == [b"1"]
    assert stored(tmp_path, "b") == [b"1", b"2"]
