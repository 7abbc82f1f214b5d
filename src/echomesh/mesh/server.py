"""The server: sockets, timers and threads around the core."""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, cast

from typing_extensions import Buffer

from echomesh.log import AsyncTopicLog
from echomesh.mesh.bodies import Server
from echomesh.mesh.bridging import Bridge
from echomesh.mesh.core import MeshCore
from echomesh.mesh.log_port import AsyncLogPort
from echomesh.mesh.near import is_loopback, send_at_once
from echomesh.mesh.options import MeshOptions
from echomesh.mesh.outlet import Outlet
from echomesh.mesh.pipe import Pipe
from echomesh.mesh.ports import AccessPort, Login, Logins, StatePort

HIGH_WATER = 256 << 10
READ_BYTES = 256 << 10
LITTLE_BYTES = 16 << 10  # of a link, most of whose messages are large, and are read in place once they are known
DIAL_SECONDS = 5.0


class MeshServer:
    """Serves the EventMesh protocol over TCP from a log that is open for writing.

    It owns neither the log nor the state: whoever opened them closes them, after `close`.
    """

    def __init__(
        self,
        log: AsyncTopicLog,
        access: AccessPort,
        state: StatePort,
        options: MeshOptions | None = None,
        *,
        local_access: AccessPort | None = None,
        credentials: Callable[[Server], Login] = lambda server: ("server", None),
        logins: Logins | None = None,
        bridge_tls: ssl.SSLContext | None = None,
        ticket_key: bytes | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._flushing = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._servers: list[asyncio.Server] = []
        self._progress = asyncio.Event()
        self.port = AsyncLogPort(log, self.settled)
        self.buffer = memoryview(bytearray(READ_BYTES))
        """For what comes over any connection: it is dealt with at once."""
        self.little = self.buffer[:LITTLE_BYTES]
        self._bridge_tls = bridge_tls
        self._dials: set[asyncio.Task[None]] = set()
        self.core = MeshCore(
            self.port,
            access,
            state,
            options or MeshOptions(),
            local_access=local_access,
            credentials=credentials,
            logins=logins,
            ticket_key=ticket_key,
        )
        self.core.on_output = self.flush_soon
        self.core.on_timer = self._tick_at
        self._tick()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> Sequence[tuple[str, int]]:
        """Listens there too; the addresses that it got."""
        patience = self.core.options.stranger_s if tls is not None else None
        server = await self._loop.create_server(
            lambda: _Wire(self), host, port, ssl=tls, ssl_handshake_timeout=patience, backlog=2048
        )
        self._servers.append(server)
        return [cast("tuple[str, int]", socket.getsockname()[:2]) for socket in server.sockets]

    def settled(self) -> None:
        """Something is on disk: answers what waited for it, a turn of the loop earlier than `flush_soon` would."""
        self._flushing = True  # so nobody calls for it, and who has called already has it by this
        try:
            self.core.settled(self._loop.time())
        finally:
            self._flushing = False
        self._progress.set()
        if not self._closed:
            self._send()

    def reconsider(self, clients: frozenset[str]) -> None:
        """The entries of these clients in the access file changed."""
        self.core.reconsider(clients)
        self.flush_soon()

    def _tick(self) -> None:
        now = self._loop.time()
        self._timer = None
        self._tick_at(min(self.core.tick(now), now + 1.0))
        self.flush_soon()

    def _tick_at(self, when: float) -> None:
        # What is due at once has no time of its own with uvloop, so that is kept beside it.
        if self._timer is None or when < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = when
            # Whole milliseconds, and at least one: uvloop rounds to the nearest, and what comes early comes once more.
            pause = max(1, math.ceil((when - self._loop.time()) * 1000)) / 1000
            self._timer = self._loop.call_later(pause, self._tick)

    def flush_soon(self) -> None:
        """Output leaves at the end of this turn of the event loop: one write for each connection."""
        if not self._flushing and not self._closed:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._flushing and not self._closed:
            self._flushing = False
            self._send_all()

    def _send_all(self) -> None:
        self.core.pump()
        self._send()

    def _send(self) -> None:
        self.core.state.flush()
        while self.core.dirty:
            dirty, self.core.dirty = self.core.dirty, []
            # The last first: what is delivered leaves before the answer to who published it, who would be woken first.
            for pipe in reversed(dirty):
                if pipe.wire is not None:
                    pipe.wire.flush()
        while self.core.bridges.to_dial:
            task = self._loop.create_task(self._dial(self.core.bridges.to_dial.pop()))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)

    async def _dial(self, bridge: Bridge) -> None:
        server = bridge.server
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._loop.create_connection(
                    lambda: _Wire(self, bridge), server.urn, server.port, ssl=self._bridge_tls
                )
        except (OSError, ValueError, TimeoutError) as error:
            self.core.bridges.dial_failed(bridge, str(error) or "no answer in time", self._loop.time())
            self.flush_soon()

    async def close(self, grace: float = 5.0) -> None:
        """Answers what waits for the disk, tells the clients, and closes."""
        for server in self._servers:
            server.close()
        self.core.stop(self._loop.time())
        self.flush_soon()
        deadline = self._loop.time() + grace
        await self._until(lambda: self.core.idle, deadline)
        self._send_all()
        for pipe in self._pipes():
            pipe.close()
        self._send_all()
        await self._until(lambda: not self._pipes(), deadline)
        for pipe in self._pipes():
            if pipe.wire is not None:
                pipe.wire.abort()
        for task in self._dials:
            task.cancel()
        self._send_all()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(self.port.close)

    async def _until(self, reached: Callable[[], bool], deadline: float) -> None:
        while not reached() and (left := deadline - self._loop.time()) > 0:
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._progress.wait()

    def _pipes(self) -> list[Pipe]:
        dialed = [bridge.dialed for bridge in self.core.bridges.bridges.values() if bridge.dialed is not None]
        return [*self.core.connections, *dialed]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Wire(asyncio.BufferedProtocol):
    """One TCP connection. All read into one buffer; large messages are read to where they stay."""

    def __init__(self, server: MeshServer, bridge: Bridge | None = None) -> None:
        self.server = server
        self.bridge = bridge
        self.connection: Pipe | None = None
        self.transport: asyncio.Transport | None = None
        self.reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)
        self._outlet = Outlet(self.transport)
        send_at_once(transport.get_extra_info("socket"))
        address = transport.get_extra_info("peername")
        host = address[0] if isinstance(address, tuple) else "local"
        now = self.server._loop.time()
        core = self.server.core
        if self.bridge is not None:
            self.connection = core.bridges.dialed(self.bridge, now)
        else:
            self.connection = connection = core.connect(host, now, local=is_loopback(host))
            if connection is not None:
                connection.on_part = self.server.port.log.look
        if self.connection is None:
            self.transport.abort()
        else:
            self.connection.wire = self
            self.server.flush_soon()

    def get_buffer(self, sizehint: int) -> Buffer:
        connection = self.connection
        if connection is not None:
            if connection.splitter.block is not None:
                return memoryview(connection.splitter.block)
            if connection.carries_link:
                return self.server.little
        return self.server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        connection = self.connection
        if connection is None:
            return
        server = self.server
        now = server._loop.time()
        server.core.now = now
        if connection.splitter.block is None:
            connection.receive(server.buffer[:nbytes], now)
        elif not connection.filled(nbytes, now):
            return
        if server.core.answerable:
            server.settled()
        if self.reading and connection.paused and self.transport is not None:
            self.reading = False
            self.transport.pause_reading()
        server.flush_soon()

    def flush(self) -> None:
        """Sends what the connection has, and ends it if that was the last."""
        connection, transport = self.connection, self.transport
        if connection is None or transport is None:
            return
        if connection.aborting:
            transport.abort()
        if transport.is_closing():
            return
        self._outlet.send(connection.take_pieces())
        if connection.closing:
            transport.close()
        elif not self.reading and not connection.paused:
            self.reading = True
            transport.resume_reading()

    def abort(self) -> None:
        """Ends it without waiting."""
        if self.transport is not None:
            self.transport.abort()

    @property
    def unsent(self) -> int:
        """Bytes that the other end has no room for yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.blocked = True

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.blocked = False
            self.connection.unblocked()
            self.server.core.mark(self.connection)
            self.server.flush_soon()

    def connection_lost(self, error: Exception | None) -> None:
        self._outlet.close()
        if self.connection is not None:
            self.connection.lost(self.server._loop.time())
            self.server._progress.set()
            self.server.flush_soon()
