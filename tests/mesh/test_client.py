"""Publishing in a session, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import echomesh
from echomesh import Event, errors
from echomesh.mesh.options import MeshOptions
from tests.mesh.client_support import connect
from tests.mesh.support import Running, an_event


def test_a_publish_gives_its_offset(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with echomesh.session(f"localhost:{server.port}", client_id="shop") as shop:
            event = Event(type="order.created", source="/shop", data={"id": 7})
            assert await shop.publish("orders/created", event) == 0
            assert await shop.publish("orders/created", an_event(1)) == 1
            assert await shop.publish("orders/created", event) == 0  # the same once more
            assert await shop.publish("orders/other", an_event(1).encode()) == 0

    run(test)


def test_many_in_flight_keep_their_order(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            futures = [shop.publish_soon("a", an_event(number)) for number in range(500)]
            assert await asyncio.gather(*futures) == list(range(500))
            events = (an_event(number) for number in range(500, 6000))
            assert await shop.publish_many("a", events) == list(range(500, 6000))

    run(test)


def test_a_publish_gives_a_future_as_asyncio_knows_them(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            first, second, third = [shop.publish_soon("a", an_event(number).encode()) for number in range(3)]
            called: list[object] = []
            first.add_done_callback(called.append)
            assert third.cancel()
            assert await asyncio.wait_for(asyncio.shield(second), 20) == 1
            assert list(await asyncio.gather(first, second)) == [0, 1]
            assert called == [first]
            with pytest.raises(asyncio.CancelledError):
                await third
            refused = shop.publish_soon("a", b"\x80")
            await asyncio.wait((refused,))
            assert isinstance(refused.exception(), errors.RequestFailed)
            with pytest.raises(asyncio.InvalidStateError):
                refused.set_exception(ValueError())

    run(test)


def test_leaving_a_session_waits_for_what_is_in_flight(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            futures = [shop.publish_soon("a", an_event(number)) for number in range(100)]
        assert [future.result() for future in futures] == list(range(100))

    run(test)


def test_more_than_the_window_is_refused_and_publish_waits_for_room(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, window_events=4) as shop:
            first = [shop.publish_soon("a", an_event(number)) for number in range(4)]
            with pytest.raises(errors.SessionBusy) as raised:
                shop.publish_soon("a", an_event(5))
            assert raised.value.events == 4
            more = [asyncio.ensure_future(shop.publish("a", an_event(number))) for number in range(4, 40)]
            await shop.room()
            assert await asyncio.gather(*first, *more) == list(range(40))
        async with connect(server, window_bytes=1000) as shop:
            shop.publish_soon("b", an_event(0, 1000))
            with pytest.raises(errors.SessionBusy):
                shop.publish_soon("b", an_event(1))

    run(test)


def test_an_event_that_breaks_the_standard_is_refused_alone(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            with pytest.raises(errors.RequestFailed):
                await shop.publish("a", b"\x80")
            with pytest.raises(errors.RequestFailed, match="specversion"):
                await shop.publish_many("a", [an_event(1), b"\x81\xa2id\xa11", an_event(2)])
            assert (await shop.offsets("a")).latest == 2

    run(test)


def test_an_event_over_the_limit_of_the_server_is_refused_here(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish("a", an_event(0, 50_000))
            with pytest.raises(errors.FrameTooLarge):
                await shop.publish("a", an_event(1, 200_000))
            assert await shop.publish("a", an_event(2)) == 1

    run(test, MeshOptions(frame_bytes=128 << 10))


def test_a_publish_to_another_server_needs_a_bridge_there(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            with pytest.raises(errors.NoBridgeServer):
                await shop.publish("a", an_event(0), server="elsewhere:1")
            assert await shop.publish("a", an_event(0), server="here:7") == 0

    run(test, MeshOptions(urn="here", port=7))


def test_a_cancelled_publish_disturbs_nobody(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish("a", an_event(0))
            task = asyncio.ensure_future(shop.publish("a", an_event(1)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await shop.publish("a", an_event(2)) in (1, 2)

    run(test)
