"""Frames for many segments are copied through maps: what a failing disk does to that."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from echomesh.errors import DiskFull, LogReadOnly
from echomesh.log import AsyncTopicLog, TopicLog
from tests.log.support import crash, small, stored

TOPICS = [f"t{i}" for i in range(20)]
_PUNCH = 1 | 2  # keep the size, make a hole


def commit(log: TopicLog, event: bytes) -> None:
    """One event for each topic, in one frame."""
    core, ticket = log.core, 0
    for name in TOPICS:
        topic = core.topic("TST", name)
        assert core.commits.add(topic, event, 1) >= 0
        ticket = topic.ticket
    core.commits.wait(ticket)
    core.check(ticket)


def mapped() -> int:
    """How many segments are mapped."""
    return sum(".seg" in line for line in Path("/proc/self/maps").read_text().splitlines())


def everywhere(directory: Path, events: list[bytes]) -> None:
    for topic in TOPICS:
        assert stored(directory, topic) == events


@contextmanager
def broken(
    log: TopicLog | AsyncTopicLog, names: list[str], path: str, flags: int = os.O_RDWR
) -> Iterator[Callable[[], None]]:
    """Another file stands behind the segments of these topics; the function puts them right again."""
    kept: dict[int, int] = {}

    def mend() -> None:
        for handle, copy in kept.items():
            os.dup2(copy, handle)

    for name in names:
        topic = log.core.topics["TST", name]
        kept[topic.fd] = os.dup(topic.fd)
        other = os.open(path, flags)
        os.dup2(other, topic.fd)
        os.close(other)
        topic.fd = topic.fd  # another turn: what is mapped is not the file any more
    yield mend
    for copy in kept.values():
        os.close(copy)


def test_a_frame_for_many_topics_goes_through_maps(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    before = mapped()
    commit(log, b"1")
    assert mapped() - before == len(TOPICS)
    commit(log, b"2" * 1000)
    commit(log, b"3" * 5000)  # too large for that
    crash(log)
    everywhere(tmp_path, [b"1", b"2" * 1000, b"3" * 5000])


@pytest.mark.parametrize("which", [slice(None), slice(0, 1), slice(7, 8), slice(19, 20)], ids=["all", "0", "7", "19"])
def test_a_segment_without_room_refuses_the_frame_and_what_is_there_stays(tmp_path: Path, which: slice) -> None:
    log = TopicLog(tmp_path, small())
    commit(log, b"1")
    with broken(log, TOPICS[which], "/dev/full") as mend:
        with pytest.raises(DiskFull):
            commit(log, b"2")
        everywhere(tmp_path, [b"1"])
        mend()
    commit(log, b"3")
    commit(log, b"4")
    everywhere(tmp_path, [b"1", b"3", b"4"])
    crash(log)
    everywhere(tmp_path, [b"1", b"3", b"4"])
    with TopicLog(tmp_path, small()) as log:
        commit(log, b"5")
    everywhere(tmp_path, [b"1", b"3", b"4", b"5"])


def test_a_segment_that_can_not_be_written_any_more_refuses_appends_and_reads_go_on(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    commit(log, b"1")
    with broken(log, TOPICS[3:5], "/proc/self/mem"):
        for _ in range(2):
            with pytest.raises(LogReadOnly, match="EIO"):
                commit(log, b"2")
        everywhere(tmp_path, [b"1"])
        crash(log)
    with TopicLog(tmp_path, small()) as log:
        assert not log.report.corrupt
        commit(log, b"3")
    for topic in TOPICS:
        assert stored(tmp_path, topic)[0] == b"1"
        assert stored(tmp_path, topic)[-1] == b"3"


def test_a_write_to_a_segment_that_fails_once_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TopicLog(tmp_path, small())
    commit(log, b"1")
    with broken(log, TOPICS[3:5], "/proc/self/mem") as mend:
        turned: list[int] = []
        take = log.core.journal.take

        def then_well(needed: int, *, fresh: bool = False) -> tuple[int, int, int]:
            turned.append(needed)
            mend()
            return take(needed, fresh=fresh)

        monkeypatch.setattr(log.core.journal, "take", then_well)
        commit(log, b"2")
        assert len(turned) == 1
    everywhere(tmp_path, [b"1", b"2"])
    crash(log)
    everywhere(tmp_path, [b"1", b"2"])


def test_a_segment_that_was_cut_short_under_its_map_is_written_all_the_same(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    commit(log, b"1")
    for path in tmp_path.rglob("*.seg"):
        os.truncate(path, 0)
    commit(log, b"2")
    crash(log)
    with TopicLog(tmp_path, small()) as log:
        assert log.report.replayed_frames == 2
        commit(log, b"3")
    everywhere(tmp_path, [b"1", b"2", b"3"])


def punch(path: Path, start: int) -> None:
    """Takes the blocks of a file from there on."""
    handle = os.open(path, os.O_RDWR)
    size = os.fstat(handle).st_size
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.fallocate(handle, _PUNCH, ctypes.c_long(start), ctypes.c_long(size - start)) == 0
    os.close(handle)


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def test_a_page_that_can_not_be_had_is_a_full_disk_and_no_signal(tmpfs: Path) -> None:
    log = TopicLog(tmpfs, small(segment_bytes=1 << 20))
    done: list[bytes] = []
    for size in (5000, 2000, 2000):
        commit(log, event := b"%d" % len(done) * size)
        done.append(event)
    topic = log.core.topics["TST", TOPICS[-1]]
    written = -(-topic.position // 4096) * 4096
    assert written + 4096 <= topic.limit, "a page that is reserved and not written yet"
    for path in tmpfs.rglob("*.seg"):
        punch(path, written)
    fill_up(tmpfs / "ballast")
    while topic.position + 2100 <= written:
        commit(log, event := b"%d" % len(done) * 2000)
        done.append(event)
    with pytest.raises(DiskFull):
        commit(log, b"too much" * 250)
    everywhere(tmpfs, done)
    (tmpfs / "ballast").unlink()
    commit(log, b"room")
    everywhere(tmpfs, [*done, b"room"])
    crash(log)
    everywhere(tmpfs, [*done, b"room"])


def fill(log: TopicLog) -> list[bytes]:
    """Commits until the disk is full; what was acknowledged, and then the one that was not."""
    for number in range(1000):
        event = b"%04d" % number * 50
        try:
            commit(log, event)
        except DiskFull:
            return [b"%04d" % i * 50 for i in range(number + 1)]
        if number % 10 == 0:
            log.core.keeper.sync()
    raise AssertionError("never full")


def test_a_small_file_system_gets_full_by_frames_of_many_topics_and_has_room_again(tmpfs: Path) -> None:
    ballast = tmpfs / "ballast"
    ballast.write_bytes(bytes(1 << 19))
    log = TopicLog(tmpfs, small(segment_bytes=1 << 16))
    *done, refused = fill(log)
    assert len(done) > 50
    everywhere(tmpfs, done)
    ballast.unlink()
    commit(log, b"room")
    log.close()
    for topic in TOPICS:
        # For some topics there was still room, so it was in the frame and came with the next commit.
        assert [event for event in stored(tmpfs, topic) if event != refused] == [*done, b"room"]


def test_an_event_loop_that_fills_a_small_file_system_loses_nothing_that_was_acknowledged(tmpfs: Path) -> None:
    ballast = tmpfs / "ballast"
    ballast.write_bytes(bytes(1 << 19))
    done: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}

    async def one(log: AsyncTopicLog, topic: str, event: bytes) -> bool:
        try:
            offset = await log.append(topic, event)
        except DiskFull:
            return False
        assert offset == len(done[topic])
        done[topic].append(event)
        return True

    async def run() -> None:
        async with AsyncTopicLog(tmpfs, small(background=True, sync_interval_s=0.05, segment_bytes=1 << 16)) as log:
            full = number = 0
            while full < 3 and number < 5000:
                event = b"%05d" % number * 50
                full += not all(await asyncio.gather(*(one(log, topic, event) for topic in TOPICS)))
                number += 1
            assert full == 3
            ballast.unlink()
            assert all(await asyncio.gather(*(one(log, topic, b"room") for topic in TOPICS)))

    asyncio.run(run())
    for topic in TOPICS:
        assert len(done[topic]) > 20
        assert stored(tmpfs, topic) == done[topic]
