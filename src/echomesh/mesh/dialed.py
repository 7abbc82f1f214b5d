"""The connection that this server made to another one, as its client, for a bridge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from echomesh.errors import BadMessage, EchomeshError
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Hello, Server, Welcome
from echomesh.mesh.codes import Command, ErrorCode, Purpose, Status
from echomesh.mesh.link import Link
from echomesh.mesh.pipe import Pipe
from echomesh.mesh.protocol import Message
from echomesh.mesh.refusal import Refusal
from echomesh.native.blocks import Block

if TYPE_CHECKING:
    from echomesh.mesh.bridging import Bridge
    from echomesh.mesh.core import MeshCore


class Dialed(Pipe):
    """Says HELLO as a server, and carries a link once it is welcome."""

    def __init__(
        self,
        core: MeshCore,
        bridge: Bridge,
        now: float,
        credentials: tuple[str, str | None],
        ended: Callable[[str], None],
    ) -> None:
        super().__init__(core, f"{bridge.server.urn}:{bridge.server.port}", now, core.options.frame_bytes)
        self.splitter.direct = Block
        self.bridge = bridge
        self.link: Link | None = None
        self.why = "the connection was lost"
        self._ended = ended
        self._client_id, password = credentials
        hello = Hello(
            self._client_id,
            urn=core.options.urn,
            port=core.options.port,
            password=password,
            purpose=Purpose.PUBLISH,
            is_server=True,
            pid=os.getpid(),
            log_id=core.log.log_id,
            topics=bridge.topics,
        )
        self.send(Command.HELLO_REQUEST, "hello", hello)

    @property
    def paused(self) -> bool:
        """While much waits for the disk. Never for the other end: both would wait for ever."""
        return self.in_flight_bytes > self.core.options.in_flight_bytes

    def messages(self, payloads: Iterable[bytes], now: float) -> None:
        """Deals with what the other server says."""
        for payload in payloads:
            if not self.closing:
                self._message(protocol.decode(payload), now)

    def refuse_all(self, error: BadMessage) -> None:
        """Gives the connection up."""
        self.fail(f"it does not speak EventMesh: {error}")

    def _message(self, message: Message, now: float) -> None:
        if self.link is None:
            if message.command == Command.HELLO_RESPONSE:
                self._welcomed(message, now)
            return
        try:
            self.core.bridges.message(self.link, message, now)
        except Refusal as refusal:
            reply = protocol.answer_to(message.command)
            self.send(reply, message.seq, status=refusal.status, error=refusal.error, description=refusal.description)
        except EchomeshError as error:
            if isinstance(error, BadMessage):
                raise
            reply = protocol.answer_to(message.command)
            self.send(reply, message.seq, status=Status.FAIL, error=ErrorCode.NONE, description=str(error))

    def _welcomed(self, message: Message, now: float) -> None:
        if message.status != Status.SUCCESS:
            self.fail(message.error or message.description or "it refused")
            return
        welcome: Welcome = protocol.body_of(message)
        if welcome.log_id is None or len(welcome.log_id) != 16:
            self.fail("it can't be bridged: it does not say which log it has")
        elif welcome.log_id == self.core.log.log_id:
            self.fail("it is this server itself")
        else:
            server = Server(self.bridge.server.urn, self.bridge.server.port)
            session = (self._client_id, welcome.session_id)
            self.link = Link(self.core, self, server, welcome.log_id, session, self.bridge.topics, None)
            self.core.bridges.linked(self.link, self.bridge, now)

    def heartbeat(self, now: float) -> None:
        """Says that we are there; a server that says nothing for long is lost."""
        if self.silent(now):
            self.why = self.why if self.closing else "it went silent"
            self.abort()
        else:
            self.send(Command.HEARTBEAT_REQUEST, "alive")

    def fail(self, why: str) -> None:
        """Gives the connection up."""
        self.why = why
        self.close()

    def unblocked(self) -> None:
        """The other end reads again: its link goes on with the next pass over all of them."""

    def gone(self, now: float) -> None:
        """The bridge dials again later."""
        if self.link is not None:
            self.core.bridges.unlinked(self.link, now)
        self._ended(self.why)
