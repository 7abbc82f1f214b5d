"""Thousands of sessions, some of which behave badly: the others do not notice, and memory stays bounded."""

from __future__ import annotations

import asyncio
import itertools
import resource
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Raw as RawBytes

from echomesh.frames import Splitter, framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Ack, Deliver, Hello, Publish, Subscribe
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.log_bodies import Fetch
from tests.faults.mesh_support import HOST, ServerProcess, until
from tests.mesh.support import Raw, an_event
from tests.support.counts import count

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(900)]

MIB: Final = 1 << 20
AT_ONCE: Final = 200  # connections that are being made

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def run(directory: Path, test: Callable[[ServerProcess], Coroutine[Any, Any, None]], config: str = "") -> None:
    async def inside() -> None:
        server = ServerProcess(directory / "data", config=config)
        await server.start()
        try:
            await test(server)
            await server.stop()
        finally:
            await server.kill()

    asyncio.run(inside())


class Session(asyncio.Protocol):
    """A client as small as can be: says HELLO and SUBSCRIBE, and acknowledges what it gets."""

    def __init__(self, client_id: str, topic: str) -> None:
        loop = asyncio.get_running_loop()
        self.client_id = client_id
        self.topic = topic
        self.got = 0
        self.ready: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._session_id = ""
        self._splitter = Splitter(MIB)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._send(Command.HELLO_REQUEST, "hello", Hello(self.client_id))

    def _send(self, command: Command, seq: str, body: Any) -> None:
        self.transport.write(framed(protocol.encode(command, seq, body)))

    def data_received(self, data: bytes) -> None:
        for payload in self._splitter.feed(data):
            message = protocol.decode(payload)
            assert message.status == 0, message.description
            if message.command == Command.HELLO_RESPONSE:
                self._session_id = protocol.body_of(message).session_id
                wanted = Subscribe(self.client_id, self._session_id, [self.topic])
                self._send(Command.SUBSCRIBE_REQUEST, "subscribe", wanted)
            elif message.command == Command.SUBSCRIBE_RESPONSE:
                self.ready.set_result(None)
            elif message.command == Command.ASYNC_MESSAGE_TO_CLIENT:
                body: Deliver = protocol.body_of(message)
                self.got += len(body.cloud_events)
                behind = body.offset + len(body.cloud_events)
                ack = Ack(self.client_id, self._session_id, "TST", body.topic, behind)
                self._send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, message.seq, ack)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(None)
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("it was closed before it was served"))


async def connected(server: ServerProcess, made: list[Session], at_once: int = AT_ONCE) -> None:
    """Connects all of them, so many at once, and waits until each is subscribed."""
    room = asyncio.Semaphore(at_once)

    async def connect(one: Session) -> None:
        async with room:
            await asyncio.get_running_loop().create_connection(lambda: one, HOST, server.port)
            await one.ready

    async with asyncio.timeout(120):
        await asyncio.gather(*map(connect, made))


async def publish(server: ServerProcess, topic: str, events: int, size: int = 0) -> None:
    """Publishes events that are like no others, many in flight, and waits for all answers."""
    client = await Raw.connect(server.port)
    await client.hello("publisher", purpose=Purpose.PUBLISH)
    for first in range(0, events, 50):
        batch = range(first, min(first + 50, events))
        for _ in batch:
            event = an_event(next(_numbers), size)
            body = Publish("publisher", client.session_id, topic, RawBytes(event.encode()))
            client.send(Command.PUBLISH_MESSAGE_REQUEST, body)
        for _ in batch:
            assert (await client.receive()).status == 0
    client.close()


def test_thousands_of_sessions_get_every_event(shm_dir: Path) -> None:
    async def test(server: ServerProcess) -> None:
        before = server.memory
        made = [Session(f"c{number}", "all") for number in range(count(500, 2000))]
        await connected(server, made)
        for _ in range(3):
            await publish(server, "all", 10)
        await until(lambda: all(one.got == 30 for one in made), lambda: sum(one.got for one in made))
        assert (server.memory - before) / len(made) < 100_000, "bytes for each session"
        for one in made:
            one.transport.abort()

    run(shm_dir, test)


def test_thousands_that_reconnect_at_once_are_all_served(shm_dir: Path) -> None:
    async def test(server: ServerProcess) -> None:
        number = count(500, 2000)
        made = [Session(f"c{number}", "all") for number in range(number)]
        await connected(server, made)
        await server.kill()
        await asyncio.gather(*(one.lost for one in made))
        await server.start()
        await publish(server, "all", 10)
        again = [Session(one.client_id, "all") for one in made]
        await connected(server, again, at_once=len(again))
        await until(lambda: all(one.got == 10 for one in again), lambda: sum(one.got for one in again))
        for one in again:
            one.transport.abort()

    run(shm_dir, test)


