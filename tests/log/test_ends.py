"""While a topic is committed to: others see the end of one commit, and its frames stay while they are needed."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest
from typing_extensions import Buffer

from echomesh.log import AsyncTopicLog, LogOptions, TopicLog
from echomesh.log.layout import HEADER_BYTES
from tests.log.support import EIO, FaultyStorage, crash, small, stored
from tests.support.counts import count

EVENT = b"x" * 100
RECORD_BYTES = 128


class Onlooker(threading.Thread):
    """Looks at the ends of topics as a checkpoint does, and counts those that are of no commit."""

    def __init__(self, log: AsyncTopicLog) -> None:
        super().__init__(daemon=True)
        self.topics = list(log.core.topics.values())
        self.stopping = False
        self.looks = self.torn = 0

    def run(self) -> None:
        while not self.stopping:
            for topic in self.topics:
                base, position, offset, _ = topic.done
                self.looks += 1
                self.torn += position - HEADER_BYTES != (offset - base) * RECORD_BYTES


@pytest.mark.slow
def test_a_topic_is_never_seen_with_the_offset_of_one_commit_and_the_position_of_another(shm_dir: Path) -> None:
    async def appends() -> Onlooker:
        async with AsyncTopicLog(shm_dir, LogOptions(duplicate_bytes=0)) as log:
            for number in range(8):
                await log.append(f"t{number}", EVENT)
            onlooker = Onlooker(log)
            onlooker.start()
            until = log.core.commits.last_number + count(5_000, 100_000)

            async def append(number: int) -> None:
                while log.core.commits.last_number < until:
                    await log.append(f"t{number % 8}", EVENT)

            await asyncio.gather(*(append(number) for number in range(64)))
            onlooker.stopping = True
            onlooker.join()
            return onlooker

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        onlooker = asyncio.run(appends())
    finally:
        sys.setswitchinterval(before)
    assert onlooker.looks > 1000
    assert onlooker.torn == 0


class Watched(FaultyStorage):
    """Calls something in the middle of the next write to the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[threading.Thread] = []
        self.waited: list[bool] = []

    def pwrite(self, handle: int, data: Buffer, position: int) -> None:
        if self.meanwhile and "journal" in self.paths[handle] and not self.fail.get("fdatasync", (0, 0))[0]:
            thread = self.meanwhile.pop()
            thread.start()
            thread.join(0.3)
            self.waited.append(thread.is_alive())
        super().pwrite(handle, data, position)


def test_frames_that_are_written_to_a_new_journal_file_are_not_let_go_meanwhile(tmp_path: Path) -> None:
    disk = Watched()
    log = TopicLog(tmp_path, small(disk))
    expected = [b"%d" % number for number in range(20)]
    for event in expected[:-1]:
        log.append("a", event)
    kept = log.core.commits.kept
    keeper = threading.Thread(target=log.core.keeper.sync)
    disk.only, disk.fail["fdatasync"] = "journal", (1, EIO)
    disk.meanwhile.append(keeper)
    log.append("a", expected[-1])
    keeper.join(30)
    assert not keeper.is_alive()
    assert disk.waited == [True], "who lets the frames go waits until they are written"
    assert log.core.commits.kept < kept, "and lets them go then"
    crash(log)
    for segment in tmp_path.rglob("*.seg"):
        segment.write_bytes(b"")
    with TopicLog(tmp_path, small()) as log:
        assert not log.report.corrupt
    assert stored(tmp_path, "a") == expected
