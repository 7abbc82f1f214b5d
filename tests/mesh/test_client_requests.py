"""What a session can ask for besides: replies, topics, records, stages, bridges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from echomesh import Event, errors
from echomesh.native.log_record import scan
from tests.mesh.client_support import connect
from tests.mesh.support import Running, an_event


def test_a_request_gets_its_reply(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, "asker one") as shop, connect(server, "answerer") as other:
            questions = await other.subscribe("ask")

            async def answer() -> None:
                async for question in questions:
                    await other.reply(question, Event(type="sum", source="/sums", data=question.data + 1))

            task = asyncio.ensure_future(answer())
            asked = [shop.request("ask", Event(type="q", source="/shop", data=n), timeout=20) for n in range(20)]
            assert [reply.data for reply in await asyncio.gather(*asked)] == list(range(1, 21))
            task.cancel()

    run(test)


def test_a_request_that_nobody_answers_times_out_and_what_asks_nothing_gets_no_reply(
    run: Callable[..., None],
) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            with pytest.raises(errors.MeshTimeout, match="no reply"):
                await shop.request("ask", an_event(0), timeout=0.05)
            with pytest.raises(errors.UsageError, match="replyto"):
                await shop.reply(an_event(1), an_event(2))

    run(test)


# The log, stages, bridges


def test_topics_offsets_and_records_can_be_asked_for(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            events = [an_event(at) for at in range(5)]
            await shop.publish_many("a/b", events)
            await shop.publish("c", an_event(0))
            assert [(each.topic, each.latest) for each in await shop.topics("a/*")] == [("a/b", 5)]
            assert len(await shop.topics()) == 2
            offsets = await shop.offsets("a/b")
            assert (offsets.earliest, offsets.latest, offsets.log_id) == (0, 5, server.log.log_id)
            fetched = await shop.fetch("a/b", 1, until=4)
            records = scan(fetched.records, 0, fetched.offset)
            assert records.events() == [event.encode() for event in events[1:4]]
            assert (fetched.next_offset, fetched.lost) == (4, None)

    run(test)


def test_staged_rows_appear_together_or_not_at_all(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            stages = []
            for part in range(2):
                stage = await shop.stage("nightly", 1, "run", part)
                for at in range(10):
                    await stage.add("reports", an_event(part * 10 + at, size=100_000))
                staged = await stage.close()
                assert staged.rows == 10
                stages.append(staged.stage)
                with pytest.raises(errors.ClosedError):
                    await stage.add("reports", an_event(0, size=2 << 20))
            assert await shop.topics() == []
            assert (await shop.commit("nightly", 1, "run", stages)).rows == 20
            assert (await shop.commit("nightly", 1, "run", stages)).rows == 20
            assert (await shop.offsets("reports")).latest == 20
            unused = await shop.stage("nightly", 2, "run")
            await unused.add("reports", an_event(99))
            await unused.close()
            await shop.abort("nightly", 2)
            assert (await shop.offsets("reports")).latest == 20

    run(test)


def test_bridges_are_asked_for_by_address(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            assert await shop.bridges() == []
            with pytest.raises(errors.InvalidBridge):
                await shop.add_bridge("127.0.0.1:9", topics=["orders/**"])
            with pytest.raises(errors.UnknownBridge):
                await shop.remove_bridge("127.0.0.1:9")

    run(test)
