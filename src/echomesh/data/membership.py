"""Which participants there are, and the one connection with each of them. No sockets, no clock.

Of two participants the one with the smaller id connects. The other one does so after three beacons without a
connection, since it may be the only one who can. Where both did, both keep the one that the smaller id made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from echomesh.data.beacon import Count
from echomesh.data.messages import Hello

MAX_PEERS: Final = 1024
MAX_STRANGERS: Final = 16
"""Connections of which nobody knows yet whose they are."""
MAX_DIALS: Final = 64
STRANGER_S: Final = 5.0
_PATIENCE_BEACONS: Final = 3


@dataclass(slots=True)
class Peer:
    """Another participant."""

    hello: Hello
    ip: str
    heard: float
    """When it was heard last, by beacon or connection."""
    beacons: int = 0
    """Heard since there was a connection."""
    link: int | None = None
    """The connection on which both have said who they are."""
    dial: int | None = None
    """A connection that is being made."""


@dataclass(slots=True)
class _Link:
    ip: str
    dialed: bytes | None
    """Whom we wanted to reach; None where the other end connected."""
    opened: float
    received: float
    peer: bytes | None = None
    """Who the other end says it is."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to a participant; the connection has this number from now on."""

    connection: int
    ip: str
    port: int


@dataclass(frozen=True, slots=True)
class Close:
    """End a connection; nothing more is heard of it."""

    connection: int


@dataclass(frozen=True, slots=True)
class Left:
    """A participant has no connection any more: what it had is gone."""

    peer: bytes


Effect: TypeAlias = Dial | Close | Left


