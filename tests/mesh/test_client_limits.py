"""Sessions with a server that is there and does not answer, and sessions that are used where they don't belong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import echomesh
from echomesh.errors import ConnectionLost, MeshTimeout, UsageError, WrongEventLoop
from echomesh.frames import Splitter, framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Published, Welcome
from echomesh.mesh.client import Session, session
from echomesh.mesh.codes import Command
from tests.mesh.support import Running, an_event, serving


class Mute:
    """A server that welcomes everybody, answers heartbeats, and nothing else unless it is told to."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.published: list[str] = []
        self.answers = False
        self.reconnected = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        if self.connections > 1:
            self.reconnected.set()
        splitter = Splitter(64 << 20)
        while data := await reader.read(1 << 16):
            for payload in splitter.feed(data):
                message = protocol.decode(payload)
                body: Any = None
                if message.command == Command.HELLO_REQUEST:
                    body = Welcome(f"s{self.connections}", b"L" * 16, 0.05, 64 << 20)
                elif message.command == Command.PUBLISH_MESSAGE_REQUEST:
                    self.published.append(message.seq)
                    body = Published(len(self.published))
                elif message.command not in (Command.HEARTBEAT_REQUEST, Command.DISCONNECT_REQUEST):
                    continue
                if self.answers or not isinstance(body, Published):
                    writer.write(framed(protocol.encode(protocol.answer_to(message.command), message.seq, body)))


@asynccontextmanager
async def mute() -> AsyncIterator[Mute]:
    made = Mute()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in made.writers:
            writer.transport.abort()


def connect(server: Mute | Running, **options: Any) -> Session:
    return session(f"127.0.0.1:{server.port}", client_id="shop", **options)


async def outcome(work: Any) -> str:
    async with asyncio.timeout(20):
        try:
            await work
        except MeshTimeout as error:
            return str(error)
    return "answered"


ASKS: list[Callable[[Session], Any]] = [
    lambda shop: shop.topics(),
    lambda shop: shop.offsets("a"),
    lambda shop: shop.fetch("a", 0),
    lambda shop: shop.bridges(),
    lambda shop: shop.add_bridge("127.0.0.1:9"),
    lambda shop: shop.remove_bridge("127.0.0.1:9"),
    lambda shop: shop.abort("w", 1),
    lambda shop: shop.commit("w", 1, "r", [], timeout=0.1),
    lambda shop: shop.subscribe("a")._ready_to_receive(),
    lambda shop: shop.request("a", an_event(1)),
]


@pytest.mark.parametrize("ask", ASKS)
def test_a_request_that_is_never_answered_fails_in_time(ask: Callable[[Session], Any]) -> None:
    async def inside() -> None:
        async with mute() as server, connect(server, timeout=0.1) as shop:
            assert await outcome(ask(shop)) == "the server did not answer within 0.1 s; it may still do it"
            assert server.connections == (2 if shop._replies is not None else 1), "the connection lives"

    asyncio.run(inside())


def test_a_call_may_have_a_limit_of_its_own() -> None:
    async def inside() -> None:
        async with mute() as server, connect(server) as shop:
            for ask in (shop.topics(timeout=0.05), shop.offsets("a", timeout=0.05), shop.fetch("a", 0, timeout=0.05)):
                assert "within 0.05 s" in await outcome(ask)
            assert "the event may still be stored" in await outcome(shop.publish("a", an_event(1), timeout=0.05))

    asyncio.run(inside())


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout="):
        session(client_id="shop", timeout=timeout)


def test_publishes_that_are_not_answered_are_sent_again_over_a_new_connection() -> None:
    async def inside() -> None:
        async with mute() as server, asyncio.timeout(20):
            shop = connect(server, timeout=0.2)
            futures = [shop.publish_soon("a", an_event(number)) for number in range(5)]
            await server.reconnected.wait()
            server.answers = True
            assert sorted(await asyncio.gather(*futures)) == [await future for future in futures]
            await shop.close()
            first = server.published[:5]
            assert server.published[5:10] == first, "in order"

    asyncio.run(inside())


def test_publishes_that_are_answered_over_no_connection_fail_when_the_outage_is_too_long() -> None:
    async def inside() -> None:
        async with mute() as server, asyncio.timeout(20):
            shop = connect(server, timeout=0.1, max_outage=0.5)
            with pytest.raises(ConnectionLost, match="the server answered no publish within"):
                await shop.publish("a", an_event(1))
            assert server.connections > 1
            server.answers = True
            await shop.publish("a", an_event(2))
            await shop.close()

    asyncio.run(inside())


def test_a_session_of_threads_has_the_same_limits() -> None:
    ready, over = threading.Event(), threading.Event()
    ports: list[int] = []

    async def serve() -> None:
        async with mute() as server:
            ports.append(server.port)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        ready.wait()
        shop = echomesh.sync.session(f"127.0.0.1:{ports[0]}", client_id="shop", timeout=0.1)
        with pytest.raises(MeshTimeout, match=r"within 0\.1 s"):
            shop.topics()
        with pytest.raises(MeshTimeout, match=r"within 0\.05 s"):
            shop.offsets("a", timeout=0.05)
        with pytest.raises(MeshTimeout, match=r"within 0\.1 s"):
            shop.subscribe("a")
        with pytest.raises(MeshTimeout, match="may still be stored"):
            shop.publish("a", an_event(1), timeout=0.05)
        shop.close()
    finally:
        over.set()
        thread.join()


def elsewhere(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_a_session_that_is_used_from_a_second_event_loop_says_so(shm_dir: Path) -> None:
    async def inside() -> None:
        async with serving(shm_dir) as server, connect(server) as shop:
            await shop.publish("a", an_event(1))
            subscription = await shop.subscribe("a")

            async def publish() -> None:
                await shop.publish("a", an_event(2))

            async def publish_soon() -> None:
                shop.publish_soon("a", an_event(2))

            async def topics() -> None:
                await shop.topics()

            async def subscribe() -> None:
                await shop.subscribe("b")

            async def take() -> None:
                await anext(subscription)

            for work in (publish, publish_soon, topics, subscribe, take, subscription.close, shop.close):
                with pytest.raises(WrongEventLoop, match=r"echomesh\.sync\.session"):
                    await asyncio.to_thread(elsewhere, work)
            with pytest.raises(WrongEventLoop):
                await asyncio.to_thread(shop.publish_soon, "a", an_event(3))
            await shop.publish("a", an_event(4))
            assert (await anext(subscription)).id == "e4", "nothing of all that was done"

    asyncio.run(inside())


def test_a_session_that_outlived_its_event_loop_says_so(shm_dir: Path) -> None:
    made: list[Session] = []

    async def first() -> None:
        async with serving(shm_dir) as server:
            made.append(connect(server))
            await made[0].publish("a", an_event(1))

    async def second() -> None:
        with pytest.raises(WrongEventLoop):
            await made[0].publish("a", an_event(2))

    asyncio.run(first())
    asyncio.run(second())
