"""Publishers, subscribers and requests for asyncio, over a real participant."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest
import uvloop

import echomesh
from echomesh.errors import ClosedError, NoParticipant, NotARequest, NothingCame, SlowSubscriber, ViewKept
from tests.data import shm_workers
from tests.data.shm_support import looped, numbered
from tests.support.processes import PATIENCE_S, process


async def in_time(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE_S)


@looped
async def test_send_and_receive(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        subscriber = await mesh.subscribe("camera/*")
        publisher = await mesh.publisher("camera/front")
        await publisher.matched(1, 10)
        await publisher.send(b"one")
        await publisher.send_many([b"two", bytes(20_000)])
        got = [await subscriber.receive(10) for _ in range(3)]
        assert [bytes(message) for message in got] == [b"one", b"two", bytes(20_000)]
        assert [message.sequence for message in got] == [0, 1, 2]
        assert got[0].topic == "camera/front"
        with pytest.raises(NothingCame):
            await subscriber.receive(0.01)


@looped
async def test_iterating_subscribes(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        publisher = await mesh.publisher("t")

        async def send() -> None:
            await publisher.matched(1, 10)
            for number in range(3):
                await publisher.send(numbered(number, 8))

        sending = asyncio.create_task(send())
        got = []
        async for message in mesh.subscribe("t"):
            got.append(message.sequence)
            if len(got) == 3:
                break
        await sending
        assert got == [0, 1, 2]


@looped
async def test_a_large_message_of_before_in_a_directory_given_as_text(options: dict[str, Any]) -> None:
    async with echomesh.connect(**{**options, "directory": str(options["directory"])}) as mesh:
        camera = await in_time(mesh.publisher("camera/front", history=1))
        await camera.send(bytes(100_000))
        subscriber = mesh.subscribe("camera/*")
        assert len((await in_time(anext(subscriber))).data) == 100_000


@looped
async def test_whatever_keeps_a_publisher_from_its_participant_is_raised(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(options: object) -> None:
        raise RuntimeError("threads are short")

    monkeypatch.setattr("echomesh.data.link.reach", fail)
    async with echomesh.connect(**options) as mesh:
        with pytest.raises(NoParticipant, match="threads are short"):
            await in_time(mesh.publisher("camera/front"))


@looped
async def test_messages_of_another_process(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        subscriber = await mesh.subscribe("t")
        with process(shm_workers.publish, options, "t", 50, 5000, {}, 1):
            for number in range(5000):
                message = await subscriber.receive(30)
                assert bytes(message) == numbered(number, 50)


@looped
async def test_a_slow_reader_holds_up_who_awaits_and_nobody_else(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        subscriber, other = await mesh.subscribe("t", queue=10), await mesh.subscribe("other")
        publisher, quick = await mesh.publisher("t"), await mesh.publisher("other")
        await publisher.matched(1, 10)
        await quick.matched(1, 10)
        sending = asyncio.create_task(publisher.send_many([numbered(number, 8) for number in range(100)]))
        await quick.send(b"x")
        assert bytes(await other.receive(10)) == b"x"
        assert not sending.done()
        got = [(await subscriber.receive(10)).sequence for _ in range(100)]
        assert got == list(range(100))
        await in_time(sending)


@looped
async def test_a_block_that_takes_too_long_raises_and_leaves_a_gap(options: dict[str, Any]) -> None:
    gaps: list[echomesh.Gap] = []
    async with echomesh.connect(**options) as mesh:
        subscriber = await mesh.subscribe("t", queue=4, on_gap=gaps.append)
        publisher = await mesh.publisher("t", timeout=0.05)
        await publisher.matched(1, 10)
        for number in range(4):
            await publisher.send(numbered(number, 8))
        with pytest.raises(SlowSubscriber) as raised:
            await publisher.send(b"too much")
        assert raised.value.sequence == 4
        assert raised.value.subscribers == (subscriber.id.hex(),)
        got = [(await subscriber.receive(10)).sequence for _ in range(4)]
        await publisher.send(b"more", timeout=10)
        got.append((await subscriber.receive(10)).sequence)
        assert got == [0, 1, 2, 3, 5]
        assert [(gap.first, gap.last, gap.reason) for gap in gaps] == [(4, 4, "the publisher waited no longer")]
        assert publisher.statistics.dropped == {"the publisher waited no longer": 1}


@looped
async def test_a_pool_that_is_full_is_waited_for(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        subscriber = await mesh.subscribe("t")
        publisher = await mesh.publisher("t", pool=4 << 20, timeout=0.1)
        await publisher.matched(1, 10)
        held = []
        for number in range(2):
            await publisher.send(numbered(number, 1 << 20))
            held.append(await subscriber.receive(10))
        with pytest.raises(SlowSubscriber):  # of the pool one subscriber gets a half
            await publisher.send(numbered(2, 1 << 20))
        sending = asyncio.ensure_future(publisher.send(numbered(77, 1 << 20), timeout=PATIENCE_S))
        await asyncio.sleep(0.01)
        assert not sending.done()
        held.clear()
        await in_time(sending)
        while bytes((await subscriber.receive(10)).data[:8]) != numbered(77, 8):
            pass


@looped
async def test_a_loan_is_sent_at_the_end_of_its_block(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        subscriber, publisher = await mesh.subscribe("t"), await mesh.publisher("t")
        await publisher.matched(1, 10)
        async with publisher.loan(100_000) as frame:
            frame[:5] = b"hello"
        assert bytes((await subscriber.receive(10)).data[:5]) == b"hello"
        with pytest.raises(ViewKept):
            async with publisher.loan(100) as frame:
                kept = frame[:1]
        del kept


@looped
async def test_callbacks_may_be_functions_or_coroutines(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        got: list[bytes] = []
        both = asyncio.Event()

        def plain(message: echomesh.Message) -> None:
            got.append(bytes(message))
            if len(got) == 2:
                both.set()

        async def coroutine(message: echomesh.Message) -> None:
            plain(message)

        mesh.subscribe("t", plain)
        mesh.subscribe("t", coroutine)
        publisher = await mesh.publisher("t")
        await publisher.matched(2, 10)
        await publisher.send(b"x")
        await in_time(both.wait())
        assert got == [b"x", b"x"]


@looped
async def test_a_callback_that_fails_is_told_and_goes_on(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with echomesh.connect(**options) as mesh:
        got: list[bytes] = []
        second = asyncio.Event()

        async def callback(message: echomesh.Message) -> None:
            got.append(bytes(message))
            if len(got) == 1:
                raise RuntimeError("the first one")
            second.set()

        mesh.subscribe("t", callback)
        publisher = await mesh.publisher("t")
        await publisher.matched(1, 10)
        await publisher.send_many([b"1", b"2"])
        await in_time(second.wait())
        assert got == [b"1", b"2"]
        assert [record.exc_info[1].args for record in caplog.records if record.exc_info and record.exc_info[1]] == [
            ("the first one",)
        ]


@looped
async def test_closing_ends_the_iteration(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        subscriber = await mesh.subscribe("t")

        async def take() -> list[object]:
            return [message async for message in subscriber]

        taking = asyncio.create_task(take())
        await asyncio.sleep(0.01)
        await subscriber.close()
        assert await in_time(taking) == []
        with pytest.raises(ClosedError):
            await subscriber.receive(1)


@looped
async def test_requests_are_answered_by_another_process(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:
        with process(shm_workers.answer, options, "turn"):
            reply = await mesh.request("turn", b"abc", timeout=PATIENCE_S)
            assert bytes(reply) == b"cba"
            large = bytes(range(256)) * 1000
            replies = await asyncio.gather(*(mesh.request("turn", large[: 1000 * n]) for n in range(1, 20)))
            assert [bytes(reply) for reply in replies] == [large[: 1000 * n][::-1] for n in range(1, 20)]
        with pytest.raises(NothingCame):
            await mesh.request("nobody", b"", timeout=0.05)


@looped
async def test_requests_are_answered_in_the_same_process(options: dict[str, Any]) -> None:
    async with echomesh.connect(**options) as mesh:

        async def answer(message: echomesh.Message) -> None:
            await message.reply(bytes(message) + b"!")

        await mesh.subscribe("greet", answer)
        everything = await mesh.subscribe("**")
        assert bytes(await mesh.request("greet", b"hello", timeout=PATIENCE_S)) == b"hello!"
        got = [bytes(await everything.receive(10))]
        with suppress(NothingCame):
            while True:
                got.append(bytes(await everything.receive(0.1)))
        assert got == [b"hello"], "the answer is for who asked alone"
        publisher = await mesh.publisher("greet")
        await publisher.matched(2, 10)
        await publisher.send(b"no request")
        with pytest.raises(NotARequest):
            await (await everything.receive(10)).reply(b"")


def test_two_event_loops_in_two_threads(options: dict[str, Any]) -> None:
    got: dict[str, list[int]] = {"a": [], "b": []}
    ready = threading.Barrier(3)

    async def take(topic: str) -> None:
        async with echomesh.connect(**options) as mesh:
            subscriber = await mesh.subscribe(topic)
            await asyncio.to_thread(ready.wait)
            for _ in range(200):
                got[topic].append((await subscriber.receive(30)).sequence)

    threads = [threading.Thread(target=lambda topic=topic: asyncio.run(take(topic))) for topic in got]
    for thread in threads:
        thread.start()

    async def send() -> None:
        async with echomesh.connect(**options) as mesh:
            publishers = [await mesh.publisher(topic) for topic in got]
            await asyncio.to_thread(ready.wait)
            for publisher in publishers:
                await publisher.matched(1, 10)
            for number in range(200):
                for publisher in publishers:
                    await publisher.send(b"x")
                if number % 20 == 0:
                    await asyncio.sleep(0.002)

    uvloop.run(send())
    for thread in threads:
        thread.join(30)
    assert got == {"a": list(range(200)), "b": list(range(200))}