class Stuck:
    """Subscribes, and never acknowledges; or does not even read."""

    def __init__(self, client: Raw, *, reads: bool) -> None:
        self.client = client
        self.got_bytes = 0
        self._reading = asyncio.create_task(self._read()) if reads else None
        if not reads:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def _read(self) -> None:
        while True:
            message = await self.client.receive()
            if message.command == Command.ASYNC_MESSAGE_TO_CLIENT:
                self.got_bytes += len(message.body)

    def end(self) -> None:
        """It goes."""
        if self._reading is not None:
            self._reading.cancel()
        self.client.writer.transport.abort()


async def stuck(server: ServerProcess, name: str, *, reads: bool) -> Stuck:
    """One more of those."""
    client = await Raw.connect(server.port)
    await client.hello(name)
    answer = await client.ask(Command.SUBSCRIBE_REQUEST, Subscribe(name, client.session_id, ["all"]))
    assert answer.status == 0
    return Stuck(client, reads=reads)


STILL = """
[mesh]
heartbeat = "60s"
hello_within = "60s"
[log]
duplicate_bytes = 0
kept_bytes = "16 MiB"
"""


@pytest.mark.parametrize("reads", [True, False], ids=["never acknowledges", "never reads"])
def test_the_others_do_not_notice_who_is_stuck(shm_dir: Path, reads: bool) -> None:
    async def test(server: ServerProcess) -> None:
        bad = await stuck(server, "stuck", reads=reads)
        others = [Session(f"c{number}", "all") for number in range(20)]
        await connected(server, others)
        await publish(server, "all", 1000, 10_000)
        await until(lambda: all(one.got == 1000 for one in others), lambda: [one.got for one in others])
        before, total = server.memory, count(6000, 30_000)
        await publish(server, "all", total, 10_000)
        await until(lambda: all(one.got == 1000 + total for one in others), lambda: [one.got for one in others])
        assert server.memory - before < 40 * MIB, "60 MB and more went by; what grows are the buffers of the log"
        if reads:
            assert 0.9 * MIB < bad.got_bytes <= 1.1 * MIB, "it got its credit, and no more"
        for one in others:
            one.transport.abort()
        bad.end()

    run(shm_dir, test, STILL)


def test_many_that_never_read_cost_bounded_memory(shm_dir: Path) -> None:
    async def test(server: ServerProcess) -> None:
        number = count(50, 500)
        bad = [await stuck(server, f"stuck {i}", reads=False) for i in range(number)]
        before = server.memory
        await publish(server, "all", 2000, 10_000)
        assert (server.memory - before) / number < 1.2 * MIB
        for one in bad:
            one.end()

    run(shm_dir, test, STILL)


def test_answers_that_nobody_reads_cost_bounded_memory(shm_dir: Path) -> None:
    async def test(server: ServerProcess) -> None:
        await publish(server, "all", 100, 10_000)
        client = await Raw.connect(server.port)
        await client.hello("asks", purpose=Purpose.PUBLISH)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before, asked = server.memory, count(1000, 10_000)
        for number in range(asked):  # each is for a MB
            client.send(Command.FETCH_REQUEST, Fetch("asks", client.session_id, "all", 0), seq=f"q{number}")
        await publish(server, "all", 100)
        assert server.memory - before < 20 * MIB
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(100):
            assert (await client.receive()).seq == f"q{number}"
        assert server.memory - before < 20 * MIB
        client.writer.transport.abort()

    run(shm_dir, test, STILL)


def test_thousands_of_strangers_cost_little_and_shut_nobody_out(shm_dir: Path) -> None:
    async def test(server: ServerProcess) -> None:
        number = count(2000, 10_000)
        before = server.memory
        open_files = []
        for first in range(0, number, AT_ONCE):
            made = (asyncio.open_connection(HOST, server.port) for _ in range(min(AT_ONCE, number - first)))
            open_files += await asyncio.gather(*made)
        for _, writer in open_files:
            writer.write(b"\0\0\xff\xff" + b"x" * 1000)  # a frame that never ends
        async with asyncio.timeout(60):
            await publish(server, "all", 10)
        assert (server.memory - before) / number < 20_000, "bytes for each stranger"
        for _, writer in open_files:
            writer.transport.abort()

    run(shm_dir, test, STILL)


def test_strangers_beyond_the_limit_make_room_for_clients(shm_dir: Path) -> None:
    async def test(server: ServerProcess) -> None:
        strangers = [await asyncio.open_connection(HOST, server.port) for _ in range(300)]
        clients = [Session(f"c{number}", "all") for number in range(50)]
        await connected(server, clients)
        await publish(server, "all", 5)
        await until(lambda: all(one.got == 5 for one in clients), lambda: [one.got for one in clients])
        for one in clients:
            one.transport.abort()
        for _, writer in strangers:
            writer.transport.abort()

    run(shm_dir, test, '[mesh]\nmax_connections = 200\nhello_within = "60s"\n')
