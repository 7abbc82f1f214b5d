"""A client that was written from the protocol's page alone gets along with the server, and with our own client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from echomesh.mesh.client import session
from tests.mesh.strangers import PUBLISH, SUBSCRIBE, Stranger
from tests.mesh.support import Running, an_event, serving


@pytest.fixture
def run(shm_dir: Path) -> Callable[[Callable[[int], None]], None]:
    """Runs a test in a thread, beside a server."""

    def go(test: Callable[[int], None]) -> None:
        async def inside() -> None:
            async with serving(shm_dir) as server:
                await asyncio.to_thread(test, server.port)

        asyncio.run(inside())

    return go


def test_a_stranger_says_hello_subscribes_publishes_acknowledges_and_leaves(
    run: Callable[[Callable[[int], None]], None],
) -> None:
    def test(port: int) -> None:
        reader = Stranger(port, "reader", SUBSCRIBE)
        reader.heartbeat()
        reader.subscribe("greetings/*")
        writer = Stranger(port, "writer", PUBLISH)
        for number in range(3):
            assert writer.publish("greetings/morning", id=str(number), data=b"hello") == number
        writer.disconnect()
        seen: list[str] = []
        while len(seen) < 3:
            topic, offset, events = reader.next_delivery()
            assert (topic, offset) == ("greetings/morning", len(seen))
            seen += [event["id"] for event in events]
            assert all(event["data"] == b"hello" and event["type"] == "greeting" for event in events)
        assert seen == ["0", "1", "2"]
        reader.disconnect()
        # What was acknowledged does not come again.
        again = Stranger(port, "reader", SUBSCRIBE)
        again.subscribe("greetings/*")
        writer = Stranger(port, "writer", PUBLISH)
        writer.publish("greetings/morning", id="3")
        assert again.next_delivery()[1] == 3
        again.disconnect()
        writer.disconnect()

    run(test)


def test_a_stranger_is_told_what_it_may_not(run: Callable[[Callable[[int], None]], None]) -> None:
    def test(port: int) -> None:
        reader = Stranger(port, "reader", SUBSCRIBE)
        with pytest.raises(PermissionError) as raised:
            reader.publish("greetings", id="1")
        assert raised.value.args[:2] == (2, "UNAUTHORIZED_PUBLISH")
        reader.session_id = "made-up"
        with pytest.raises(PermissionError) as raised:
            reader.subscribe("greetings")
        assert raised.value.args[:2] == (1, "NO_ACTIVE_SESSION")
        reader.socket.close()

    run(test)


def test_what_a_stranger_publishes_our_client_reads_and_the_other_way_round(shm_dir: Path) -> None:
    async def talk(server: Running) -> None:
        async with session(f"127.0.0.1:{server.port}", client_id="ours") as ours:
            subscription = await ours.subscribe("there")
            stranger = await asyncio.to_thread(Stranger, server.port, "writer", PUBLISH)
            await asyncio.to_thread(lambda: stranger.publish("there", id="1", subject="it", data="text", priority=7))
            async with asyncio.timeout(20):
                found = await anext(subscription)
            assert (found.id, found.subject, found.data, dict(found.extensions)) == ("1", "it", "text", {"priority": 7})
            reader = await asyncio.to_thread(Stranger, server.port, "reader", SUBSCRIBE)
            await asyncio.to_thread(lambda: reader.subscribe("here", Start="earliest"))
            event = an_event(5, size=10, subject="that")
            await ours.publish("here", event)
            topic, offset, events = await asyncio.to_thread(reader.next_delivery)
            assert (topic, offset, events[0]["id"], events[0]["time"]) == ("here", 0, "e5", event.time)
            for each in (stranger, reader):
                await asyncio.to_thread(each.disconnect)

    async def test() -> None:
        async with serving(shm_dir) as server:
            await talk(server)

    asyncio.run(test())