class Membership:
    """The participants that were heard, and what to do about them."""

    def __init__(self, me: Hello, expiry_s: float, number: Callable[[], int], count: Count) -> None:
        self.me = me
        self.peers: dict[bytes, Peer] = {}
        self.effects: list[Effect] = []
        """What is to be done; whoever does it empties the list."""
        self._expiry_s = expiry_s
        self._number = number
        self._count = count
        self._links: dict[int, _Link] = {}
        self.deadline = float("inf")
        """When somebody may have been silent for too long: not later than that, since who is heard has more time."""

    # Beacons

    def hear(self, hello: Hello, ip: str, now: float) -> None:
        """A beacon came from there."""
        peer = self._known(hello, ip, now)
        if peer is None:
            return
        peer.heard = now
        if peer.link is not None:
            return
        peer.beacons += 1
        peer.ip, peer.hello = ip, hello
        if peer.dial is None and (self.me.id < hello.id or peer.beacons >= _PATIENCE_BEACONS):
            self._dial(peer, now)

    def _known(self, hello: Hello, ip: str, now: float) -> Peer | None:
        # The entry of who says this, made where there is none; None for what an earlier run of it has said.
        peer = self.peers.get(hello.id)
        if peer is not None and hello.started < peer.hello.started:
            self._count("beacons of the dead")
            return None
        if peer is not None and hello.started > peer.hello.started:
            self._count("restarts seen")
            self._drop(peer)
            peer = None
        if peer is None:
            if len(self.peers) >= MAX_PEERS:
                self._count("participants too many")
                return None
            peer = self.peers[hello.id] = Peer(hello, ip, now)
            self.deadline = min(self.deadline, now + self._expiry_s)
        return peer

    def _dial(self, peer: Peer, now: float) -> None:
        if sum(link.dialed is not None and link.peer is None for link in self._links.values()) >= MAX_DIALS:
            return  # the next beacon comes soon
        peer.dial = self._number()
        self._add(peer.dial, _Link(peer.ip, peer.hello.id, now, now))
        self.effects.append(Dial(peer.dial, peer.ip, peer.hello.port))

    # Connections

    def accepted(self, connection: int, ip: str, now: float) -> bool:
        """Somebody connected; False when there is no room for strangers."""
        if sum(link.peer is None and link.dialed is None for link in self._links.values()) >= MAX_STRANGERS:
            self._count("strangers too many")
            return False
        self._add(connection, _Link(ip, None, now, now))
        return True

    def _add(self, connection: int, link: _Link) -> None:
        self._links[connection] = link
        self.deadline = min(self.deadline, link.opened + min(STRANGER_S, self._expiry_s))

    @property
    def size(self) -> int:
        """How many connections there are, or are being made."""
        return len(self._links)

    def knows(self, connection: int) -> bool:
        """Whether that connection is still wanted."""
        return connection in self._links

    def peer_of(self, connection: int) -> Peer | None:
        """Whose connection it is, once that is known and as long as it is the one that counts."""
        link = self._links.get(connection)
        return self.peers.get(link.peer) if link is not None and link.peer is not None else None

    def alive(self, connection: int, now: float) -> None:
        """Something came on a connection."""
        link = self._links[connection]
        link.received = now
        peer = self.peer_of(connection)
        if peer is not None:
            peer.heard = now

    def introduced(self, connection: int, hello: Hello, now: float) -> bool:
        """The other end of a connection has said who it is; whether this connection is the one that counts now."""
        link = self._links[connection]
        self._undial(link)
        peer = self._known(hello, link.ip, now)
        if peer is None or (peer.link is not None and not self._better(link, self._links[peer.link], hello.id)):
            self._close(connection)
            return False
        if peer.link is not None:
            self._count("connections too many")
            self._close(peer.link)
        peer.hello, peer.ip, peer.link, peer.heard, peer.beacons = hello, link.ip, connection, now, 0
        link.peer = hello.id
        return True

    def _better(self, new: _Link, old: _Link, peer: bytes) -> bool:
        if (new.dialed is None) == (old.dialed is None):
            return True  # made by the same one: it would not have, had it the old one still
        return (new.dialed is not None) == (self.me.id < peer)

    def _undial(self, link: _Link) -> None:
        # A try is over, one way or the other; another one may follow.
        peer = self.peers.get(link.dialed) if link.dialed is not None else None
        if peer is not None and peer.dial is not None and self._links.get(peer.dial) is link:
            peer.dial = None

    def lost(self, connection: int) -> None:
        """A connection is over, or could not be made."""
        link = self._links.get(connection)
        if link is None:
            return
        self._undial(link)
        del self._links[connection]
        peer = self.peers.get(link.peer) if link.peer is not None else None
        if peer is not None and peer.link == connection:
            peer.link, peer.beacons = None, 0
            self.effects.append(Left(peer.hello.id))

    def close(self, connection: int) -> None:
        """Ends a connection by our own wish."""
        if connection in self._links:
            self.effects.append(Close(connection))
            self.lost(connection)

    def _close(self, connection: int) -> None:
        # Of a connection that never counted, or for which another one counts from now on: nobody left.
        link = self._links.pop(connection)
        link.peer = None
        self._undial(link)
        self.effects.append(Close(connection))

    def _drop(self, peer: Peer) -> None:
        for connection in (peer.link, peer.dial):
            if connection is not None:
                self.close(connection)
        del self.peers[peer.hello.id]

    # Time

    def expire(self, now: float) -> None:
        """Drops who was not heard for too long."""
        if now < self.deadline:
            return
        for connection, link in list(self._links.items()):
            if now >= self._end(link):
                self._count("silent connections")
                self.close(connection)
        for peer in list(self.peers.values()):
            if now >= peer.heard + self._expiry_s:
                self._count("participants expired")
                self._drop(peer)
        ends = [peer.heard + self._expiry_s for peer in self.peers.values()]
        ends += [self._end(link) for link in self._links.values()]
        self.deadline = min(ends, default=float("inf"))

    def _end(self, link: _Link) -> float:
        return link.opened + STRANGER_S if link.peer is None else link.received + self._expiry_s

    def slept(self, seconds: float, now: float) -> None:
        """This participant did not run for so long: it is not the others who were silent."""
        for peer in self.peers.values():
            peer.heard = min(peer.heard + seconds, now)
        for link in self._links.values():
            link.opened = min(link.opened + seconds, now)
            link.received = min(link.received + seconds, now)
