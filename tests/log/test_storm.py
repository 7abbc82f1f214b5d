"""An event loop that appends to many topics and commits stages, on a disk that fails now and then."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from echomesh.errors import DiskFull, LogReadOnly
from echomesh.log import AsyncTopicLog, LogReader, TopicLog
from tests.log.storm_support import Promises, Unsteady, event
from tests.log.support import small
from tests.support.counts import count

TOPICS = [f"t{i}" for i in range(12)]


class Storm(Promises):
    """Tasks that append, some of them several events at once, and one that commits stages."""

    def __init__(self, log: AsyncTopicLog, seed: int, rounds: int) -> None:
        super().__init__()
        self.log = log
        self.seed = seed
        self.rounds = rounds

    async def run(self) -> None:
        await asyncio.gather(*(self.append(who) for who in range(20)), self.commit())

    async def append(self, who: int) -> None:
        chosen = random.Random(self.seed * 100 + who)
        for number in range(self.rounds):
            topic = chosen.choice(TOPICS)
            events = [event(who, f"{number}.{i}", chosen.choice([5, 50, 900])) for i in range(chosen.choice([1, 1, 4]))]
            try:
                if len(events) == 1:
                    self.keep(topic, await self.log.append(topic, events[0]), events[0])
                else:
                    for offset, encoded in zip(await self.log.append_many(topic, events), events, strict=True):
                        self.keep(topic, offset, encoded)
            except DiskFull:
                continue
            except LogReadOnly:
                return

    async def commit(self) -> None:
        chosen = random.Random(self.seed * 100 + 99)
        for epoch in range(self.rounds // 3):
            rows: dict[str, list[bytes]] = {}
            try:
                stage = await self.log.stage("w", epoch, "r")
                for row in range(chosen.choice([1, 5, 40])):
                    topic, encoded = chosen.choice(TOPICS), event("staged", f"{epoch}.{row}", chosen.choice([5, 200]))
                    await stage.add(topic, encoded)
                    rows.setdefault(topic, []).append(encoded)
                done = await self.log.commit("w", epoch, "r", [(await stage.close()).stage])
            except DiskFull:
                continue
            except LogReadOnly:
                return
            for (_, topic), (first, _) in done.offsets.items():
                for i, encoded in enumerate(rows[topic]):
                    self.keep(topic, first + i, encoded)


async def storm(directory: Path, seed: int, chance: float) -> Storm:
    disk = Unsteady(seed, 0.0)
    options = small(disk, background=True, sync_interval_s=0.02, duplicate_bytes=1 << 20)
    async with AsyncTopicLog(directory, options) as log:
        await log.append(TOPICS[0], event("first", 0, 1))
        disk.chance = chance
        made = Storm(log, seed, 30)
        await made.run()
        disk.chance = 0.0
        with log.reader() as reader:
            made.check(reader)
    return made


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chance", [0.0, 0.003], ids=["steady", "unsteady"])
def test_what_an_event_loop_was_told_is_there_once_whatever_the_disk_does(shm_dir: Path, chance: float) -> None:
    for seed in range(count(3, 300)):
        directory = shm_dir / str(seed)
        made = asyncio.run(storm(directory, seed, chance))
        assert len(made.acknowledged) > 10
        with LogReader(directory) as reader:
            made.check(reader)
        with TopicLog(directory, small()) as again, again.reader() as reader:
            assert not again.report.corrupt
            made.check(reader)
