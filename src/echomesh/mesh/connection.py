"""One connection of a server: frames in, frames out, and the session that it carries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from echomesh.errors import BadMessage, EchomeshError, LogError
from echomesh.mesh import checks, protocol
from echomesh.mesh.bodies import Body, Figures
from echomesh.mesh.codes import Command, ErrorCode, Status
from echomesh.mesh.pipe import Piece, Pipe
from echomesh.mesh.protocol import Message
from echomesh.mesh.refusal import Refusal, failed, refused_by
from echomesh.mesh.requests import HANDLERS

if TYPE_CHECKING:
    from echomesh.mesh.core import MeshCore
    from echomesh.mesh.link import Link
    from echomesh.mesh.session import Session
    from echomesh.native.mesh_publish import Lane

SAID_BY_SERVERS: Final = frozenset(
    (
        Command.ASYNC_MESSAGE_TO_SERVER,
        Command.ASYNC_MESSAGE_TO_CLIENT_ACK,
        Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE,
        Command.PUBLISH_MESSAGE_REQUEST,
        Command.PUBLISH_MESSAGE_RESPONSE,
        Command.HEARTBEAT_RESPONSE,
        Command.ROUTES,
    )
)
HELD_BYTES: Final = 256 << 10  # of a stranger, while its password is being checked
OUT_BYTES: Final = 256 << 10  # of answers; beyond it, other requests wait until these are out
PART_BYTES: Final = 128 << 10  # of publishes, after which those before them may be answered already
REQUEST_BYTES: Final = 256  # what a request that waits costs besides its event


class Connection(Pipe):
    """What a server knows of one connection that came in."""

    def __init__(self, core: MeshCore, peer: str, now: float, *, local: bool = False) -> None:
        super().__init__(core, peer, now, core.options.stranger_bytes)
        self.local = local
        self.session: Session | None = None
        self.in_flight: dict[str, int] = {}
        """Requests that are not answered yet, and their sizes."""
        self.lane: Lane | None = None
        """The short way of publishes, once the session is one that publishes."""
        self.on_part: Callable[[], None] | None = None
        """Called in the midst of many publishes: the disk may begin with those that are there."""
        self.checking = False
        """While a password is being checked, what follows is held; also when there is much output already."""
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._reassured = now

    @property
    def paused(self) -> bool:
        """Whether reading on would hold more than the connection is worth."""
        if self.carries_link:
            # For the disk alone: two servers that wait for each other to read would wait for ever.
            return self.in_flight_bytes > self.core.options.in_flight_bytes
        waiting = self.in_flight_bytes + len(self.in_flight) * REQUEST_BYTES
        if self.lane is not None:
            waiting += self.lane.in_flight_bytes
        return self.blocked or bool(self._held) or waiting > self.core.options.in_flight_bytes

    def receive(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """Deals with what came; what a stranger leaves waiting is counted."""
        if not self.closing:
            super().receive(data, now)
            if self.session is None:
                self._count_kept()

    def take(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """What is to be done with bytes: those of a session that publishes take the short way."""
        if self.lane is None:
            super().take(data, now)
        else:
            self._publishes(memoryview(data), now)

    def reassure(self, now: float) -> None:
        """Tells a client that its long message comes: before that is whole, no heartbeat gets through."""
        pause = self.core.options.heartbeat_s
        if self.session is not None and self.splitter.waiting and now - max(self.frame_since, self._reassured) >= pause:
            self._reassured = now
            self.session.delivery.notice("receiving", [])

    def _count_kept(self) -> None:
        self.core.strangers.keeps(self, self.splitter.waiting + self._held_bytes)

    def _publishes(self, data: memoryview, now: float) -> None:
        """The same for a session that publishes: its requests take the short way, as far as they can."""
        splitter, at, end = self.splitter, 0, len(data)
        while at < end and not self.closing:
            cut = end
            if self.lane is not None and not (self._held or self.checking or self.out_bytes > OUT_BYTES):
                if splitter.waiting:
                    cut = min(end, at + splitter.missing)
                else:
                    begun, at = at, self.lane.take_frames(data, at, now, PART_BYTES)
                    if at - begun >= PART_BYTES:
                        if self.on_part is not None:
                            self.on_part()
                        continue
            self.messages(splitter.feed(data[at:cut]), now)
            at = cut

    def messages(self, payloads: Iterable[bytes], now: float) -> None:
        """Deals with requests, or holds them while they have to wait."""
        for payload in payloads:
            if self._held or self.checking or (self.out_bytes > OUT_BYTES and not self.carries_link):
                self._hold(payload)
            elif self.lane is not None and self._published(payload, now):
                continue
            elif not self.closing:
                self._message(payload, now)

    def _published(self, payload: bytes, now: float) -> bool:
        assert self.lane is not None
        try:
            return not self.closing and self.lane.take(payload, now)
        except LogError:
            return False  # the long way says what is wrong

    def _hold(self, payload: bytes) -> None:
        self._held.append(payload)
        self._held_bytes += len(payload)
        if self._held_bytes > HELD_BYTES and self.session is None:
            raise BadMessage("too much was sent before HELLO was answered")

    def checked(self, now: float) -> None:
        """The password was checked: what was held is dealt with."""
        self.checking = False
        self.go_on(now)
        if self.session is None:
            self._count_kept()

    def go_on(self, now: float) -> None:
        """Deals with what was held, unless it has to wait on."""
        if self.checking or self.blocked or not self._held:
            return
        held, self._held, self._held_bytes = self._held, [], 0
        self.deal(held, now)
        self.core.mark(self)  # it may be read on

    def take_pieces(self) -> list[Piece]:
        """What is to be sent now; then there is room for other answers."""
        if self._held:
            self.core.go_on_soon(self)
        return super().take_pieces()

    def _message(self, payload: bytes, now: float) -> None:
        message = protocol.decode(payload)
        if self.session is not None and self.session.link is not None and message.command in SAID_BY_SERVERS:
            self._from_server(self.session.link, message, now)
            return
        handler = HANDLERS.get(message.command)
        if handler is None:
            raise BadMessage(f"{Command(message.command).name} is nothing that a server is asked", message.seq)
        try:
            body = protocol.body_of(message)
        except BadMessage as error:
            error.command = message.command
            raise
        seq = message.seq
        if not seq or seq in self.in_flight:
            why = "seq is empty" if not seq else f"seq {seq[:40]!r} is in flight already"
            self.answer(message.command, seq, status=Status.FAIL, error=ErrorCode.INVALID_SEQ, description=why)
            return
        try:
            if self.session is not None and self.session.allowed is not None:
                checks.within_ticket(self.session.allowed, message.command)
            handler(self, message, body, now)
        except Refusal as refusal:
            self.refuse(message, refusal)
        except EchomeshError as error:
            self.refuse(message, refused_by(error))

    def _from_server(self, link: Link, message: Message, now: float) -> None:
        try:
            self.core.bridges.message(link, message, now)
        except Refusal as refusal:
            self.refuse(message, refusal)
        except BadMessage:
            raise
        except EchomeshError as error:
            self.refuse(message, failed(str(error)))

    def begin(self, message: Message, size: int = 0) -> None:
        """The request of this message is answered later, with `finish`."""
        size += len(message.seq)
        self.in_flight[message.seq] = size
        self.in_flight_bytes += size

    def finish(self, seq: str) -> bool:
        """Whether the request is still to be answered; it is no longer in flight."""
        size = self.in_flight.pop(seq, None)
        if size is None:
            return False
        self.in_flight_bytes -= size
        return not self.closed

    def answer(
        self,
        command: int,
        seq: str,
        body: Body | None = None,
        *,
        status: Status = Status.SUCCESS,
        error: ErrorCode = ErrorCode.NONE,
        description: str | None = None,
    ) -> None:
        """Answers the request `command`."""
        reply = protocol.answer_to(command)
        self.send(reply, seq, body, status=status, error=error, description=description)

    def refuse(self, message: Message, refusal: Refusal) -> None:
        """Answers that it is not done, and why."""
        self.answer(
            message.command,
            message.seq,
            Figures(list(refusal.figures)) if refusal.figures else None,
            status=refusal.status,
            error=refusal.error,
            description=refusal.description,
        )

    def refuse_all(self, error: BadMessage) -> None:
        """The other end does not speak the protocol: it is told, where it can be, and the connection ends."""
        self.core.counts.refused_connections += 1
        if error.seq:
            self.answer(error.command, error.seq, status=Status.FAIL, description=str(error))
        self.close()

    def unblocked(self) -> None:
        """The other end reads again."""
        if self._held:
            self.core.go_on_soon(self)
        if self.session is not None:
            self.core.to_pump[self.session.delivery] = None

    def gone(self, now: float) -> None:
        """Its session goes with it."""
        self._held.clear()
        self.core.forget(self, now)
