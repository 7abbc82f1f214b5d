"""A session of a client on an event loop: connections that are made again when they break, around one `ClientCore`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from echomesh.errors import ConnectionLost, MeshError, SessionEnded, TakenOver, WrongEventLoop
from echomesh.mesh.bodies import Body, Nacked, Server
from echomesh.mesh.client_core import ClientCore
from echomesh.mesh.client_events import Answered, Broken, Delivery, Ended, Happening, Refused, Stored, Told, Up
from echomesh.mesh.client_limits import Limits
from echomesh.mesh.client_options import Backoff, ClientOptions
from echomesh.mesh.client_outbox import State
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.near import send_at_once
from echomesh.native.mesh_client import Soon, tell

SEND_BYTES: Final = 32 << 10  # of publishes, that are not kept back until the end of a turn


class Owner(Protocol):
    """Who is told what a link can't tell by an answer."""

    def delivered(self, delivery: Delivery) -> None:
        """Events came."""
        ...

    def leaving(self) -> None:
        """Acknowledgements are about to be sent."""
        ...

    def interrupted(self) -> None:
        """The connection broke: what it delivered, and was not acknowledged, comes again over the next one."""
        ...

    def failed(self, error: MeshError) -> None:
        """There will be no more: the link, or a subscription, can't be held."""
        ...


