"""Event loops follow topics without a polling loop, and without a thread for each reader."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from time import monotonic

from echomesh.log import AsyncTopicLog, LogReader, TopicLog
from echomesh.log.tail import Watcher
from tests.log.support import crash


async def collect(directory: Path, topic: str, wanted: int) -> list[bytes]:
    found: list[bytes] = []
    with LogReader(directory) as log:
        async for records in log.topic(topic).tail(0):
            found += records.events()
            if len(found) >= wanted:
                break
    return found


def test_what_is_appended_later_reaches_an_async_reader_at_once(tmp_path: Path) -> None:
    async def run() -> list[bytes]:
        async with AsyncTopicLog(tmp_path) as log:
            await log.append("a", b"0")
            reading = asyncio.create_task(collect(tmp_path, "a", 50))
            for i in range(1, 50):
                await asyncio.sleep(0.001)
                await log.append("a", b"%d" % i)
            return await asyncio.wait_for(reading, 5)

    assert asyncio.run(run()) == [b"%d" % i for i in range(50)]


def test_many_readers_of_a_process_share_one_thread(tmp_path: Path) -> None:
    async def run() -> int:
        before = set(threading.enumerate())
        async with AsyncTopicLog(tmp_path) as log:
            await asyncio.gather(*(log.append(f"t{i}", b"0") for i in range(20)))
            readers = [asyncio.create_task(collect(tmp_path, f"t{i % 20}", 2)) for i in range(40)]
            await asyncio.sleep(0.1)
            threads = [thread.name for thread in threading.enumerate() if thread not in before].count(
                "echomesh-log-tail"
            )
            await asyncio.gather(*(log.append(f"t{i}", b"1") for i in range(20)))
            assert await asyncio.wait_for(asyncio.gather(*readers), 5) == [[b"0", b"1"]] * 40
            return threads

    assert asyncio.run(run()) == 1


def test_one_reader_follows_several_topics(tmp_path: Path) -> None:
    async def run() -> list[tuple[str, list[bytes]]]:
        found = []
        async with AsyncTopicLog(tmp_path) as log:
            await asyncio.gather(log.append("a", b"1"), log.append("b", b"2"))
            asyncio.get_running_loop().call_later(0.05, log.append, "b", b"3")
            async for topic, records in log.reader().tail({"a": 0, "b": 0}, timeout=0.5):
                found.append((topic, records.events()))
        return found

    assert asyncio.run(run()) == [("a", [b"1"]), ("b", [b"2"]), ("b", [b"3"])]


def test_nothing_new_ends_the_tail_when_its_time_is_over(tmp_path: Path) -> None:
    async def run() -> float:
        async with AsyncTopicLog(tmp_path) as log:
            await log.append("a", b"1")
            topic, began = log.reader().topic("a"), monotonic()
            assert [records.events() async for records in topic.tail(0, timeout=0.2)] == [[b"1"]]
            assert not await topic.wait_async(1, 0.05)
            return monotonic() - began

    assert 0.2 < asyncio.run(run()) < 2


def test_a_tail_goes_on_over_a_crash_and_the_next_writer(tmp_path: Path) -> None:
    first = TopicLog(tmp_path)
    first.append("a", b"0")

    def again() -> None:
        with TopicLog(tmp_path) as second:
            second.append("a", b"1")

    async def run() -> list[bytes]:
        reading = asyncio.create_task(collect(tmp_path, "a", 2))
        await asyncio.sleep(0.1)
        crash(first)
        await asyncio.to_thread(again)
        return await asyncio.wait_for(reading, 5)

    assert asyncio.run(run()) == [b"0", b"1"]


def test_a_cancelled_reader_leaves_nothing_behind(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncTopicLog(tmp_path) as log:
            await log.append("a", b"0")
            reading = asyncio.create_task(collect(tmp_path, "a", 2))
            await asyncio.sleep(0.05)
            reading.cancel()
            await asyncio.wait([reading])
            assert all(not watcher.waiters for watcher in Watcher._running.values())

    asyncio.run(run())
