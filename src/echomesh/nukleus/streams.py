"""Streams: which are open to which peer, and what each event does to them. No files, no clocks, no threads.

A connection is two streams, one each way. Stream ids are scoped by the file they travel in: those that the peer chose
name its streams to us (`inbound`), those that we chose name ours to it (`outbound`).
"""

from __future__ import annotations

import enum
import logging
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from typing_extensions import Buffer

from echomesh.errors import EchomeshError, StreamReset, UsageError
from echomesh.native import streams as native

RESET: Final = 0
BEGIN: Final = 1
DATA: Final = 2
END: Final = 3

_LONG = struct.Struct("<q")
_log = logging.getLogger(__name__)


class State(enum.IntEnum):
    """Of one direction of a connection."""

    IDLE = native.IDLE
    OPEN = native.OPEN
    ENDED = native.ENDED


# Both directions follow it, ours by what we write and the peer's by what it wrote. What is not here is a violation.
NEXT: dict[int, dict[int, State]] = {
    BEGIN: {State.IDLE: State.OPEN},
    DATA: {State.OPEN: State.OPEN},
    END: {State.OPEN: State.ENDED},
}


def _name(state: int) -> str:
    return State(state).name.lower()


class Handler(Protocol):
    """What a nukleus does with its streams. It is called by the nukleus's own thread, a call at a time."""

    def on_begin(self, stream: Stream) -> None:
        """A peer began a stream to us: `stream.reply()` accepts it; or it accepted one that we initiated."""

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        """The peer sent data; the view is in place and lives no longer than this call."""

    def on_end(self, stream: Stream) -> None:
        """The peer will send no more; what we send still arrives."""

    def on_reset(self, stream: Stream) -> None:
        """The connection is gone, both ways: the peer reset it, is dead, or is no longer routed or captured."""


class Outlet(Protocol):
    """The way to one peer."""

    def write(self, kind: int, stream_id: int, payload: Buffer = b"") -> bool:
        """Writes a frame, or says that there is no room; within a handler there always is."""


Count = Callable[[str], None]
"""Counts one event under that label."""


class Stream(native.StreamEnd):
    """One connection with a peer, as its handler sees it. `send` comes with the compiled core."""

    __slots__ = ("_peer", "context", "initiated", "reference")

    def __init__(self, peer: PeerStreams, reference: int, *, initiated: bool) -> None:
        super().__init__(peer)
        self._peer = peer
        self.reference = reference
        """Our bind reference that the peer named, or our prepare reference."""
        self.initiated = initiated
        """Whether we began it."""
        self.context: Any = None
        """Whatever the handler wants to keep with it."""

    @property
    def peer(self) -> str:
        """The name of the nukleus at the other end."""
        return self._peer.name

    @property
    def alive(self) -> bool:
        """Whether the connection is still known."""
        return self._peer.knows(self)

    def reply(self) -> None:
        """Accepts a stream that the peer began: opens the way back."""
        if self.initiated or self.outbound != State.IDLE:
            raise UsageError("only a stream that the peer began can be replied to, and only once")
        self._peer.begin_reply(self)

    def refuse(self) -> None:
        """Raises what keeps `send` from sending."""
        if self.outbound != State.OPEN:
            raise StreamReset(f"this stream to {self.peer} is {_name(self.outbound)}: nothing can be sent on it")
        raise StreamReset(f"there is no route to {self.peer} any more")

    def end(self) -> bool:
        """Says that nothing more will be sent. False when the peer's ring is full."""
        return self._peer.end(self)

    def reset(self) -> None:
        """Gives the connection up, both ways; the peer is told."""
        self._peer.reset(self)

    def __repr__(self) -> str:
        return (
            f"Stream({self.peer!r}, in {self.inbound_id} {_name(self.inbound)},"
            f" out {self.outbound_id} {_name(self.outbound)})"
        )


