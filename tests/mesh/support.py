"""A real server in this process, and a client that speaks the protocol by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw as RawBytes

from echomesh.events import Event
from echomesh.frames import Splitter, framed
from echomesh.log import AsyncTopicLog, LogOptions
from echomesh.mesh import protocol
from echomesh.mesh.access import Access, open_access
from echomesh.mesh.bodies import Body, Hello
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.options import MeshOptions
from echomesh.mesh.ports import AccessPort
from echomesh.mesh.protocol import Message
from echomesh.mesh.server import MeshServer
from echomesh.mesh.state import StateFile
from echomesh.mesh.verifying import AsyncAccess

PATIENCE_S = 20.0


class Running:
    """A server that serves on a free port of this machine."""

    def __init__(self, server: MeshServer, log: AsyncTopicLog, state: StateFile) -> None:
        self.server = server
        self.log = log
        self.state = state
        self.port = 0
        self.clients: list[Raw] = []

    async def connect(self) -> Raw:
        """A connection without a session."""
        raw = await Raw.connect(self.port)
        self.clients.append(raw)
        return raw

    async def client(self, client_id: str = "shop", **hello: Any) -> Raw:
        """A connection with a session."""
        raw = await self.connect()
        await raw.hello(client_id, **hello)
        return raw

    async def publisher(self, client_id: str = "shop", **hello: Any) -> Raw:
        """A connection with a session that publishes."""
        return await self.client(client_id, purpose=Purpose.PUBLISH, **hello)


@asynccontextmanager
async def serving(
    directory: Path,
    options: MeshOptions | None = None,
    *,
    access: Access | None = None,
    log_options: LogOptions | None = None,
    port: int = 0,
) -> AsyncIterator[Running]:
    """A server on this directory, open to everybody unless there is an access."""
    loop = asyncio.get_running_loop()
    async with AsyncTopicLog(directory, log_options) as log:
        started: list[MeshServer] = []

        def settled() -> None:
            loop.call_soon_threadsafe(lambda: started[0].settled() if started else None)

        state = StateFile(directory / "mesh.state", log.log_id, threaded=True, notify=settled)
        checking = None if access is None else AsyncAccess(lambda: access, loop)
        judge: AccessPort = checking or open_access()
        server = MeshServer(log, judge, state, options)
        started.append(server)
        running = Running(server, log, state)
        try:
            addresses = await server.listen("127.0.0.1", port)
            running.port = addresses[0][1]
            yield running
        finally:
            await server.close()
            state.close()
            if checking is not None:
                checking.close()
            for client in running.clients:
                client.close()


class Raw:
    """Sends and receives messages, one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client_id = ""
        self.session_id = ""
        self._splitter = Splitter(64 << 20)
        self._payloads: list[bytes] = []
        self._numbers = 0

    @classmethod
    async def connect(cls, port: int) -> Raw:
        """A connection without a session."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def hello(self, client_id: str, **properties: Any) -> Message:
        """Begins a session."""
        self.client_id = client_id
        answer = await self.ask(Command.HELLO_REQUEST, Hello(client_id, **properties))
        if answer.status == 0:
            self.session_id = protocol.body_of(answer).session_id
        return answer

    def send(self, command: Command, body: Body | None = None, seq: str | None = None) -> str:
        """Sends a request; its seq."""
        self._numbers += 1
        number = f"n{self._numbers}" if seq is None else seq
        self.writer.write(framed(protocol.encode(command, number, body)))
        return number

    def write(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.writer.write(data)

    async def ask(self, command: Command, body: Body | None = None, seq: str | None = None) -> Message:
        """Sends a request, and waits for its answer; what comes before it is dropped."""
        number = self.send(command, body, seq)
        while True:
            answer = await self.receive()
            if answer.seq == number:
                return answer

    async def receive(self) -> Message:
        """The next message; `EOFError` when the server closed."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._payloads:
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._payloads.extend(self._splitter.feed(data))
        return protocol.decode(self._payloads.pop(0))

    async def closed(self) -> bool:
        """Waits until the server has closed the connection."""
        try:
            while True:
                await self.receive()
        except (EOFError, ConnectionError):
            return True

    def close(self) -> None:
        """Ends the connection."""
        self.writer.close()


def an_array(*events: Event) -> RawBytes:
    """These events as one server sends them to another."""
    return RawBytes(msgspec.msgpack.encode([RawBytes(event.encode()) for event in events]))


def an_event(number: int = 0, size: int = 0, **more: Any) -> Event:
    """An event that is like no other."""
    return Event(type="order.created", source="/shop", id=f"e{number}", data=b"x" * size if size else None, **more)
