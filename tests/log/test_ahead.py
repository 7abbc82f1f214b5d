"""Records that go to their segments before their commit, while an event loop still adds to the frame."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import DiskFull
from echomesh.log import AsyncTopicLog, LogReader, TopicLog
from tests.log.support import events_of, small
from tests.log.test_maps import broken
from tests.support.counts import count

TOPICS = [f"sensors/{i}" for i in range(200)]
OPTIONS: dict[str, Any] = {"segment_bytes": 1 << 20, "journal_bytes": 1 << 22, "open_segments": 512}


def event(topic: str, number: int) -> bytes:
    """Neither equal to another one nor of the same length."""
    return f"{topic} {number} ".encode() * (1 + number % 5)


async def busy(log: AsyncTopicLog, topic: str, first: int, behind: int) -> None:
    """Appends as a client does that waits for each answer."""
    for number in range(first, behind):
        assert await log.append(topic, event(topic, number)) == number


def check(directory: Path, behind: int) -> None:
    with LogReader(directory) as log:
        for topic in TOPICS:
            assert events_of(log.topic(topic)) == [event(topic, number) for number in range(behind)]


def test_what_was_copied_before_its_commit_is_what_was_appended(tmp_path: Path) -> None:
    rounds = count(30, 500)

    async def run() -> int:
        async with AsyncTopicLog(tmp_path, small(background=True, sync_interval_s=0.05, **OPTIONS)) as log:
            done = 0
            # Whether the committing thread is quick enough to copy something is a matter of luck on a busy machine.
            while done < rounds or (not log.core.commits.copied_ahead and done < 100 * rounds):
                await asyncio.gather(*(busy(log, topic, done, done + rounds) for topic in TOPICS))
                done += rounds
            assert log.core.commits.copied_ahead, "nothing was copied ahead"
            check(tmp_path, done)
            return done

    done = asyncio.run(run())
    check(tmp_path, done)
    with TopicLog(tmp_path, small(**OPTIONS)) as again:
        assert not again.report.corrupt


def test_a_commit_that_fails_takes_back_what_was_copied_before_it(tmp_path: Path) -> None:
    async def refused(log: AsyncTopicLog, topic: str) -> bool:
        try:
            await busy(log, topic, 20, 40)
        except DiskFull:
            return True
        return False

    async def run() -> None:
        async with AsyncTopicLog(tmp_path, small(**OPTIONS)) as log:
            await asyncio.gather(*(busy(log, topic, 0, 20) for topic in TOPICS))
            with broken(log, TOPICS[150:152], "/dev/full") as mend:
                assert any(await asyncio.gather(*(refused(log, topic) for topic in TOPICS)))
                mend()
            ends = {topic: log.core.topics["TST", topic].next_offset for topic in TOPICS}
            await asyncio.gather(*(busy(log, topic, ends[topic], 60) for topic in TOPICS))

    asyncio.run(run())
    check(tmp_path, 60)


def test_a_journal_that_can_not_be_written_is_made_good_with_what_was_copied_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with AsyncTopicLog(tmp_path, small(**OPTIONS)) as log:
            await asyncio.gather(*(busy(log, topic, 0, 20) for topic in TOPICS))
            handle = log.core.commits.current
            kept = os.dup(handle)
            nowhere = os.open("/proc/self/mem", os.O_RDWR)
            os.dup2(nowhere, handle)
            os.close(nowhere)
            turned: list[int] = []
            take = log.core.journal.take

            def then_well(needed: int, *, fresh: bool = False) -> tuple[int, int, int]:
                turned.append(needed)
                os.dup2(kept, handle)
                return take(needed, fresh=fresh)

            monkeypatch.setattr(log.core.journal, "take", then_well)
            await asyncio.gather(*(busy(log, topic, 20, 40) for topic in TOPICS))
            os.close(kept)
            assert len(turned) == 1

    asyncio.run(run())
    check(tmp_path, 40)
