"""The participant: sockets, timers and files around its core."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from types import TracebackType
from typing import Final, Self, cast

from echomesh.data.beacon_socket import BeaconSocket
from echomesh.data.config import PARTICIPANT_PORT, DataOptions
from echomesh.data.messages import VERSION, Hello, Process
from echomesh.data.outputs import Broadcast, Close, Dial, Output, Send, Streamed, Unwire, Wire
from echomesh.data.participant_core import Identity, ParticipantCore
from echomesh.data.proof import proven
from echomesh.data.starting import Home
from echomesh.data.wiring import Wiring
from echomesh.errors import PortTaken

_log = logging.getLogger(__name__)

DIAL_S: Final = 3.0
MAX_UNSENT: Final = 16 << 20
"""Bytes that a connection may have waiting: who does not read is dropped, and comes back."""
_BACKLOG: Final = 1024


class _Connection(asyncio.Protocol):
    """One connection, of a participant or of a process; the core knows it by its number."""

    def __init__(self, participant: Participant, number: int | None = None, *, local: bool = False) -> None:
        self._participant = participant
        self._local = local
        self.number = number
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = self._participant.opened(self, local=self._local)
        if self.number is None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.number is not None:
            self._participant.received(self.number, data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.number is not None:
            self._participant.lost(self.number)


class Participant:
    """The participant of this machine, user and domain.

        async with Participant(DataOptions()) as participant:
            await participant.done()

    It ends by itself once the last process has left, unless it runs as a `service`.
    """

    def __init__(self, options: DataOptions | None = None, *, service: bool = False) -> None:
        self.options = options or DataOptions()
        self.home = Home(self.options.meeting())
        self._service = service
        self._done = asyncio.Event()
        self._connections: dict[int, _Connection] = {}
        self._dials: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._beacon: BeaconSocket | None = None
        self._wiring: Wiring | None = None

    async def start(self) -> None:
        """Becomes the participant; `OwnerAlive` where there is one."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self.home.enter)
        try:
            links = await self._listen("0.0.0.0", self.options.link_port, "link", "ECHOMESH_LINK_PORT", local=False)
            self.port = await self._listen_locally()
            cookie = secrets.token_bytes(32)
            self.core = self._make_core(links, cookie)
            self._wiring = Wiring(self.home.directory, self.options.beacon_s, self._wired, self._in_use, self._dead)
            self._wiring.start()
            self._beacon = BeaconSocket(self.options, self._heard)
            for server in self._servers:
                await server.start_serving()
            self.home.publish(self.port, cookie)
        except BaseException:
            await self.close()
            raise
        self._advance()

    def _make_core(self, link_port: int, cookie: bytes) -> ParticipantCore:
        options = self.options
        hello = Hello(link_port, VERSION, options.domain, os.urandom(16), time.time_ns())
        identity = Identity(
            hello=hello,
            cookie=cookie,
            beacon_s=options.beacon_s,
            linger_s=float("inf") if self._service else options.linger_s,
            # Streams of an earlier participant keep their references: those of this one must be others.
            first_reference=1 + (secrets.randbits(30) << 32),
        )
        return ParticipantCore(identity, self._loop.time(), self._proven)

    def _proven(self, process: Process) -> bool:
        return proven(self.home.directory, process.nukleus, process.proof)

    async def _listen(self, ip: str, port: int, what: str, variable: str, *, local: bool) -> int:
        try:
            server = await self._loop.create_server(
                lambda: _Connection(self, local=local), ip, port, backlog=_BACKLOG, start_serving=False
            )
        except OSError:
            raise PortTaken(what, port, variable) from None
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _listen_locally(self) -> int:
        wanted = self.options.participant_port
        try:
            return await self._listen("127.0.0.1", wanted, "local", "ECHOMESH_PARTICIPANT_PORT", local=True)
        except PortTaken:
            # Another user's or domain's participant has the usual port: ours are told the port beside the cookie.
            if wanted != PARTICIPANT_PORT:
                raise
            return await self._listen("127.0.0.1", 0, "local", "ECHOMESH_PARTICIPANT_PORT", local=True)

    async def done(self) -> None:
        """Returns when the last process has left, or somebody called `stop`."""
        await self._done.wait()

    def stop(self) -> None:
        """Ends `done`."""
        self._done.set()

    async def close(self) -> None:
        """Leaves; streams between processes stay, and their processes find or start the next participant."""
        self._closed = True
        self.home.withdraw()
        for server in self._servers:
            server.close()
        if self._timer is not None:
            self._timer.cancel()
        for dial in tuple(self._dials):
            dial.cancel()
        for connection in tuple(self._connections.values()):
            if connection.transport is not None:
                connection.transport.abort()
        if self._beacon is not None:
            self._beacon.close()
        if self._wiring is not None:
            await self._wiring.close()
        await asyncio.sleep(0)  # transports that were ended say so once more
        await asyncio.to_thread(self.home.leave)

    # What happens

    def _heard(self, data: bytes, ip: str) -> None:
        self.core.datagram(data, ip, self._loop.time())
        self._flush()

    def opened(self, connection: _Connection, *, local: bool) -> int | None:
        """A connection was made, by us where it has a number already."""
        number, now = connection.number, self._loop.time()
        if number is not None:
            number = number if self.core.connected(number) else None
        elif local:
            number = self.core.local(now)
        else:
            assert connection.transport is not None
            peer = connection.transport.get_extra_info("peername")
            number = self.core.accepted(peer[0], now) if peer else None
        if number is not None:
            self._connections[number] = connection
            self._flush()
        return number

    def received(self, number: int, data: bytes) -> None:
        """Bytes came."""
        self.core.received(number, data, self._loop.time())
        self._flush()

    def lost(self, number: int) -> None:
        """A connection is over."""
        if self._connections.pop(number, None) is not None:
            self.core.lost(number, self._loop.time())
            self._flush()

    def _wired(self, reference: int, made: Streamed) -> None:
        self.core.wired(reference, made)
        self._flush()

    def _in_use(self) -> set[str]:
        return self.core.locals.nuklei()

    def _dead(self, nuklei: set[str]) -> None:
        self.core.dead(nuklei, self._loop.time())
        self._flush()

    def _advance(self) -> None:
        self.core.advance(self._loop.time())
        self._flush()
        if self.core.over(self._loop.time()):
            self.stop()

    # What is to be done

    def _flush(self) -> None:
        if self._closed:
            return
        try:
            for output in self.core.take():
                self._do(output)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self.core.deadline, self._advance)

    def _do(self, output: Output) -> None:
        match output:
            case Send(number, data):
                self._send(number, data)
            case Close(number):
                connection = self._connections.pop(number, None)
                if connection is not None and connection.transport is not None:
                    connection.transport.close()
            case Broadcast(data):
                if self._beacon is not None:
                    self._beacon.send(data)
            case Dial():
                task = self._loop.create_task(self._dial(output))
                self._dials.add(task)
                task.add_done_callback(self._dials.discard)
            case Wire():
                assert self._wiring is not None
                self._wiring.wire(output)
            case Unwire():
                assert self._wiring is not None
                self._wiring.unwire(output)

    def _send(self, number: int, data: bytes) -> None:
        connection = self._connections.get(number)
        if connection is None or connection.transport is None:
            return
        connection.transport.write(data)
        if connection.transport.get_write_buffer_size() > MAX_UNSENT:
            self.core.counters["slow connections"] += 1
            connection.transport.abort()

    async def _dial(self, dial: Dial) -> None:
        try:
            async with asyncio.timeout(DIAL_S):
                await self._loop.create_connection(lambda: _Connection(self, dial.connection), dial.ip, dial.port)
        except OSError as error:
            _log.debug("%s:%d can't be reached: %s", dial.ip, dial.port, error)
            if dial.connection not in self._connections:
                self.core.lost(dial.connection, self._loop.time())
                self._flush()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