class Link:
    """Keeps a session with the server for one purpose, over as many connections as it takes.

    The first one is tried for `connect_timeout` seconds; when it breaks, others for `max_outage`. After that, and after
    a refusal that another attempt would not change, everything that waits fails, and the link is of no more use.
    """

    def __init__(self, options: ClientOptions, purpose: Purpose, owner: Owner | None = None) -> None:
        self.options = options
        self.core = ClientCore(options.hello(purpose))
        self.error: MeshError | None = None
        """Why the link is of no use any more."""
        self._owner = owner
        self.loop = asyncio.get_running_loop()
        self._flight = self.core.flight
        self._flight.window_events, self._flight.window_bytes = options.window_events, options.window_bytes
        self._flight.send_bytes = SEND_BYTES
        self.soon = Soon(self._flight, self.loop, self._send, self.plan)
        self._wire: _Wire | None = None
        self._transport: asyncio.Transport | None = None
        self._limits = Limits(self)
        self._timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._up: asyncio.Future[Broken | None] = self.loop.create_future()
        self._down: asyncio.Future[Broken] = self.loop.create_future()
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self._task = self.loop.create_task(self._keep())

    # Requests

    @property
    def full(self) -> bool:
        """Whether more publishes should wait."""
        flight = self._flight
        return flight.publishing >= flight.window_events or flight.in_flight_bytes >= flight.window_bytes

    def publish(self, topic: str, event: bytes, server: Server | None = None) -> asyncio.Future[int]:
        """Publishes; a future of the offset. `SessionBusy` when too much waits for its answer already."""
        future = self.soon.publish(topic, event, server)
        if future is None:
            raise self.error or WrongEventLoop
        return future

    def publish_as(self, token: Any, topic: str, event: bytes, server: Server | None = None) -> None:
        """The same with a future of the caller's own make."""
        if self.error is not None:
            raise self.error
        self.soon.publish_as(token, topic, event, server)

    async def room(self) -> None:
        """Waits until another publish may go."""
        while self.full and self.error is None:
            if self._room is None:
                self._room = self.loop.create_future()
            await asyncio.shield(self._room)

    async def request(
        self, command: Command, body: Body | None, *, again: bool = True, timeout: float | None = None
    ) -> Any:
        """Asks, and gives the body of the answer; `MeshTimeout` when none comes in time."""
        return await self.ask(lambda token: self.core.request(command, body, token, again=again), timeout)

    def ask(self, send: Callable[[asyncio.Future[Any]], object], timeout: float | None = None) -> asyncio.Future[Any]:
        """Lets `send` ask the core with a token: a future of the answer's body."""
        if self.error is not None:
            raise self.error
        future: asyncio.Future[Any] = self.loop.create_future()
        send(future)
        self._limits.watch(future, self.options.timeout if timeout is None else timeout)
        self.plan()
        return future

    async def nack(self, delivery: Delivery, offset: int, delay: float | None, reason: str | None) -> Nacked | None:
        """Gives an event back; None when it comes again anyway, since its connection is gone."""
        future: asyncio.Future[Nacked] = self.loop.create_future()
        if self.error is not None or not self.core.nack(delivery, offset, future, delay, reason):
            return None
        self._limits.watch(future, self.options.timeout)
        self.plan()
        try:
            return await future
        except ConnectionLost:
            return None

    def settle(self, delivery: Delivery, first: int, end: int) -> None:
        """Events were dealt with."""
        self.core.settle(delivery, first, end)
        self.plan()

    def check_loop(self) -> None:
        """Raises `WrongEventLoop` for those who come from elsewhere."""
        if asyncio._get_running_loop() is not self.loop:
            raise WrongEventLoop

    # What leaves, once for each turn of the event loop

    def plan(self) -> None:
        """Sends what there is at the end of this turn; the owner is asked before."""
        if not self.soon.planned and self._transport is not None:
            self.check_loop()
            self.soon.planned = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self.soon.planned = False
        if self._transport is not None:
            if self._owner is not None:
                self._owner.leaving()
            self.core.flush()
            self._send()

    def _send(self) -> None:
        """Sends what there is, early where more is still being made: the server begins with it meanwhile."""
        if self._transport is not None and (data := self.core.take_output(self.loop.time())):
            self._transport.write(data)

    # Connections

    async def _keep(self) -> None:
        options, backoff = self.options, Backoff()
        since, patience = self.loop.time(), options.connect_timeout
        broken: Broken | None = None
        while True:
            try:
                async with asyncio.timeout_at(since + patience):
                    broken = await self._connect()
            except TimeoutError:
                self._drop()
                why = "it does not answer" if broken is None else str(broken.error)
                return self.end(self._unreachable(why, patience))
            if broken is None:
                backoff.reset()
                broken = await self._down
                patience = options.max_outage
                # A server that welcomes us and does not answer is as good as none.
                since = self._limits.progress if broken.stalled else self.loop.time()
            if broken.final:
                return self.end(broken.error)
            pause = backoff.pause()
            if self.loop.time() + pause > since + patience:
                return self.end(self._unreachable(str(broken.error), patience))
            await asyncio.sleep(pause)

    async def _connect(self) -> Broken | None:
        """Makes a connection; None when it has a session."""
        self.core.withdraw(lambda token: bool(token.cancelled()))
        self._up, self._down = self.loop.create_future(), self.loop.create_future()
        server, tls = self.options.server, self.options.tls
        try:
            await self.loop.create_connection(lambda: _Wire(self), server.urn, server.port, ssl=tls)
        except ssl.SSLCertVerificationError as error:
            return Broken(self._unreachable(f"its certificate is not trusted: {error.verify_message}"), final=True)
        except OSError as error:
            return Broken(ConnectionLost(str(error)))
        return await self._up

    def _unreachable(self, why: str, patience: float = 0.0) -> ConnectionLost:
        server = self.options.server
        within = f" within {patience:g} s" if patience else ""
        return ConnectionLost(f"no session with {server.urn}:{server.port}{within}: {why}")

    def made(self, wire: _Wire, transport: asyncio.Transport) -> None:
        """A connection is there."""
        if self.error is not None:
            transport.abort()
            return
        self._wire, self._transport = wire, transport
        send_at_once(transport.get_extra_info("socket"))
        transport.set_write_buffer_limits(0)  # what is written is sent then, not at the end of the turn
        self.core.connected(self.loop.time())
        self._flush()
        self._tick()

    def received(self, data: bytes) -> None:
        """Bytes came."""
        self._handle(self.core.receive(data, self.loop.time()))
        if self.core.receiving:
            self._limits.moved()
        self.plan()

    def _tick(self) -> None:
        stalled = self._limits.stalled(self._flight.publishing)
        self._handle([stalled] if stalled is not None else self.core.tick(self.loop.time()))
        self.plan()
        self._wind()

    def _wind(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._timer = self.loop.call_at(min(self.core.timer(), self._limits.look_at()), self._tick)

    def lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        complaint = self.core.complaint
        why = str(complaint or error or "the server closed it")
        self._break(Broken(ConnectionLost(f"the connection broke: {why}")))

    def _break(self, broken: Broken) -> None:
        self._drop()
        for future in (self._up, self._down):
            if not future.done():
                future.set_result(broken)

    def _drop(self) -> None:
        """Lets go of the connection, if there is one."""
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.link = None
        if self._transport is not None:
            self._transport.abort()
        self._wire = self._transport = None
        if self._owner is not None:
            self._owner.interrupted()
        self._handle(self.core.disconnected())

    # What happened

    def _handle(self, happened: list[Happening]) -> None:
        for what in happened:
            match what:
                case Stored():
                    self._stored(what)
                case Delivery():
                    if self._owner is not None:
                        self._owner.delivered(what)
                case Answered():
                    if not what.token.done():
                        what.token.set_result(what.body)
                case Refused():
                    self._refused(what)
                case Up():
                    self._limits.moved()
                    self._up.set_result(None)
                    self._wind()
                case Told() if what.kind == "receiving":
                    self._limits.moved()
                case Told() if what.kind == "taken-over":
                    if self._owner is not None:
                        self._owner.failed(TakenOver(what.topics))
                case Broken():
                    self._break(what)
                    break
                case Ended() if not self._ended.done():
                    self._ended.set_result(None)
        self._wake()

    def _stored(self, stored: Stored) -> None:
        self._limits.answered()
        tell(stored.tokens, stored.offsets)

    def _refused(self, refused: Refused) -> None:
        if refused.resumed:
            if self._owner is not None and isinstance(refused.error, MeshError):
                self._owner.failed(refused.error)
        elif not refused.token.done():
            refused.token.set_exception(refused.error)

    def _wake(self) -> None:
        if self._room is not None and not (self.full and self.error is None):
            self._room.set_result(None)
            self._room = None
        if self._idle is not None and not self.core.waiting:
            self._idle.set_result(None)
            self._idle = None

    # The end

    async def close(self, patience: float = 5.0) -> None:
        """Waits for the answers that are due, ends the session, and lets go of the connection."""
        try:
            async with asyncio.timeout(patience):
                while self.core.waiting and self.error is None:
                    self._idle = self._idle or self.loop.create_future()
                    await asyncio.shield(self._idle)
                if self.core.state is State.UP:
                    self.core.disconnect()
                    self._flush()
                    await asyncio.wait((self._ended, self._down), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass
        self.end(SessionEnded("the session was closed"))

    def end(self, error: MeshError) -> None:
        """All that waits fails with this, and so does all that comes."""
        if self.error is not None:
            return
        self.error = error
        self.soon.over = True
        self._task.cancel()
        self._drop()
        self._handle(self.core.give_up(error))
        if self._owner is not None:
            self._owner.failed(error)


class _Wire(asyncio.Protocol):
    """One TCP connection; it forgets its link when the link lets go of it."""

    def __init__(self, link: Link) -> None:
        self.link: Link | None = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.link is not None:
            self.link.made(self, cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        if self.link is not None:
            self.link.received(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.link is not None:
            self.link.lost(error)
