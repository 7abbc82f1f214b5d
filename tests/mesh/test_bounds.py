"""What is kept for others is bounded, for one of them and for all together, and who asks for more is told why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from echomesh.errors import RequestFailed, UnauthorizedPublish
from echomesh.mesh.bodies import Forward
from echomesh.mesh.client import Session, session
from echomesh.mesh.codes import Command
from echomesh.mesh.options import MeshOptions
from tests.mesh.support import Raw, Running, an_array, an_event, serving


def connect(server: Running, client_id: str = "shop") -> Session:
    return session(f"127.0.0.1:{server.port}", client_id=client_id)


def test_stages_of_all_sessions_together_are_bounded_and_make_room_when_they_end(
    run: Callable[..., None],
) -> None:
    async def test(server: Running) -> None:
        event = an_event(1, size=1 << 20)  # so much is sent at once
        async with connect(server) as one:
            async with connect(server) as two:
                first = await one.stage("w", 1, "r", 0)
                await first.add("a", event)
                second = await two.stage("w", 1, "r", 1)
                await second.add("a", event)
                third = await two.stage("w", 1, "r", 2)
                with pytest.raises(RequestFailed, match="max_stages"):
                    await third.add("a", event)
                await first.close()
                fourth = await one.stage("w", 1, "r", 3)
                await fourth.add("a", event)
            # A session that ended gives back what it had, too.
            fifth = await one.stage("w", 1, "r", 4)
            await fifth.add("a", event)

    run(test, MeshOptions(max_stages=2))


async def forward(peer: Raw, origin: bytes, offset: int) -> str:
    events = an_array(an_event(10 * origin[0] + offset))
    body = Forward("peer", peer.session_id, "TST", "a", origin, offset, events)
    seq = peer.send(Command.ASYNC_MESSAGE_TO_SERVER, body, seq=f"{origin.hex()}-{offset}")
    while True:
        message = await peer.receive()
        if message.command == Command.ASYNC_MESSAGE_TO_CLIENT_ACK and message.seq == seq:
            return message.description or "" if message.status else ""


def test_a_bridge_that_invents_origins_is_refused_and_known_ones_go_on(
    run: Callable[..., None],
) -> None:
    async def test(server: Running) -> None:
        origins = [bytes([number]) * 16 for number in range(1, 6)]
        peer = await server.client("peer", is_server=True, urn="far", port=1, log_id=origins[0])
        for origin in origins[:3]:
            assert await forward(peer, origin, 0) == ""
        for origin in origins[3:]:
            assert "max_origins" in await forward(peer, origin, 0)
        for origin in origins[:3]:
            assert await forward(peer, origin, 1) == ""
        assert server.server.core.log.bounds("TST", "a") == (0, 6)

    run(test, MeshOptions(max_origins=3))


def test_places_of_subscribers_are_bounded_for_those_who_subscribe_and_for_new_topics(
    run: Callable[..., None],
) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop, connect(server, "other") as other:
            for number in range(6):
                await shop.publish(f"t/{number}", an_event(number))
            async with shop.subscribe("t/**", start="earliest"):
                with pytest.raises(RequestFailed, match="max_cursors"):
                    await other.subscribe("t/**")
                with pytest.raises(RequestFailed, match="max_cursors"):
                    await other.subscribe("t/0", "t/1", "t/2", "t/3", "t/4")
                fewer = await other.subscribe("t/0", "t/1", "t/2", "t/3")
                with pytest.raises(UnauthorizedPublish, match="max_cursors"):
                    await shop.publish("t/new", an_event(7))
                await shop.publish("t/0", an_event(8))  # one that is there
                await fewer.unsubscribe()
                await shop.publish("t/new", an_event(9))
        # Whoever comes back needs no new places.
        async with connect(server) as shop, shop.subscribe("t/**"):
            pass
        assert server.server.core.cursors.count == 7

    run(test, MeshOptions(max_cursors=10))


def test_places_are_counted_anew_after_a_restart(shm_dir: Path) -> None:
    async def inside() -> None:
        async with serving(shm_dir) as server, connect(server) as shop:
            for number in range(3):
                await shop.publish(f"t/{number}", an_event(number))
            async with shop.subscribe("t/**"):
                pass
        async with serving(shm_dir, MeshOptions(max_cursors=4)) as server, connect(server, "other") as other:
            assert server.server.core.cursors.count == 3
            with pytest.raises(RequestFailed, match="max_cursors"):
                await other.subscribe("t/**")

    asyncio.run(inside())
