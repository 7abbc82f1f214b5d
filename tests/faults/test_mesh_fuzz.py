"""Fuzzed frames, before and after HELLO and from bridged servers: the server answers or closes, and serves on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw as RawBytes

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import AddBridge, Hello, Publish, Subscribe, Welcome
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.options import MeshOptions
from tests.faults.mesh_fuzz import TOPICS, Fuzz
from tests.faults.mesh_support import fill, still_serves
from tests.mesh.support import Raw, Running, an_event, serving
from tests.support.counts import count

pytestmark = pytest.mark.timeout(1800)

OPTIONS = MeshOptions(heartbeat_s=5.0, stranger_s=5.0, frame_bytes=1 << 20, max_tries=2, retry_s=0.01)
PEER_LOG = bytes(range(16))
FROM_CLIENTS = [command for command in Command if command.name.endswith("_REQUEST")]
FROM_CLIENTS += [Command.ASYNC_MESSAGE_TO_CLIENT_ACK] * 4 + [Command.NACK_REQUEST, Command.SUBSCRIBE_REQUEST] * 2
FROM_SERVERS = [
    Command.ASYNC_MESSAGE_TO_SERVER,
    Command.ASYNC_MESSAGE_TO_SERVER,
    Command.ASYNC_MESSAGE_TO_CLIENT_ACK,
    Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE,
    Command.PUBLISH_MESSAGE_REQUEST,
    Command.PUBLISH_MESSAGE_RESPONSE,
    Command.ROUTES,
    Command.HEARTBEAT_REQUEST,
    Command.HEARTBEAT_RESPONSE,
    Command.NOTICE,
]


@asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[Running]:
    """A server; any exception that nobody handled fails the test, and so does a server that no longer serves."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with serving(directory, OPTIONS) as server:
        for topic in TOPICS:
            await fill(server, topic, 40)
        yield server
        assert not unhandled, unhandled
        await still_serves(server)
    assert not unhandled, unhandled


async def settle(client: Raw) -> None:
    """Waits until the server has dealt with all that was sent: it answers a heartbeat, or has closed."""
    client.send(Command.HEARTBEAT_REQUEST, seq="the end")
    client.writer.write_eof()
    try:
        while (await client.receive()).seq != "the end":
            pass
    except (EOFError, ConnectionError):
        pass
    client.close()


def fuzz(directory: Path, rounds: int, first: int, send: Callable[[Running, Fuzz], Any]) -> None:
    async def test() -> None:
        async with watched(directory) as server:
            for seed in range(first, first + rounds):
                try:
                    await send(server, Fuzz(seed))
                except ConnectionError:
                    pass  # the server has closed, as it may
                except BaseException as error:
                    error.add_note(f"seed {seed}")
                    raise

    asyncio.run(test())


def test_frames_before_hello(shm_dir: Path) -> None:
    async def send(server: Running, fuzz: Fuzz) -> None:
        client = await Raw.connect(server.port)
        for _ in range(10):
            client.write(fuzz.frame("shop", "", PEER_LOG))
        await settle(client)

    fuzz(shm_dir, count(200, 5000), 0, send)


@pytest.mark.parametrize("purpose", list(Purpose))
def test_frames_after_hello(shm_dir: Path, purpose: Purpose) -> None:
    async def send(server: Running, fuzz: Fuzz) -> None:
        if fuzz.random.random() < 0.8:
            fuzz.commands = FROM_CLIENTS
        client = await Raw.connect(server.port)
        await client.hello("shop", purpose=purpose, buffer_cloud_events=3)
        if purpose is Purpose.SUBSCRIBE:
            start = fuzz.random.choice((None, "earliest"))
            await client.ask(Command.SUBSCRIBE_REQUEST, Subscribe("shop", client.session_id, ["**"], start))
        else:
            for number in range(5):
                event = RawBytes(an_event(fuzz.random.randrange(1 << 40)).encode())
                await client.ask(
                    Command.PUBLISH_MESSAGE_REQUEST, Publish("shop", client.session_id, f"f/{number}", event)
                )
        for _ in range(10):
            client.write(fuzz.frame("shop", client.session_id, PEER_LOG))
        await settle(client)

    fuzz(shm_dir, count(200, 5000), 1_000_000, send)


def test_frames_of_a_bridged_server(shm_dir: Path) -> None:
    async def send(server: Running, fuzz: Fuzz) -> None:
        fuzz.commands = FROM_SERVERS
        client = await Raw.connect(server.port)
        await client.hello("peer", is_server=True, urn="127.0.0.1", port=7, log_id=PEER_LOG, purpose=Purpose.PUBLISH)
        for _ in range(10):
            client.write(fuzz.frame("peer", client.session_id, PEER_LOG))
        await settle(client)

    fuzz(shm_dir, count(300, 5000), 2_000_000, send)


def test_answers_of_a_server_that_was_dialed(shm_dir: Path) -> None:
    async def test() -> None:
        async with watched(shm_dir) as server:
            seeds = iter(range(3_000_000, 3_000_000 + count(100, 2000)))
            done = asyncio.Event()

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                seed = next(seeds, None)
                if seed is None:
                    done.set()
                else:
                    await _dialed(Fuzz(seed, FROM_SERVERS), Raw(reader, writer))
                writer.close()

            listening = await asyncio.start_server(answer, "127.0.0.1", 0)
            port = listening.sockets[0].getsockname()[1]
            admin = await server.publisher("admin")
            bridges = server.server.core.bridges
            while not done.is_set():
                await admin.ask(Command.ADD_BRIDGE_REQUEST, AddBridge("127.0.0.1", port, "admin", admin.session_id))
                for bridge in bridges.bridges.values():
                    bridge.due = bridge.pause = 0.0  # it dials at once
                server.server._tick()
                await asyncio.sleep(0)
            listening.close()

    asyncio.run(test())


async def _dialed(fuzz: Fuzz, there: Raw) -> None:
    try:
        hello = await there.receive()
        welcome = framed(protocol.encode(Command.HELLO_RESPONSE, hello.seq, Welcome("s", PEER_LOG)))
        there.write(welcome if fuzz.random.random() < 0.9 else fuzz.frame("server", "s", PEER_LOG))
        for _ in range(10):
            there.write(fuzz.frame("server", "s", PEER_LOG))
        await settle(there)
    except (ConnectionError, EOFError):
        pass  # the server has closed, as it may


def test_a_hello_of_a_server_with_impossible_properties(shm_dir: Path) -> None:
    async def test() -> None:
        async with watched(shm_dir) as server:
            for more in (
                {"topics": ["a//b"]},
                {"topics": ["x" * 300]},
                {"topics": ["**"] * 20_000},
                {"port": -1},
                {"port": 1 << 40},
                {"urn": ""},
                {"urn": "x" * 60_000},
                {"log_id": b""},
                {"log_id": server.log.log_id},
            ):
                hello: dict[str, Any] = {"urn": "127.0.0.1", "port": 7, "log_id": PEER_LOG, **more}
                client = await server.connect()
                answer = await client.ask(Command.HELLO_REQUEST, Hello("peer", is_server=True, **hello))
                assert answer.status == 1, more
                assert answer.description
                assert not server.server.core.bridges.links

    asyncio.run(test())
