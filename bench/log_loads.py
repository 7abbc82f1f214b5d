"""What the processes of part `log` do. Each function runs alone in one (see `harness.apart`) and returns a figure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import count as counted
from itertools import cycle

import uvloop

from bench.harness.numbered import encoded, halves
from echomesh.log import AsyncTopicLog, LogOptions, LogReader, TopicLog

Ready = Callable[[], None]

_FILL_TOGETHER = 4096
_PACE_SECONDS = 0.005


def fill(ready: Ready, directory: str, topic: str, size: int, most: int, seconds: float) -> int:
    """Appends `most` events, or as many as there is time for; how many there are."""
    batches = together(size, _FILL_TOGETHER)
    ready()
    end = time.perf_counter() + seconds
    number = 0
    with TopicLog(directory, LogOptions(duplicate_bytes=0)) as log:
        while number < most and time.perf_counter() < end:
            number += len(log.append_many(topic, next(batches)[: most - number]))
    return number


def in_flight(ready: Ready, directory: str, seconds: float, size: int, window: int, topics: int) -> float:
    """Appends a second that were answered by `AsyncTopicLog`, with `window` of them in flight, over so many topics."""
    return uvloop.run(_in_flight(ready, directory, seconds, size, window, [f"topic/{i}" for i in range(topics)]))


async def _in_flight(ready: Ready, directory: str, seconds: float, size: int, window: int, topics: list[str]) -> float:
    async with AsyncTopicLog(directory) as log:
        # A topic's first event makes its files: that happens once, and is not what is measured.
        await asyncio.gather(*[log.append(topic, b"first") for topic in topics])
        ready()
        return await _steady(log, topics, seconds, together(size, window // 2))


def together(size: int, count: int) -> Iterator[list[bytes]]:
    """Events of `size` bytes, all different, `count` at once. That is far cheaper than one by one: making them is not
    what is measured.
    """
    head, tail = halves(size)
    lasts = [b"%04x%b" % (number, tail) for number in range(count)]
    for turn in counted():
        first = b"%b%012x" % (head, turn)
        yield [first + last for last in lasts]


async def _steady(log: AsyncTopicLog, topics: list[str], seconds: float, batches: Iterator[list[bytes]]) -> float:
    """Keeps appends in flight, in two halves: one can be encoded while the other is synced.

    Nothing hangs on each future but its result: a callback on each costs the loop more than the append.
    """
    append, clock, names = log.append, time.perf_counter, cycle(topics)
    count = 0
    before: list[asyncio.Future[int]] = []
    start = clock()
    while clock() < start + seconds:
        futures = [append(name, event) for event, name in zip(next(batches), names, strict=False)]
        count += len(futures)
        await _answered(before)
        before = futures
    await _answered(before)
    return count / (clock() - start)


async def _answered(futures: list[asyncio.Future[int]]) -> None:
    if futures:
        await futures[-1]  # they are answered in order
    for future in futures:
        future.result()  # raises for one that failed, or has no answer


def one_at_a_time(ready: Ready, directory: str, seconds: float, size: int) -> float:
    """Appends a second of a thread that waits for each."""
    make = encoded(size)
    with TopicLog(directory) as log:
        log.append("orders", make(0))
        ready()
        start = time.perf_counter()
        end = start + seconds
        number = 1
        while (now := time.perf_counter()) < end:
            log.append("orders", make(number))
            number += 1
        return (number - 1) / (now - start)


def large_and_empty(
    ready: Ready, directory: str, large: str, seconds: float, size: int, window: int, turns: int
) -> list[tuple[float, float]]:
    """Appends a second to a topic that has much, and to one that has next to nothing yet, in turns."""
    return uvloop.run(_large_and_empty(ready, directory, large, seconds, size, window, turns))


async def _large_and_empty(
    ready: Ready, directory: str, large: str, seconds: float, size: int, window: int, turns: int
) -> list[tuple[float, float]]:
    found = []
    batches = together(size, window // 2)
    async with AsyncTopicLog(directory) as log:
        await log.append(large, b"first")  # loads what is known of its last events
        ready()
        for turn in range(turns):
            rates = {}
            empty = f"empty/{turn}"
            await log.append(empty, b"first")
            for topic in (large, empty) if turn % 2 else (empty, large):
                rates[topic] = await _steady(log, [topic], seconds, batches)
            found.append((rates[large], rates[empty]))
    return found


def arrow_scan(ready: Ready, directory: str, topic: str, seconds: float) -> float:
    """Events a second into Arrow record batches, all columns, on one core."""
    from echomesh.log import arrow

    with LogReader(directory) as log:
        found = log.topic(topic)
        for _ in arrow.batches(found, found.earliest):
            pass  # the page cache is warm afterwards
        ready()
        start = time.perf_counter()
        rows = 0
        while (now := time.perf_counter()) < start + seconds or not rows:
            rows += sum(batch.num_rows for batch in arrow.batches(found, found.earliest))
        return rows / (now - start)


def read_round(ready: Ready, directory: str, topic: str, seconds: float) -> float:
    """Events a second of a reader that reads the topic again and again."""
    with LogReader(directory) as log:
        found = log.topic(topic)
        batches = _endless(found.read, found.earliest, found.end)
        for _ in range(64):
            next(batches)
        ready()
        start = time.perf_counter()
        events = 0
        while (now := time.perf_counter()) < start + seconds:
            events += next(batches)
        return events / (now - start)


def _endless(read: Callable[[int], object], first: int, end: int) -> Iterator[int]:
    offset = first
    while True:
        records = read(offset)
        count = len(records)  # type: ignore[arg-type]
        offset += count
        yield count
        if offset >= end:
            offset = first


def paced(ready: Ready, directory: str, seconds: float, per_second: int, size: int) -> float:
    """Appends a second of a writer that wants `per_second` of them, in small groups that wait for their answers."""
    return uvloop.run(_paced(ready, directory, seconds, per_second, size))


async def _paced(ready: Ready, directory: str, seconds: float, per_second: int, size: int) -> float:
    make = encoded(size)
    group = round(per_second * _PACE_SECONDS)
    async with AsyncTopicLog(directory) as log:
        await log.create("paced")
        ready()
        start = time.perf_counter()
        number = 0
        while (now := time.perf_counter()) < start + seconds:
            due = start + number / per_second
            if now < due:
                await asyncio.sleep(due - now)
            await asyncio.gather(*[log.append("paced", make(number + i)) for i in range(group)])
            number += group
        return number / (time.perf_counter() - start)
