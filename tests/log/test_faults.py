"""A disk that fails: no false acknowledgement, and reads go on."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from echomesh.errors import DiskFull, LogError, LogReadOnly
from echomesh.log import LogReader, TopicLog
from tests.log.support import EIO, ENOSPC, FOREVER, FaultyStorage, crash, small, stored


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
@pytest.mark.parametrize("where", ["journal", "topics"])
def test_after_one_failed_write_or_sync_all_goes_to_a_new_journal_file(tmp_path: Path, call: str, where: str) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    events = [b"%d" % i for i in range(10)]
    log.append_many("a", events[:5])
    before = log.core.commits.sequence
    disk.only = where
    disk.fail[call] = (1, EIO)
    if (call, where) == ("fdatasync", "topics"):
        events[5] = b"large" * 20000  # only large events sync their segment in a commit
    assert log.append("a", events[5]) == 5
    assert disk.fail[call][0] == 0
    assert log.core.commits.sequence > before
    log.append_many("a", events[6:])
    crash(log)
    # The abandoned file may hold anything: everything is in the new one.
    assert stored(tmp_path, "a") == events
    with TopicLog(tmp_path, small()) as again:
        assert again.append("a", b"more") == 10


LARGE = [b"%03d" % i * 400 for i in range(100)]  # one frame, whose journal is written before its segments


@pytest.mark.parametrize(("call", "where"), [("fdatasync", "journal"), ("pwrite", "journal"), ("pwrite", "topics")])
def test_a_large_frame_that_fails_once_is_made_good(tmp_path: Path, call: str, where: str) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk, segment_bytes=1 << 20, journal_bytes=1 << 20))
    log.append("a", b"first")
    disk.only = where
    disk.fail[call] = (1, EIO)
    assert log.append_many("a", LARGE) == list(range(1, 101))
    assert disk.fail[call][0] == 0
    assert stored(tmp_path, "a") == [b"first", *LARGE]
    crash(log)
    assert stored(tmp_path, "a") == [b"first", *LARGE]


def test_a_large_frame_that_is_refused_by_its_segment_does_not_stay_in_the_journal(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk, segment_bytes=1 << 20, journal_bytes=1 << 20))
    log.append("a", b"first")
    disk.only, disk.fail["pwrite"] = "topics", (1, ENOSPC)
    with pytest.raises(DiskFull):
        log.append_many("a", LARGE)
    assert log.append("a", b"second") == 1
    crash(log)
    assert stored(tmp_path, "a") == [b"first", b"second"]
    with TopicLog(tmp_path, small()) as again:
        assert again.append("a", b"third") == 2
    assert stored(tmp_path, "a") == [b"first", b"second", b"third"]


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
def test_when_the_disk_fails_for_good_appends_are_refused_and_reads_go_on(tmp_path: Path, call: str) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append_many("a", [b"1", b"2"])
    disk.fail[call] = (FOREVER, EIO)
    for _ in range(3):
        with pytest.raises(LogReadOnly) as caught:
            log.append("a", b"3")
        assert "EIO" in str(caught.value)
    assert stored(tmp_path, "a") == [b"1", b"2"]
    crash(log)
    disk.fail.clear()
    with TopicLog(tmp_path, small()) as again:
        assert again.append("a", b"4") in (2, 3)
    assert stored(tmp_path, "a")[:2] == [b"1", b"2"]


@pytest.mark.parametrize(("code", "expected"), [(ENOSPC, DiskFull), (EIO, LogReadOnly)])
def test_a_disk_that_fails_while_the_log_is_closed_says_so_and_nothing_is_lost(
    tmp_path: Path, code: int, expected: type[LogError]
) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append_many("a", [b"1", b"2"])
    disk.only, disk.fail["create"] = "checkpoint", (FOREVER, code)
    with pytest.raises(expected, match=str(tmp_path)):
        log.close()
    with TopicLog(tmp_path, small()) as again:
        assert again.append("a", b"3") == 2
    assert stored(tmp_path, "a") == [b"1", b"2", b"3"]


def test_a_failed_sync_of_the_segments_writes_them_again(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append_many("a", [b"1", b"2"])
    disk.fail["sync_all"] = (1, EIO)
    log.core.keeper.care()
    assert log.core.keeper.synced == log.core.commits.last_number
    disk.fail["sync_all"] = (FOREVER, EIO)
    log.append("a", b"3")
    with pytest.raises(OSError, match="Input/output"):
        log.core.keeper.care()
    crash(log)
    assert stored(tmp_path, "a") == [b"1", b"2", b"3"]


def test_a_full_disk_refuses_appends_until_there_is_room(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("a", b"1")
    for call, where in [("allocate", ""), ("pwrite", "topics"), ("pwrite", "journal")]:
        disk.only = where
        disk.fail[call] = (FOREVER, ENOSPC)
        with pytest.raises(DiskFull):
            log.append_many("a", [b"x" * 1000] * 5)
        assert stored(tmp_path, "a")[0] == b"1"
        disk.fail.clear()
    assert log.append("a", b"2") == 1
    crash(log)
    assert stored(tmp_path, "a") == [b"1", b"2"]


def test_a_topic_whose_birth_was_lost_with_a_failed_commit_is_born_again(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("a", b"1")
    disk.only = "journal"
    disk.fail["pwrite"] = (1, ENOSPC)
    with pytest.raises(DiskFull):
        log.append("b", b"lost")
    assert log.append("b", b"1") == 0
    disk.fail["pwrite"] = (1, ENOSPC)
    with pytest.raises(DiskFull):
        log.create("o", level="os")
    assert log.append("o", b"1") == 0
    stage = log.stage("w", 0, "r")
    stage.add("c", b"1")
    name = stage.close().stage
    disk.fail["pwrite"] = (1, ENOSPC)
    with pytest.raises(DiskFull):
        log.commit("w", 0, "r", [name])
    assert log.commit("w", 0, "r", [name]).rows == 1
    crash(log)
    for topic in ("a", "b", "c", "o"):
        assert stored(tmp_path, topic) == [b"1"]
    with TopicLog(tmp_path, small()) as again:
        assert again.append("c", b"2") == 1


def fill(log: TopicLog, topic: str) -> list[bytes]:
    """Appends until the disk is full; what was acknowledged."""
    events: list[bytes] = []
    try:
        while len(events) < 10_000:
            log.append(topic, event := b"%05d" % len(events) * 100)
            events.append(event)
    except DiskFull:
        return events
    raise AssertionError("never full")


@pytest.mark.parametrize("background", [False, True])
def test_a_small_file_system_gets_full_and_has_room_again(tmpfs: Path, background: bool) -> None:
    ballast = tmpfs / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    log = TopicLog(tmpfs, small(background=background, sync_interval_s=0.05, segment_bytes=1 << 18))
    events = fill(log, "a")
    assert len(events) > 1000
    with pytest.raises(DiskFull):
        log.append_many("b", [b"x" * 60_000] * 10)
    assert stored(tmpfs, "a") == events
    ballast.unlink()
    assert log.append("a", b"room") == len(events)
    log.close()
    assert stored(tmpfs, "a") == [*events, b"room"]


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = TopicLog(tmp_path)
    log.append("a", b"1")
    log.close()
    log.close()
    with pytest.raises(LogError):
        log.append("a", b"2")
    with LogReader(tmp_path) as reader:
        assert not reader.view.live


def broken(path: str, flags: int = os.O_RDWR) -> Callable[[int], None]:
    """Puts another file behind a descriptor, so that the kernel itself refuses."""

    def replace(handle: int) -> None:
        other = os.open(path, flags)
        os.dup2(other, handle)
        os.close(other)

    return replace


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (broken("/dev/null"), "a sync that fails (EINVAL)"),
        (broken("/proc/self/mem"), "a write that fails (EIO)"),
        (broken("/dev/null", os.O_RDONLY), "a write that fails (EBADF)"),
    ],
)
def test_a_descriptor_that_fails_is_left_for_a_new_journal_file(
    tmp_path: Path, spoil: Callable[[int], None], name: str
) -> None:
    log = TopicLog(tmp_path, small())
    log.append("a", b"0")
    before = log.core.commits.sequence
    spoil(log.core.commits.current)
    assert log.append("a", b"1") == 1, name
    assert log.core.commits.sequence > before
    log.append("a", b"2")
    crash(log)
    assert stored(tmp_path, "a") == [b"0", b"1", b"2"]


def test_a_descriptor_without_room_is_a_full_disk(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    log.append("a", b"0")
    broken("/dev/full")(log.core.commits.current)
    with pytest.raises(DiskFull):
        log.append("a", b"1")
    assert stored(tmp_path, "a") == [b"0"]
    crash(log)


def test_a_limit_of_file_sizes_refuses_appends_and_reads_go_on(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    log.append("a", b"0")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))
    try:
        with pytest.raises(LogReadOnly, match="EFBIG"):
            log.append("a", b"1")
        assert stored(tmp_path, "a") == [b"0"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    crash(log)
    with TopicLog(tmp_path, small()) as again:
        assert again.append("a", b"1") in (1, 2)
