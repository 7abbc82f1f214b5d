"""A writer to be killed: appends numbered events, and says on stdout which ones were acknowledged.

With `convert` its segments become Parquet files as soon as they are full, and it looks after its indexes without
a pause. With `many` its events are small and go to many topics, so that they are copied before their commit. With
`staged` it commits stages, which become segments, between appends.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys

from echomesh.events import Event
from echomesh.log import AsyncTopicLog, LogOptions, upkeep

TOPICS = 3
MANY = 200


def event(number: int, size: int) -> bytes:
    return Event(type="t", source="/s", id=str(number), data="x" * size, time=None).encode()


def number_of(encoded: bytes) -> int:
    """The number of an event."""
    return int(Event.decode(encoded).id)


def topics_of(options: list[str]) -> int:
    """How many topics such a writer has."""
    return MANY if "many" in options else TOPICS


async def commit(log: AsyncTopicLog, start: int) -> int:
    """Commits two stages of each topic at once; the number behind the last event in them."""
    rows, stages = TOPICS * 20, []
    for part in range(2):
        for topic in range(TOPICS):
            stage = await log.stage("w", start, "r", part)
            for number in range(start + part * rows + topic, start + (part + 1) * rows, TOPICS):
                await stage.add(f"t{number % TOPICS}", event(number, 200))
            stages.append((await stage.close()).stage)
    done = await log.commit("w", start, "r", stages)
    for number in range(start, start + 2 * rows):
        first, _ = done.offsets["TST", f"t{number % TOPICS}"]
        os.write(1, b"%d %d\n" % (number, first + (number - start) // TOPICS))
    return start + 2 * rows


async def main(directory: str, start: int, choices: list[str]) -> None:
    convert, many, topics = "convert" in choices, "many" in choices, topics_of(choices)
    options = LogOptions(
        segment_bytes=1 << 16,
        journal_bytes=1 << 18,
        sync_interval_s=0.02,
        duplicate_bytes=0,
        parquet_after_s=0.0 if convert else None,
        adopt_bytes=0,
    )
    if convert:
        importlib.import_module("echomesh.log.parquet")  # PyArrow takes longer to load than the process lives
        upkeep.FIRST_S = upkeep.ROUND_S = 0.001  # type: ignore[misc]
    log = AsyncTopicLog(directory, options)
    number = start
    assert not log.core.report.corrupt, log.core.report
    os.write(1, b"open\n")

    async def one(mine: int) -> None:
        size = 20 if mine % 50 or many else 70_000
        offset = await log.append(f"t{mine % topics}", event(mine, size))
        os.write(1, b"%d %d\n" % (mine, offset))

    while "staged" in choices:
        await asyncio.gather(*(one(number + i) for i in range(TOPICS * 3)))
        number = await commit(log, number + TOPICS * 3)
    tasks: set[asyncio.Task[None]] = set()
    while True:
        while len(tasks) < (256 if many else 32):
            tasks.add(asyncio.ensure_future(one(number)))
            number += 1
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
