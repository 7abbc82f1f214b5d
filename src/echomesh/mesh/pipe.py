"""One end of a connection, as the shell sees it: it brings what comes, and takes what goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from echomesh.errors import BadMessage
from echomesh.frames import Splitter, framed
from echomesh.log.stretch import Stretch
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Body
from echomesh.mesh.codes import Command, ErrorCode, Status

if TYPE_CHECKING:
    from echomesh.mesh.core import MeshCore


LARGE_BYTES: Final = 64 << 10

Piece = bytes | memoryview | Stretch


def in_memory(piece: Piece) -> bytes | memoryview:
    """What is to be sent, read if it is still in a file."""
    return piece.read() if isinstance(piece, Stretch) else piece


class Pipe(ABC):
    """Output is collected, and leaves with all else of the same turn.

    `closing` means: nothing more is read, and the connection ends once its output is out; with `aborting` it ends at
    once. `blocked` is set by the shell while the other end does not read.
    """

    def __init__(self, core: MeshCore, peer: str, now: float, limit: int) -> None:
        self.core = core
        self.peer = peer
        self.since = self.heard = now
        self.frame_since = self._looked = now
        self._unsent = 0
        self.splitter = Splitter(limit)
        self.wire: Any = None
        """The shell's own: it has `flush`, `abort` and `unsent`, the bytes that it took and could not send yet."""
        self.carries_link = False
        """Whether the other end is a server that is bridged with this one."""
        self.closing = False
        self.aborting = False
        self.closed = False
        self.blocked = False
        self.in_flight_bytes = 0
        """Of what waits for the disk and is not answered yet."""
        self.out_bytes = 0
        """Of output that was not taken yet."""
        self._out: list[Piece] = []

    @property
    def paused(self) -> bool:
        """Whether the shell should not read on for now."""
        return self.blocked

    def receive(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """Deals with what came, none of which is kept but as a copy."""
        if self.closing:
            return
        before = self.splitter.waiting
        try:
            self.take(data, now)
            self.splitter.check()
        except BadMessage as error:
            self.refuse_all(error)
        self._came(before, len(data), now)

    def filled(self, size: int, now: float) -> bool:
        """Deals with so much that came into the splitter's block; whether there was anything to be done."""
        payloads = self.splitter.filled(size)
        self.heard = now
        if not payloads:
            return False
        self.frame_since = now
        if not self.closing:
            self.deal(payloads, now)
        return True

    def deal(self, payloads: Iterable[bytes], now: float) -> None:
        """Deals with whole messages."""
        try:
            self.messages(payloads, now)
        except BadMessage as error:
            self.refuse_all(error)

    def take(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """What is to be done with bytes; `BadMessage` for those that are none of the protocol's."""
        self.messages(self.splitter.feed(data), now)

    @abstractmethod
    def messages(self, payloads: Iterable[bytes], now: float) -> None:
        """What is to be done with messages; `BadMessage` for what is none."""

    @abstractmethod
    def refuse_all(self, error: BadMessage) -> None:
        """The other end does not speak the protocol: the connection ends."""

    def _came(self, before: int, size: int, now: float) -> None:
        # `size` bytes were dealt with; `before` bytes of a frame had been there.
        self.heard = now
        if not before or self.splitter.waiting != before + size:
            self.frame_since = now

    def silent(self, now: float) -> bool:
        """Whether nothing has moved for three heartbeats. To be asked several times in each.

        Every byte that comes counts, but a frame that takes longer has to come at `least_rate` at least. While the
        other end does not read all that it gets it is not read either: then what leaves counts, at the same rate.
        """
        options = self.core.options
        patience, rate = 3 * options.heartbeat_s, options.least_rate
        if self.blocked:
            unsent = self.wire.unsent
            moved = self._unsent - unsent >= rate * (now - self._looked) > 0
            self._unsent, self._looked = unsent, now
        else:
            moved = self.paused
        if moved:
            self.heard = self.frame_since = now
        taken = now - self.frame_since
        slow = taken > patience and 0 < self.splitter.waiting < rate * taken
        return slow or now - self.heard > patience

    def send(
        self,
        command: Command,
        seq: str,
        body: Body | None = None,
        *,
        status: Status = Status.SUCCESS,
        error: ErrorCode = ErrorCode.NONE,
        description: str | None = None,
    ) -> None:
        """Sends a message."""
        self.write(framed(protocol.encode(command, seq, body, status=status, error=error, description=description)))

    def write(self, frame: Piece) -> None:
        """Sends a frame or a piece of one, with all others of this turn."""
        if self.closed:
            return
        if not self._out:
            self.core.mark(self)
        self._out.append(frame)
        self.out_bytes += len(frame)

    def take_pieces(self) -> list[Piece]:
        """What is to be sent now: in one piece, unless it is so much that to copy it would cost more than it saves."""
        out, size = self._out, self.out_bytes
        self._out = []
        self.out_bytes = 0
        return [b"".join(map(in_memory, out))] if len(out) > 1 and size <= LARGE_BYTES else out

    def take_output(self) -> bytes:
        """What is to be sent now."""
        return b"".join(map(in_memory, self.take_pieces()))

    def close(self) -> None:
        """Ends the connection once its output is out."""
        if not self.closing:
            self.closing = True
            self.core.mark(self)

    def abort(self) -> None:
        """Ends the connection without waiting for an end that may never read."""
        if not self.aborting:
            self.closing = self.aborting = True
            self.core.mark(self)

    @abstractmethod
    def unblocked(self) -> None:
        """The other end reads again."""

    def lost(self, now: float) -> None:
        """The connection is gone."""
        if not self.closed:
            self.closing = self.closed = True
            self._out.clear()
            self.gone(now)

    @abstractmethod
    def gone(self, now: float) -> None:
        """What is to be done once, when it is gone."""
