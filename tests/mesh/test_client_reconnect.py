"""Sessions whose connections break: what was published arrives once and in order, what was settled comes no more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from echomesh import errors
from echomesh.mesh.client import Session, Subscription, session
from echomesh.mesh.options import MeshOptions
from tests.mesh.client_support import ids, some
from tests.mesh.proxy import Proxy, proxy
from tests.mesh.support import Running, an_event, serving
from tests.support.counts import count

Test = Callable[[Running, Proxy], Coroutine[Any, Any, None]]


@pytest.fixture
def run(shm_dir: Path) -> Callable[..., None]:
    """Runs a test with a server behind a proxy."""

    def go(test: Test, options: MeshOptions | None = None) -> None:
        async def inside() -> None:
            async with serving(shm_dir, options) as server, proxy(server.port) as way, asyncio.timeout(60):
                await test(server, way)

        asyncio.run(inside())

    return go


def connect(way: Proxy, client_id: str = "shop", **options: Any) -> Session:
    return session(f"127.0.0.1:{way.port}", client_id=client_id, **options)


async def stored(server: Running, topic: str) -> list[str]:
    """The ids of all events of a topic."""
    async with session(f"127.0.0.1:{server.port}", client_id="reader") as reader:
        number = (await reader.offsets(topic)).latest
        async with reader.subscribe(topic, start="earliest") as subscription:
            return ids(await some(subscription, number))


def test_publishes_that_were_not_answered_are_sent_again_once_each_and_in_order(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way) as shop:
            await shop.publish("a", an_event(0))
            way.hold()
            futures = [shop.publish_soon("a", an_event(at)) for at in range(1, 200)]
            await asyncio.sleep(0)
            way.cut()
            way.go_on()
            futures += [shop.publish_soon("a", an_event(at)) for at in range(200, 300)]
            assert await asyncio.gather(*futures) == list(range(1, 300))
        assert await stored(server, "a") == [f"e{at}" for at in range(300)]
        assert way.connections == 2

    run(test)


def test_a_subscription_goes_on_after_what_was_acknowledged(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way, batch=3) as shop, session(f"127.0.0.1:{server.port}", client_id="other") as other:
            subscription = await shop.subscribe("a", ack="manual", start="earliest")
            await other.publish_many("a", [an_event(at) for at in range(10)])
            found = await some(subscription, 10)
            for at in (0, 1, 3, 9, 5, 6, 7):
                await found[at].ack()
            way.cut()
            await other.publish("a", an_event(10))
            assert ids(await some(subscription, 4)) == ["e2", "e4", "e8", "e10"]

    run(test)


def test_what_was_in_hand_when_the_connection_broke_can_still_be_acknowledged(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way) as shop:
            subscription = await shop.subscribe("a", ack="manual", start="earliest")
            await shop.publish_many("a", [an_event(at) for at in range(4)])
            held = await some(subscription, 4)
            way.cut()
            await held[1].ack()
            assert ids(await some(subscription, 1)) == ["e0"]  # the connection is a new one now
            await held[2].ack()
            assert ids(await some(subscription, 1)) == ["e3"]

    run(test)


def test_a_nack_over_a_broken_connection_only_says_that_it_comes_again(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way) as shop:
            subscription = await shop.subscribe("a", ack="manual", start="earliest")
            await shop.publish("a", an_event(0))
            (held,) = await some(subscription, 1)
            way.hold()
            refusing = asyncio.ensure_future(held.nack())
            await asyncio.sleep(0)
            way.cut()
            way.go_on()
            assert await refusing is False
            assert ids(await some(subscription, 1)) == ["e0"]

    run(test)


def test_requests_wait_for_the_next_connection(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way) as shop:
            await shop.publish("a", an_event(0))
            way.open = False
            way.cut()
            asked = asyncio.ensure_future(shop.offsets("a"))
            published = asyncio.ensure_future(shop.publish("a", an_event(1)))
            while way.connections < 3:  # noqa: ASYNC110 - an attempt that fails can't be awaited
                await asyncio.sleep(0.01)
            way.open = True
            assert (await asked).latest == 1
            assert await published == 1

    run(test)


def test_an_outage_that_lasts_too_long_is_told_and_the_next_operation_tries_anew(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way, max_outage=0.1) as shop:
            subscription = await shop.subscribe("a")
            await shop.publish("a", an_event(0))
            await some(subscription, 1)
            way.close()
            futures = [asyncio.ensure_future(shop.publish("a", an_event(at))) for at in range(1, 4)]
            for result in await asyncio.gather(*futures, return_exceptions=True):
                assert isinstance(result, errors.ConnectionLost)
                assert "within 0.1 s" in str(result)
            with pytest.raises(errors.ConnectionLost):
                await anext(subscription)
            way.open = True
            assert await shop.publish("a", an_event(9)) == 1
            assert ids(await some(await shop.subscribe("a"), 1)) in (["e0"], ["e9"])

    run(test)


def test_a_publish_that_was_cancelled_in_an_outage_is_not_sent_after_it(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way) as shop:
            await shop.publish("a", an_event(0))
            way.close()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(shop.publish("a", an_event(1)), 0.02)
            way.open = True
            assert await shop.publish("a", an_event(2)) == 1

    run(test)


def test_a_server_that_falls_silent_is_left_for_another_connection(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way) as shop:
            await shop.publish("a", an_event(0))
            way.hold()
            published = asyncio.ensure_future(shop.publish("a", an_event(1)))
            while way.connections == 1:  # noqa: ASYNC110 - the clock has to run
                await asyncio.sleep(0.01)
            way.go_on()
            assert await published == 1

    run(test, MeshOptions(heartbeat_s=0.05))


def test_heartbeats_keep_a_silent_session_alive(run: Callable[..., None]) -> None:
    async def test(server: Running, way: Proxy) -> None:
        async with connect(way) as shop:
            subscription = await shop.subscribe("a")
            await shop.publish("a", an_event(0))
            await some(subscription, 1)
            await asyncio.sleep(0.05 * 8)
            assert await shop.publish("a", an_event(1)) == 1
            await some(subscription, 1)
            assert way.connections == 2

    run(test, MeshOptions(heartbeat_s=0.05))


def test_a_server_that_stops_and_starts_again_is_found_again(shm_dir: Path) -> None:
    async def test() -> None:
        async with serving(shm_dir) as server:
            port = server.port
            shop = session(f"127.0.0.1:{port}", client_id="shop")
            subscription = await shop.subscribe("a", start="earliest")
            await shop.publish_many("a", [an_event(at) for at in range(3)])
            assert ids(await some(subscription, 2)) == ["e0", "e1"]
        published = asyncio.ensure_future(shop.publish("a", an_event(3)))
        async with serving(shm_dir, port=port), asyncio.timeout(30):
            assert await published == 3
            # e1 was in hand, and is settled by taking the next one.
            assert ids(await some(subscription, 2)) == ["e2", "e3"]
            await shop.close()

    asyncio.run(test())


@pytest.mark.parametrize("seed", range(count(4, 60)))
def test_whatever_breaks_whenever_each_event_is_stored_once_and_settled_ones_come_once(
    run: Callable[..., None], seed: int
) -> None:
    number = 600
    rng = random.Random(seed)

    async def cutting(way: Proxy) -> None:
        while True:
            await asyncio.sleep(rng.uniform(0.0, 0.03))
            if rng.random() < 0.3:
                way.hold()
                await asyncio.sleep(rng.uniform(0.0, 0.01))
            way.cut()
            way.go_on()

    async def publish(shop: Session) -> None:
        futures = []
        for at in range(number):
            futures.append(asyncio.ensure_future(shop.publish("a", an_event(at))))
            if at % 20 == 0:
                await asyncio.sleep(rng.uniform(0.0, 0.01))
        assert await asyncio.gather(*futures) == list(range(number))

    async def receive(subscription: Subscription) -> list[str]:
        settled: list[str] = []
        in_hand = []
        while len(settled) < number:
            found = await anext(subscription)
            assert found.id not in settled, f"{found.id} came again"
            in_hand.append(found)
            if len(in_hand) > 5 or rng.random() < 0.2 or found.offset == number - 1:
                rng.shuffle(in_hand)
                for each in in_hand:
                    if each.id not in settled:
                        settled.append(each.id)
                    await each.ack()
                in_hand.clear()
        return settled

    async def test(server: Running, way: Proxy) -> None:
        async with connect(way, batch=7) as shop:
            subscription = await shop.subscribe("a", ack="manual", start="earliest")
            breaking = asyncio.ensure_future(cutting(way))
            _, settled = await asyncio.gather(publish(shop), receive(subscription))
            breaking.cancel()
            assert sorted(settled) == sorted(f"e{at}" for at in range(number))
        assert await stored(server, "a") == [f"e{at}" for at in range(number)]

    run(test)