class PeerStreams(native.StreamTable):
    """All streams with one peer.

    It is the sink of the peer's ring, and `outlet` the way out. While `paused` nothing more is read: a frame
    to some outlet found no room.
    """

    outlet: Outlet | None
    inbound: dict[int, Stream]

    def __init__(self, streams: Streams, name: str) -> None:
        super().__init__(streams.handler.on_data)
        self.name = name
        self._streams = streams
        self._outbound: dict[int, Stream] = {}
        # Of two peers one takes 1, 5, ... and 2, 6, ..., the other 3, 7, ... and 4, 8, ...: a RESET carries an id
        # and not whose it is, so that the same id both ways could be mistaken.
        self._first_odd = 1 if streams.name <= name else 3

    def __len__(self) -> int:
        return len({id(s) for s in (*self.inbound.values(), *self._outbound.values())})

    def knows(self, stream: Stream) -> bool:
        """Whether the stream is still one of these."""
        return self.inbound.get(stream.inbound_id) is stream or self._outbound.get(stream.outbound_id) is stream

    def receive(self, kind: int, stream_id: int, payload: memoryview) -> bool:
        """One event of the peer's; True when reading should stop behind it.

        The data of open streams goes to the handler without this; all else comes here.
        """
        stream = self.inbound.get(stream_id)
        try:
            if kind == DATA and stream is not None and stream.inbound in NEXT[DATA]:
                self._streams.handler.on_data(stream, payload)
            else:
                self._receive(kind, stream_id, stream, payload)
        except Exception as error:
            self.failed(stream_id, error)
        return self.paused

    def failed(self, stream_id: int, error: Exception) -> None:
        """The handler failed on an event of that stream: the stream is reset, the others go on."""
        self._streams.count("handler errors")
        if isinstance(error, EchomeshError):
            _log.debug("stream %d with %s is reset: %s", stream_id, self.name, error)
        else:
            _log.error("the handler failed on a stream with %s; it is reset", self.name, exc_info=error)
        stream = self.inbound.get(stream_id)
        if stream is not None:
            self.drop(stream, tell_peer=True)

    def malformed(self) -> None:
        """The peer wrote an event that is too short for a stream id."""
        self._streams.count("violations")

    def _receive(self, kind: int, stream_id: int, stream: Stream | None, payload: memoryview) -> None:
        if kind == RESET:
            self._receive_reset(stream_id, stream)
        elif kind == BEGIN:
            if stream is not None:
                # The peer was restarted, or is mad: either way the old stream is no more.
                self._streams.count("violations")
                self.drop(stream, tell_peer=False)
            self._streams.beginning(self.name)
            self._receive_begin(stream_id, payload)
        elif stream is None:
            self._streams.count("unknown streams")
            self._refuse(stream_id)
        elif kind == END and len(payload) == 0 and stream.inbound in NEXT[END]:
            stream.inbound = NEXT[END][stream.inbound]
            self._streams.handler.on_end(stream)
            self._forget_if_over(stream)
        else:
            self._streams.count("violations")
            self.drop(stream, tell_peer=True)

    def _receive_reset(self, stream_id: int, stream: Stream | None) -> None:
        self._streams.count("resets received")
        found = {id(s): s for s in (stream,) if s is not None}
        # With no stream of the peer's by that id, it refuses one of ours. Looped back to ourselves, it is both.
        other = self._outbound.get(stream_id)
        if other is not None and (not found or self.name == self._streams.name):
            found[id(other)] = other
        if not found:
            self._streams.count("unknown streams")
        for each in found.values():
            self.drop(each, tell_peer=False)

    def _receive_begin(self, stream_id: int, payload: memoryview) -> None:
        if len(payload) != _LONG.size or stream_id == 0:
            self._streams.count("violations")
            self._refuse(stream_id)
            return
        (value,) = _LONG.unpack(payload)
        if stream_id % 2:
            if self.outlet is None or not self._streams.bound(self.name, value):
                self._streams.count("unknown references")
                self._refuse(stream_id)
                return
            stream = Stream(self, value, initiated=False)
        else:
            answered = self._outbound.get(value)
            if answered is None or not answered.initiated or answered.inbound != State.IDLE:
                self._streams.count("unknown streams")
                self._refuse(stream_id)
                return
            stream = answered
        stream.inbound = NEXT[BEGIN][stream.inbound]
        stream.inbound_id = stream_id
        self.inbound[stream_id] = stream
        self._streams.count("streams opened")
        self._streams.handler.on_begin(stream)

    def _refuse(self, stream_id: int) -> None:
        if self.outlet is not None and self.outlet.write(RESET, stream_id):
            self._streams.count("resets sent")

    def initiate(self, reference: int, destination_reference: int) -> Stream | None:
        """Begins a stream; None when the peer's ring is full."""
        if self.outlet is None:
            raise UsageError(f"{self.name} is not routed")
        stream = Stream(self, reference, initiated=True)
        chosen = self._first_odd + 4 * self._streams.initiated
        if not self.outlet.write(BEGIN, chosen, _LONG.pack(destination_reference)):
            return None
        self._streams.initiated += 1
        stream.outbound = NEXT[BEGIN][stream.outbound]
        stream.outbound_id = chosen
        self._outbound[chosen] = stream
        return stream

    def begin_reply(self, stream: Stream) -> None:
        """Opens the way back of a stream that the peer began."""
        chosen = self._first_odd + 1 + 4 * self._streams.replied
        if self.outlet is None or not self.outlet.write(BEGIN, chosen, _LONG.pack(stream.inbound_id)):
            raise StreamReset(f"there is no way back to {self.name}")
        self._streams.replied += 1
        stream.outbound = NEXT[BEGIN][stream.outbound]
        stream.outbound_id = chosen
        self._outbound[chosen] = stream

    def end(self, stream: Stream) -> bool:
        """Ends our direction of it."""
        if stream.outbound not in NEXT[END] or self.outlet is None:
            raise StreamReset(f"this stream to {self.name} is {_name(stream.outbound)}: it can't be ended")
        if not self.outlet.write(END, stream.outbound_id):
            return False
        stream.outbound = NEXT[END][stream.outbound]
        self._forget_if_over(stream)
        return True

    def reset(self, stream: Stream) -> None:
        """Gives a connection up by our own wish: the peer is told, the handler knows."""
        if self.knows(stream):
            ours = stream.outbound != State.IDLE
            self._forget(stream)
            self._refuse(stream.outbound_id if ours else stream.inbound_id)

    def drop(self, stream: Stream, *, tell_peer: bool) -> None:
        """Gives a connection up for a reason from outside: the handler is told."""
        if not self.knows(stream):
            return
        if tell_peer:
            self.reset(stream)
        else:
            self._forget(stream)
        try:
            self._streams.handler.on_reset(stream)
        except Exception:
            self._streams.count("handler errors")
            _log.exception("the handler failed on the reset of a stream with %s", self.name)

    def drop_all(self, *, tell_peer: bool) -> None:
        """Gives all connections with this peer up."""
        for stream in {id(s): s for s in (*self.inbound.values(), *self._outbound.values())}.values():
            self.drop(stream, tell_peer=tell_peer)

    def _forget_if_over(self, stream: Stream) -> None:
        if stream.inbound == State.ENDED and stream.outbound == State.ENDED:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        if self.inbound.get(stream.inbound_id) is stream:
            del self.inbound[stream.inbound_id]
        if self._outbound.get(stream.outbound_id) is stream:
            del self._outbound[stream.outbound_id]
        stream.inbound = stream.outbound = State.ENDED


class Streams:
    """All streams of a nukleus, by peer."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        count: Count,
        bound: Callable[[str, int], bool],
        beginning: Callable[[str], None] = lambda source: None,
    ) -> None:
        self.name = name
        self.handler = handler
        self.count = count
        self.bound = bound
        """Whether that reference is bound for streams from that source."""
        self.beginning = beginning
        """Called before a stream that a source begins is looked at."""
        # Ids of ours are counted here and not by peer: one that is forgotten and comes back must not meet old ones.
        self.initiated = 0
        self.replied = 0
        self._peers: dict[str, PeerStreams] = {}

    def peer(self, name: str) -> PeerStreams:
        """The streams with that peer."""
        if name not in self._peers:
            self._peers[name] = PeerStreams(self, name)
        return self._peers[name]

    def forget_peer(self, name: str) -> None:
        """Drops what is known of a peer that is neither routed nor captured any more."""
        self._peers.pop(name, None)

    @property
    def open(self) -> int:
        """How many connections are known."""
        return sum(len(peer) for peer in self._peers.values())
