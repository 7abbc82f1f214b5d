"""The answers to an event loop's appends behave as futures do, and what waits is bounded."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from echomesh.errors import LogBusy, LogError, LogReadOnly
from echomesh.log import AsyncTopicLog, LogOptions
from tests.log.support import EIO, FOREVER, FaultyStorage, stored


def with_log(
    directory: Path, work: Callable[[AsyncTopicLog], Awaitable[None]], options: LogOptions | None = None
) -> None:
    async def run() -> None:
        async with AsyncTopicLog(directory, options) as log:
            await work(log)

    asyncio.run(asyncio.wait_for(run(), 30))


def test_an_answer_can_be_gathered_waited_for_shielded_and_called_back(tmp_path: Path) -> None:
    async def work(log: AsyncTopicLog) -> None:
        assert await asyncio.gather(*(log.append("a", b"%d" % i) for i in range(2))) == [0, 1]
        assert await asyncio.wait_for(log.append("a", b"2"), 5) == 2
        assert await asyncio.shield(log.append("a", b"3")) == 3
        done, pending = await asyncio.wait([log.append("a", b"4"), log.append("a", b"5")])
        assert sorted(answer.result() for answer in done) == [4, 5]
        assert not pending
        answer = log.append("a", b"6")
        assert asyncio.isfuture(answer)
        assert not answer.done()
        with pytest.raises(asyncio.InvalidStateError):
            answer.result()
        called: list[int] = []
        answer.add_done_callback(lambda found: called.append(found.result()))
        removed = called.clear
        answer.add_done_callback(removed)  # type: ignore[arg-type]
        assert answer.remove_done_callback(removed) == 1  # type: ignore[arg-type]
        assert await answer == 6 == await answer
        assert called == [6]
        assert answer.exception() is None
        assert not answer.cancel()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_append(log, b"%d" % i)) for i in range(7, 300)]
        assert [task.result() for task in tasks] == list(range(7, 300))

    with_log(tmp_path, work)


async def _append(log: AsyncTopicLog, event: bytes) -> int:
    return await log.append("a", event)


def test_who_cancels_does_not_wait_and_harms_nobody_else(tmp_path: Path) -> None:
    async def work(log: AsyncTopicLog) -> None:
        answers = [log.append("a", b"%d" % i) for i in range(100)]
        task = asyncio.create_task(_append(log, b"100"))
        await asyncio.sleep(0)
        assert answers[50].cancel()
        assert answers[50].cancelled()
        assert not answers[50].cancel()
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await task
        with pytest.raises(asyncio.CancelledError):
            await answers[50]
        assert [await answer for i, answer in enumerate(answers) if i != 50] == [i for i in range(100) if i != 50]

    with_log(tmp_path, work)
    assert stored(tmp_path, "a") == [b"%d" % i for i in range(101)]


def test_a_task_goes_on_in_its_own_context_and_as_itself(tmp_path: Path) -> None:
    name: contextvars.ContextVar[int] = contextvars.ContextVar("name")

    async def work(log: AsyncTopicLog) -> None:
        async def one(i: int) -> None:
            name.set(i)
            for _ in range(5):
                await log.append("a", b"x")
                assert name.get() == i
                current = asyncio.current_task()
                assert current is not None
                assert current.get_name() == f"task {i}"

        await asyncio.gather(*(asyncio.create_task(one(i), name=f"task {i}") for i in range(50)))
        assert name.get(None) is None

    with_log(tmp_path, work)


def test_an_error_in_a_task_that_goes_on_is_its_own(tmp_path: Path) -> None:
    async def work(log: AsyncTopicLog) -> None:
        async def bad() -> None:
            await log.append("a", b"x")
            raise ZeroDivisionError

        found = await asyncio.gather(
            *(bad() if i % 2 else _append(log, b"y") for i in range(20)), return_exceptions=True
        )
        assert [isinstance(each, ZeroDivisionError) for each in found] == [bool(i % 2) for i in range(20)]

    with_log(tmp_path, work)


@pytest.mark.parametrize("alone_ns", [0, 1 << 40], ids=["by the thread", "in the loop"])
def test_one_append_at_a_time_is_committed_here_or_there(tmp_path: Path, alone_ns: int) -> None:
    async def work(log: AsyncTopicLog) -> None:
        log.core.commits.alone_ns = alone_ns
        for i in range(200):
            assert await log.append("a", b"%d" % i) == i

    with_log(tmp_path, work)
    assert stored(tmp_path, "a") == [b"%d" % i for i in range(200)]


def test_a_loop_commits_in_place_of_a_thread_that_does_not_come(tmp_path: Path) -> None:
    async def work(log: AsyncTopicLog) -> None:
        assert await log.append("a", b"0") == 0
        log.core.commits.alone_ns = 1 << 40
        log.core.commits.stop()
        await asyncio.to_thread(log._thread.join)
        early = [log.append("a", b"%d" % i) for i in (1, 2)]
        await asyncio.sleep(0.01)
        assert not any(answer.done() for answer in early)
        assert await log.append("a", b"3") == 3
        assert [answer.result() for answer in early] == [1, 2]

    with_log(tmp_path, work)
    assert stored(tmp_path, "a") == [b"%d" % i for i in range(4)]


def test_a_few_behind_many_are_not_kept_waiting_for_as_many(tmp_path: Path) -> None:
    async def work(log: AsyncTopicLog) -> None:
        log.core.commits.alone_ns = 0
        for i in range(0, 1000, 100):
            await asyncio.gather(*(log.append("a", b"x") for _ in range(98)))
            await asyncio.sleep(0.001)
            assert await asyncio.gather(*(log.append("a", b"y") for _ in range(2))) == [i + 98, i + 99]

    with_log(tmp_path, work)


def test_a_single_append_learns_that_the_disk_failed(tmp_path: Path) -> None:
    storage = FaultyStorage()

    async def work(log: AsyncTopicLog) -> None:
        assert await log.append("a", b"0") == 0
        storage.fail["fdatasync"] = (FOREVER, EIO)
        with pytest.raises(LogReadOnly):
            await log.append("a", b"1")
        with pytest.raises(LogReadOnly):
            await log.append_many("a", [b"2", b"3"])
        storage.fail.clear()

    with_log(tmp_path, work, LogOptions(storage=storage))


def test_many_at_once_have_one_answer(tmp_path: Path) -> None:
    options = LogOptions(frame_bytes=8192)

    async def work(log: AsyncTopicLog) -> None:
        events = [b"%d" % i * 50 for i in range(1000)]
        assert await log.append_many("a", []) == []
        first, second = log.append_many("a", events), log.append("a", b"behind")
        assert await first == list(range(1000))
        assert await second == 1000

    with_log(tmp_path, work, options)


def test_more_than_the_line_takes_is_refused_until_there_is_room(tmp_path: Path) -> None:
    options = LogOptions(frame_bytes=4096, line_bytes=20_000)

    async def work(log: AsyncTopicLog) -> None:
        answers: list[asyncio.Future[int]] = []

        def flood() -> None:
            while True:
                answers.append(log.append("a", b"x" * 1000))

        with pytest.raises(LogBusy) as refused:
            flood()
        assert refused.value.limit_bytes == 20_000
        assert log.line_bytes <= 20_000
        assert len(answers) < 30
        await log.room()
        answers.append(log.append("a", b"x" * 1000))
        assert await asyncio.gather(*answers) == list(range(len(answers)))

    with_log(tmp_path, work, options)


def test_a_closed_log_takes_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        log = AsyncTopicLog(tmp_path)
        answers = [log.append("a", b"x") for _ in range(10)]
        await log.close()
        assert [answer.result() for answer in answers] == list(range(10))
        with pytest.raises(LogError):
            log.append("a", b"x")

    asyncio.run(run())


def test_records_for_many_topics_are_in_their_segments(tmp_path: Path) -> None:
    async def work(log: AsyncTopicLog) -> None:
        for i in range(20):
            events = [(f"t{t}", b"%d:%d" % (t, i) * (1 + t * i % 97)) for t in range(60)]
            await asyncio.gather(*(log.append(*event) for event in events))

    with_log(tmp_path, work, LogOptions(segment_bytes=4096, open_segments=20))
    for t in range(60):
        assert stored(tmp_path, f"t{t}") == [b"%d:%d" % (t, i) * (1 + t * i % 97) for i in range(20)]
