"""HTTP connections: uvicorn's, with a bound on how many there are and on how long each may dawdle."""

from __future__ import annotations

import asyncio
import logging
import socket
from email.utils import formatdate
from typing import TYPE_CHECKING, Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from echomesh.mesh.http_problems import MEDIA_TYPE, Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from echomesh.mesh.http import HttpOptions


ABORT_S: Final = 1.0  # for a request to see that its connection is gone


class Wires:
    """The connections of one server."""

    def __init__(self, app: ASGIApp, options: HttpOptions) -> None:
        self.options = options
        self.state = ServerState()
        self.config = uvicorn.Config(
            _Sending(app, options.stall_s),
            http=Wire,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            # What a proxy says of the peer is not believed: the peer decides whether a password is asked for.
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        self.config.load()
        self.closing = False

    def protocol(self) -> Wire:
        """The protocol of a new connection."""
        return Wire(self)

    async def close(self, grace: float) -> None:
        """Ends idle connections now, the others when their request is answered, at the latest after `grace`."""
        self.closing = True
        for wire in self._all():
            wire.shutdown()
        await self._until_answered(grace)
        for wire in self._all():
            wire.abort()
        await self._until_answered(ABORT_S)
        for task in self.state.tasks:
            task.cancel()
        await self._until_answered(ABORT_S)

    async def _until_answered(self, timeout: float) -> None:
        if self.state.tasks:
            await asyncio.wait(set(self.state.tasks), timeout=timeout)

    def _all(self) -> list[Wire]:
        return [cast(Wire, wire) for wire in self.state.connections]


class Wire(H11Protocol):
    """One connection. Whenever no request is being answered, the head of the next must come within `idle_s`."""

    def __init__(self, wires: Wires) -> None:
        super().__init__(wires.config, wires.state, {"wire": self})
        self._wires = wires
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._wires.closing or len(self.connections) > self._wires.options.max_connections:
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # A peer that is gone without a word is noticed by what it does not acknowledge.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._wires.options.stall_s * 1000))
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Its own timer begins anew with every byte.
        self._unset_keepalive_if_required()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def abort(self) -> None:
        """Ends it without waiting."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self._busy:
            self.abort()
            return
        head: list[tuple[bytes, bytes]] = [(b"content-type", MEDIA_TYPE.encode()), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=head, reason=b"Bad Request"),
            h11.Data(data=Problem(400, msg).body()),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        if self._busy:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._wires.options.idle_s, self.abort)


class _Sending:
    """Around the app: a reader that takes nothing for too long is given up, so that no answer waits for ever."""

    def __init__(self, app: ASGIApp, stall_s: float) -> None:
        self._app = app
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    (b"date", formatdate(usegmt=True).encode()),
                    (b"x-content-type-options", b"nosniff"),
                    (b"cache-control", b"no-store"),
                ]
                message["headers"] = [*message.get("headers", ()), *headers]
            try:
                async with asyncio.timeout(self._stall_s):
                    await send(message)
            except TimeoutError:
                scope["state"]["wire"].abort()

        await self._app(scope, receive, sending)
