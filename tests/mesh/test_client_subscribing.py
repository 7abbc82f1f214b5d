"""Subscriptions of a session, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from echomesh import Event, errors
from echomesh.log import TopicLog
from echomesh.mesh.client import Lost, Subscription
from echomesh.mesh.options import MeshOptions
from tests.log.support import small
from tests.mesh.client_support import connect, ids, some
from tests.mesh.support import Running, an_event, serving


def test_a_new_subscription_begins_now_and_takes_topics_that_are_born_later_from_their_beginning(
    run: Callable[..., None],
) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish("orders/old", an_event(0))
            subscription = await shop.subscribe("orders/**")
            await shop.publish("orders/old", an_event(1))
            await shop.publish("orders/new", an_event(2))
            found = await some(subscription, 2)
            assert sorted((each.topic, each.offset, each.id) for each in found) == [
                ("orders/new", 0, "e2"),
                ("orders/old", 1, "e1"),
            ]

    run(test)


@pytest.mark.parametrize(
    ("start", "first"), [("earliest", 0), ("last", 9), (4, 4), ("now", 10), ("acknowledged", 10), (100, 10)]
)
def test_a_subscription_begins_where_it_is_told(run: Callable[..., None], start: Any, first: int) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish_many("a", [an_event(number) for number in range(10)])
            subscription = await shop.subscribe("a", start=start)
            await shop.publish("a", an_event(10))
            (found,) = await some(subscription, 1)
            assert found.offset == first

    run(test)


def test_a_subscription_begins_at_a_time(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish_many("a", [an_event(number) for number in range(3)])
            between = datetime.now(UTC)
            await shop.publish_many("a", [an_event(number) for number in range(3, 6)])
            for start in (between, between.isoformat()):
                async with shop.subscribe("a", start=start) as subscription:
                    (found,) = await some(subscription, 1)
                    assert found.offset == 3
            assert (await shop.offsets("a", time_ns=int(between.timestamp() * 1e9))).at_time == 3

    run(test)


def test_what_a_received_event_tells(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            subscription = await shop.subscribe("a")
            event = Event(type="t", source="/s", id="i", subject="sub", data={"x": [1, 2]}, extensions={"priority": 3})
            await shop.publish("a", event)
            (found,) = await some(subscription, 1)
            assert found.event == event
            assert found.encoded == event.encode()
            assert (found.topic, found.offset, found.tries, found.via) == ("a", 0, 1, ())
            assert (found.id, found.source, found.type, found.subject) == ("i", "/s", "t", "sub")
            assert (found.time, found.data, dict(found.extensions)) == (event.time, {"x": [1, 2]}, {"priority": 3})
            assert "offset=0" in repr(found)

    run(test)


def test_automatic_acknowledgement_is_that_of_the_one_before(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            async with shop.subscribe("a", start="earliest") as subscription:
                await shop.publish_many("a", [an_event(number) for number in range(5)])
                assert ids(await some(subscription, 3)) == ["e0", "e1", "e2"]
            async with shop.subscribe("a") as subscription:  # it broke off in the middle of e2
                assert ids(await some(subscription, 3)) == ["e2", "e3", "e4"]

    run(test)


def test_manual_acknowledgements_may_come_in_any_order(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            async with shop.subscribe("a", ack="manual", start="earliest") as subscription:
                await shop.publish_many("a", [an_event(number) for number in range(6)])
                found = await some(subscription, 6)
                for at in (5, 1, 0, 3):
                    await found[at].ack()
            async with shop.subscribe("a", ack="manual") as subscription:
                assert ids(await some(subscription, 4)) == ["e2", "e3", "e4", "e5"]

    run(test)


def test_sessions_of_a_group_share_the_events(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        number = 400
        async with connect(server, "one", batch=8) as one, connect(server, "two", batch=8) as two:
            subscriptions = [await each.subscribe("a", group="workers", start="earliest") for each in (one, two)]
            await one.publish_many("a", [an_event(at) for at in range(number)])
            seen: list[str] = []

            async def work(subscription: Subscription) -> None:
                async for found in subscription:
                    seen.append(found.id)
                    await asyncio.sleep(0)
                    if len(seen) == number:
                        return

            async with asyncio.timeout(20):
                await asyncio.wait(
                    [asyncio.ensure_future(work(each)) for each in subscriptions],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            assert sorted(seen) == sorted(f"e{at}" for at in range(number))

    run(test)


def test_one_that_leaves_a_group_hands_over_what_it_had(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, "one") as one, connect(server, "two") as two:
            first = await one.subscribe("a", group="g", ack="manual", start="earliest")
            await one.publish_many("a", [an_event(at) for at in range(10)])
            held = await some(first, 10)
            await held[0].ack()
            second = await two.subscribe("a", group="g")
            await first.close()
            assert ids(await some(second, 9)) == [f"e{at}" for at in range(1, 10)]

    run(test)


def test_what_is_refused_comes_again_and_goes_to_the_dead_letters_in_the_end(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            dead = await shop.subscribe("dead/**")
            subscription = await shop.subscribe("a", ack="manual", start="earliest")
            await shop.publish_many("a", [an_event(at) for at in range(4)])
            tries: list[int] = []
            others: list[str] = []
            while True:
                (found,) = await some(subscription, 1)
                if found.id != "e1":
                    others.append(found.id)
                    await found.ack()
                    continue
                tries.append(found.tries)
                if await found.nack(delay=0.001, reason="it is broken"):
                    break
            assert tries == [1, 2, 3]
            assert others == ["e0", "e2", "e3"]
            (letter,) = await some(dead, 1)
            assert (letter.topic, letter.id) == ("dead/a", "e1")
            assert letter.extensions["deadreason"] == "it is broken"
            await subscription.close()
            await shop.publish("a", an_event(9))
            assert ids(await some(await shop.subscribe("a"), 1)) == ["e9"]

    run(test, MeshOptions(max_tries=3))


def test_a_newer_session_of_the_client_takes_over_and_the_older_is_told(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as old, connect(server) as new:
            first = await old.subscribe("orders/**", ack="manual", start="earliest")
            await old.publish_many("orders/a", [an_event(0), an_event(1)])
            await (await some(first, 1))[0].ack()
            await old.offsets("orders/a")
            second = await new.subscribe("orders/a")
            assert ids(await some(second, 1))[0] in ("e0", "e1")
            with pytest.raises(errors.TakenOver) as raised:
                await some(first, 2)
            assert raised.value.topics == ["orders/a"]
            with pytest.raises(errors.TakenOver):
                await anext(first)

    run(test)


def test_unsubscribing_forgets_the_place(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            subscription = await shop.subscribe("a", start="earliest")
            await shop.publish_many("a", [an_event(at) for at in range(3)])
            await some(subscription, 1)
            await subscription.unsubscribe()
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)
            again = await shop.subscribe("a")
            await shop.publish("a", an_event(3))
            assert ids(await some(again, 1)) == ["e3"]

    run(test)


def test_a_session_forgets_subscriptions_that_ended(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            for _ in range(3):
                async with shop.subscribe("a"):
                    assert len(shop._subscriptions) == 1
            with pytest.raises(errors.RequestFailed):
                await shop.subscribe("a", start="yesterday")
            assert len(shop._subscriptions) == 0

    run(test)


def test_iterating_ends_with_the_session(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def follow(subscription: Subscription) -> None:
            async for found in subscription:
                seen.put_nowait(found.id)

        async with connect(server) as shop:
            task = asyncio.ensure_future(follow(await shop.subscribe("a")))
            await shop.publish("a", an_event(0))
            assert await seen.get() == "e0"
        await task
        assert seen.empty()
        with pytest.raises(errors.SessionEnded):
            await shop.publish("a", an_event(1))
        with pytest.raises(errors.SessionEnded):
            shop.subscribe("a")

    run(test)


def test_lost_events_are_an_error_or_told_and_never_skipped_in_silence(shm_dir: Path) -> None:
    with TopicLog(shm_dir, small(retention_bytes=8192)) as log:
        for number in range(300):
            log.append("a", an_event(number))
        log.core.keeper.care()
        earliest = log.core.topics["TST", "a"].earliest
    assert 0 < earliest < 300

    async def test() -> None:
        async with serving(shm_dir) as server, connect(server) as shop:
            for _ in range(2):  # until it was gone over, it is told
                async with shop.subscribe("a", start=0) as subscription:
                    with pytest.raises(errors.OffsetsLost) as raised:
                        await some(subscription, 1)
                    assert (raised.value.topic, raised.value.first, raised.value.last) == ("a", 0, earliest - 1)
                    assert ids(await some(subscription, 2)) == [f"e{earliest}", f"e{earliest + 1}"]
            told: list[Lost] = []
            async with shop.subscribe("a", start=0, on_lost=told.append) as subscription:
                assert ids(await some(subscription, 1)) == [f"e{earliest}"]
            assert told == [Lost("a", 0, earliest - 1)]
            async with shop.subscribe("a") as subscription:
                assert ids(await some(subscription, 1)) == [f"e{earliest}"]

    asyncio.run(test())


def test_bad_filters_and_modes_are_refused_before_anything_is_sent(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            with pytest.raises(errors.BadTopic):
                shop.subscribe("a*b")
            with pytest.raises(errors.UsageError, match="at least one"):
                shop.subscribe()
            with pytest.raises(errors.UsageError, match="manual"):
                shop.subscribe("a", ack="never")  # type: ignore[arg-type]
            with pytest.raises(errors.RequestFailed, match="Start"):
                await shop.subscribe("a", start="yesterday")
            with pytest.raises(errors.UsageError, match="can't be sent"):
                shop.subscribe("a", start=1 << 70)
            with pytest.raises(errors.UsageError, match="can't be sent"):
                shop.subscribe("a", group="\udc80")
            with pytest.raises(errors.BadTopic):
                await shop.publish("a/*", an_event(0))
            with pytest.raises(TypeError):
                await shop.publish("a", bytearray(b"x"))  # type: ignore[arg-type]
            assert await shop.publish("a", an_event(0)) == 0

    run(test)
