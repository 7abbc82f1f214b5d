"""A writer to be killed: appends numbered events, and says on stdout which ones were acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys

from echomesh.log import AsyncTopicLog, LogOptions

TOPICS = 3


async def main(directory: str, start: int) -> None:
    options = LogOptions(segment_bytes=1 << 16, journal_bytes=1 << 18, sync_interval_s=0.02, duplicate_bytes=0)
    log = AsyncTopicLog(directory, options)
    number = start
    os.write(1, b"open\n")

    async def one(mine: int) -> None:
        size = 20 if mine % 50 else 70_000
        offset = await log.append(f"t{mine % TOPICS}", b"%d:" % mine + b"x" * size)
        os.write(1, b"%d %d\n" % (mine, offset))

    tasks: set[asyncio.Task[None]] = set()
    while True:
        while len(tasks) < 32:
            tasks.add(asyncio.ensure_future(one(number)))
            number += 1
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
