"""The publishers and subscribers of this machine: who they are, what they are told, which streams they need.

No sockets, no clock, no files: what is to be sent or wired is handed out.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from echomesh.data.matching import Member
from echomesh.data.messages import (
    Gone,
    Message,
    Path,
    PubInit,
    PubInsertSubscriber,
    PubRemoveSubscriber,
    Reachable,
    SubInit,
    SubInsertPublisher,
    SubRemovePublisher,
    Wired,
)
from echomesh.data.outputs import Streamed, Unwire, Wire

LOCAL_IP: Final = "127.0.0.1"
MAX_LISTED: Final = 1024
"""Subscribers in one message; the others are told one by one."""


@dataclass(slots=True, eq=False)
class End:
    """A publisher or subscriber with its connection; `nukleus` is empty where no shared memory was proven."""

    connection: int
    member: Member
    publishes: bool
    nukleus: str
    wired: dict[bytes, Wired] = field(default_factory=dict)
    """Streams that it had before this participant was started, by subscriber."""
    others: dict[bytes, list[Member]] = field(default_factory=dict)
    """Whom it is matched with and shares no memory; the first of each is the one that it was told."""


class _State(enum.Enum):
    TOLD = "the subscriber was told, and has not answered"
    WIRING = "the stream is being made"
    WIRED = "the stream is there"


@dataclass(slots=True, eq=False)
class _Pair:
    reference: int
    publisher: End
    subscriber: End
    announced: bool
    """Whether the publisher has heard of the subscriber, though no stream may be there."""
    state: _State = _State.TOLD


class Locals:
    """Ends of this machine, by connection, and the streams between them."""

    def __init__(
        self,
        me: bytes,
        send: Callable[[int, Message], None],
        wire: Callable[[Wire | Unwire], None],
        ip_of: Callable[[bytes], str],
        first_reference: int,
    ) -> None:
        self._me = me
        self._send = send
        self._wire = wire
        self._ip_of = ip_of
        self._next = first_reference
        self._by_connection: dict[int, End] = {}
        self._by_id: dict[tuple[bool, bytes], End] = {}
        self._pairs: dict[int, _Pair] = {}
        self._reference: dict[tuple[Member, Member], int] = {}

    def __len__(self) -> int:
        return len(self._by_connection)

    def known(self, publishes: bool, id: bytes) -> End | None:
        """The publisher or subscriber of that id."""
        return self._by_id.get((publishes, id))

    def nuklei(self) -> set[str]:
        """The nuklei that they belong to."""
        return {end.nukleus for end in self._by_connection.values() if end.nukleus}

    def of(self, nuklei: set[str]) -> list[End]:
        """Those that belong to one of these nuklei."""
        return [end for end in self._by_connection.values() if end.nukleus in nuklei]

    def join(self, end: End, pairs: list[tuple[Member, Member]]) -> None:
        """One came: it is told who is there, and those who are there are told of it."""
        self._by_connection[end.connection] = end
        self._by_id[end.publishes, end.member.id] = end
        if end.publishes:
            there: dict[bytes, Member] = {}
            coming: list[bytes] = []
            for _, subscriber in pairs:
                if self._shares(end, subscriber):
                    if len(coming) < MAX_LISTED:
                        coming.append(subscriber.id)
                elif len(there) < MAX_LISTED:
                    there.setdefault(subscriber.id, subscriber)
            listed = [self._reachable(subscriber) for subscriber in there.values()]
            self._send(end.connection, PubInit(listed, coming))
            heard = {*there, *coming}
            for publisher, subscriber in pairs:
                self.matched(publisher, subscriber, listed=subscriber.id in heard)
        else:
            self._send(end.connection, SubInit())
            for publisher, subscriber in pairs:
                self.matched(publisher, subscriber)

    def leave(self, connection: int) -> End | None:
        """One went; those who matched are told by `unmatched`."""
        end = self._by_connection.pop(connection, None)
        if end is not None:
            del self._by_id[end.publishes, end.member.id]
        return end

    # Matches

    def matched(self, publisher: Member, subscriber: Member, *, listed: bool = False) -> None:
        """A publisher and a subscriber match, one of them here at least; `listed`: the publisher knows already."""
        sender, receiver = self._end(publisher, True), self._end(subscriber, False)
        if sender is not None and receiver is not None and sender.nukleus and receiver.nukleus:
            self._begin(sender, receiver, announced=listed)
            return
        if sender is not None:
            self._show(sender, subscriber, listed=listed)
        if receiver is not None:
            self._show(receiver, publisher)

    def unmatched(self, publisher: Member, subscriber: Member) -> None:
        """One of the two has gone."""
        sender, receiver = self._end(publisher, True), self._end(subscriber, False)
        reference = self._reference.pop((publisher, subscriber), None)
        if reference is not None:
            self._finish(reference, sender, receiver)
            return
        if sender is not None:
            self._hide(sender, subscriber)
        if receiver is not None:
            self._hide(receiver, publisher)

    def _show(self, end: End, other: Member, *, listed: bool = False) -> None:
        # One whose participant was restarted is there twice, until the old one is seen to be gone. It is told once.
        seen = end.others.setdefault(other.id, [])
        seen.append(other)
        if len(seen) == 1 and not listed:
            self._tell(end, other)

    def _hide(self, end: End, other: Member) -> None:
        seen = end.others[other.id]
        told = seen[0] == other
        seen.remove(other)
        if told:
            self._tell_gone(end, other)
            if seen:
                self._tell(end, seen[0])
        if not seen:
            del end.others[other.id]

    def _tell(self, end: End, other: Member) -> None:
        told = PubInsertSubscriber(self._reachable(other)) if end.publishes else self._introduced(other)
        self._send(end.connection, told)

    def _tell_gone(self, end: End, other: Member) -> None:
        gone = Gone(other.id)
        self._send(end.connection, PubRemoveSubscriber(gone) if end.publishes else SubRemovePublisher(gone))

    def _end(self, member: Member, publishes: bool) -> End | None:
        return self._by_id.get((publishes, member.id)) if member.owner == self._me else None

    def _shares(self, end: End, other: Member) -> bool:
        found = self._end(other, not end.publishes)
        return bool(found is not None and found.nukleus and end.nukleus)

    def _ip(self, member: Member) -> str:
        return LOCAL_IP if member.owner == self._me else self._ip_of(member.owner)

    def _reachable(self, subscriber: Member) -> Reachable:
        return Reachable(subscriber.id, self._ip(subscriber), subscriber.port)

    def _introduced(self, publisher: Member) -> SubInsertPublisher:
        return SubInsertPublisher(publisher.told(), self._ip(publisher))

    # Streams

    def _begin(self, publisher: End, subscriber: End, *, announced: bool) -> None:
        known = publisher.wired.pop(subscriber.member.id, None)
        adopted = known if known is not None and known.nukleus == subscriber.nukleus else None
        if adopted is not None and adopted.reference in self._pairs:
            adopted = None
        if adopted is None:
            reference, self._next = self._next, self._next + 1
        else:
            reference = adopted.reference
        pair = self._pairs[reference] = _Pair(reference, publisher, subscriber, announced)
        self._reference[publisher.member, subscriber.member] = reference
        told = SubInsertPublisher(publisher.member.told(), LOCAL_IP, Path.SHARED_MEMORY, publisher.nukleus, reference)
        self._send(subscriber.connection, told)
        if adopted is not None:
            made = Streamed(adopted.stream, adopted.prepared, adopted.bound)
            pair.state = _State.WIRING
            self._wire(Wire(reference, publisher.nukleus, subscriber.nukleus, made))
            self.wired(reference, made)

    def _finish(self, reference: int, sender: End | None, receiver: End | None) -> None:
        pair = self._pairs.pop(reference)
        if pair.state is not _State.TOLD:
            self._wire(Unwire(reference))
        if sender is not None and (pair.announced or pair.state is _State.WIRED):
            self._tell_gone(sender, pair.subscriber.member)
        if receiver is not None:
            self._tell_gone(receiver, pair.publisher.member)

    def ready(self, connection: int, reference: int) -> bool:
        """A subscriber knows the publisher of that reference; False when it can't know such a reference."""
        pair = self._pairs.get(reference)
        if pair is None:
            return connection in self._by_connection  # the publisher went meanwhile
        if pair.subscriber.connection != connection:
            return False
        if pair.state is _State.TOLD:
            pair.state = _State.WIRING
            self._wire(Wire(reference, pair.publisher.nukleus, pair.subscriber.nukleus))
        return True

    def again(self, connection: int, reference: int) -> bool:
        """A publisher's stream was reset, and another one is made; False when it is not that publisher's."""
        pair = self._pairs.get(reference)
        if pair is None:
            return connection in self._by_connection  # the subscriber went meanwhile
        if pair.publisher.connection != connection or pair.state is not _State.WIRED:
            return False
        del self._reference[pair.publisher.member, pair.subscriber.member]
        self._finish(reference, None, pair.subscriber)
        self._begin(pair.publisher, pair.subscriber, announced=True)
        return True

    def wired(self, reference: int, made: Streamed) -> None:
        """The stream of that reference is there: its publisher may use it."""
        pair = self._pairs.get(reference)
        if pair is None or pair.state is not _State.WIRING:
            return
        pair.state = _State.WIRED
        told = PubInsertSubscriber(
            self._reachable(pair.subscriber.member),
            Path.SHARED_MEMORY,
            pair.subscriber.nukleus,
            made.stream,
            made.prepared,
            made.bound,
            reference,
        )
        self._send(pair.publisher.connection, told)
