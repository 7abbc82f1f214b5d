"""A participant without sockets, files or clocks: datagrams, bytes of connections and the time come in, outputs go out.

The shell calls `accepted`, `connected`, `received`, `lost`, `datagram`, `wired` as things happen and `advance` when
`deadline` has come, and does what `take` gives after each of them.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from echomesh.data import wire
from echomesh.data.beacon import Beacon
from echomesh.data.local import End, Locals
from echomesh.data.matching import Matching
from echomesh.data.membership import Close, Dial, Membership, Peer
from echomesh.data.messages import (
    VERSION,
    Credentials,
    Endpoint,
    Gone,
    Hello,
    InitLook,
    InitPub,
    InitSub,
    LookInit,
    LookInitFailed,
    Lost,
    Message,
    PartInit,
    PartInsertPublisher,
    PartInsertSubscriber,
    PartRemovePublisher,
    PartRemoveSubscriber,
    PartToPart,
    Process,
    PubInitFailed,
    Ready,
    Reason,
    Seen,
    SubInitFailed,
    ToPart,
)
from echomesh.data.outputs import Broadcast, Output, Send, Streamed
from echomesh.errors import BadPacket, BadTopic
from echomesh.topics import parse_filter, parse_topic

STRANGER_S: Final = 5.0
MAX_STRANGERS: Final = 256
FIRST_S: Final = 10.0
"""For how long a participant waits for the process that it was started for."""

_FAILED: Final[dict[type, type[PubInitFailed | SubInitFailed | LookInitFailed]]] = {
    InitPub: PubInitFailed,
    InitSub: SubInitFailed,
    InitLook: LookInitFailed,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a participant is, and what it goes by."""

    hello: Hello
    cookie: bytes
    beacon_s: float
    linger_s: float
    """For how long it stays without publishers and subscribers; infinity for a service."""
    first_reference: int = 1


class ParticipantCore:
    """Beacon, membership, matching and the ends of this machine, put together."""

    def __init__(self, identity: Identity, now: float, proven: Callable[[Process], bool]) -> None:
        self.identity = identity
        self.hello = identity.hello
        self.counters: Counter[str] = Counter()
        self.matching = Matching()
        self.beacon = Beacon(self.hello, identity.beacon_s, now, self._count)
        self.membership = Membership(self.hello, self.beacon.expiry_s, self._number, self._count)
        self.locals = Locals(self.hello.id, self._send, self._emit, self._ip_of, identity.first_reference)
        self._proven = proven
        self._outputs: list[Output] = []
        self._connections = 0
        self._links: dict[int, wire.Messages[PartToPart]] = {}
        self._greeted: set[int] = set()
        self._desks: dict[int, wire.Messages[ToPart]] = {}
        self._strangers: dict[int, float] = {}
        self._advanced = now
        self._quiet_since = now
        self._quiet_s = max(identity.linger_s, FIRST_S)

    def take(self) -> list[Output]:
        """What is to be done now."""
        outputs, self._outputs = self._outputs, []
        return outputs

    # Time

    def advance(self, now: float) -> None:
        """Does what is due: beacons go out, and who was silent for too long is dropped."""
        gap = now - self._advanced
        self._advanced = now
        if gap > 2 * self.beacon.interval_s:
            self.counters["pauses"] += 1
            self.membership.slept(gap - self.beacon.interval_s, now)
        datagram = self.beacon.send(now)
        if datagram is not None:
            self._emit(Broadcast(datagram))
            for connection in sorted(self._greeted):
                self._send(connection, self.hello)
        self.membership.expire(now)
        for connection, since in list(self._strangers.items()):
            if now >= since + STRANGER_S:
                self._close(connection)
        self._settle()

    @property
    def deadline(self) -> float:
        """When `advance` has something to do next."""
        strangers = min(self._strangers.values(), default=float("inf")) + STRANGER_S
        return min(self.beacon.due, self.membership.deadline, strangers)

    def over(self, now: float) -> bool:
        """Whether the last publisher and subscriber have left for good."""
        return not self.locals and now - self._quiet_since >= self._quiet_s

    # What comes in

    def datagram(self, data: bytes, ip: str, now: float) -> None:
        """A beacon, or what somebody takes for one."""
        hello = self.beacon.heard(data)
        if hello is not None:
            self.membership.hear(hello, ip, now)
            self._settle()

    def accepted(self, ip: str, now: float) -> int | None:
        """A participant has connected, it seems; None when there is no room for it."""
        connection = self._number()
        if not self.membership.accepted(connection, ip, now):
            return None
        self.connected(connection)
        return connection

    def connected(self, connection: int) -> bool:
        """A `Dial` was successful; False when nobody wants it any more."""
        if not self.membership.knows(connection):
            return False
        self._links[connection] = wire.from_participant()
        self._greeted.add(connection)
        publishers = [member.told() for member in self.matching.publishers(self.hello.id)]
        subscribers = [member.told() for member in self.matching.subscribers(self.hello.id)]
        self._send(connection, PartInit(publishers, subscribers, self.hello))
        return True

    def local(self, now: float) -> int | None:
        """A process of this machine has connected; None when there is no room for it."""
        if len(self._strangers) >= MAX_STRANGERS:
            self._count("strangers too many")
            return None
        connection = self._number()
        self._desks[connection] = wire.from_local()
        self._strangers[connection] = now
        return connection

    def received(self, connection: int, data: bytes, now: float) -> None:
        """Bytes came on a connection."""
        try:
            if connection in self._links:
                self.membership.alive(connection, now)
                for told in self._links[connection].feed(data):
                    self._from_participant(connection, told, now)
                    if connection not in self._links:
                        break
            elif connection in self._desks:
                for asked in self._desks[connection].feed(data):
                    self._from_local(connection, asked, now)
                    if connection not in self._desks:
                        break
        except (BadPacket, BadTopic):
            self._count("bad messages")
            self._close(connection)
            self._left(connection, now)
        self._settle()

    def lost(self, connection: int, now: float) -> None:
        """A connection is over, or a `Dial` failed."""
        self.membership.lost(connection)
        self._forget(connection)
        self._left(connection, now)
        self._settle()

    def wired(self, reference: int, made: Streamed) -> None:
        """A `Wire` was done."""
        self.locals.wired(reference, made)

    def dead(self, nuklei: set[str], now: float) -> None:
        """These nuklei are dead: who belongs to one is gone, though a child may have kept its connection."""
        for end in self.locals.of(nuklei):
            self._count("processes found dead")
            self._close(end.connection)
            self._left(end.connection, now)

    # Other participants

    def _from_participant(self, connection: int, message: PartToPart, now: float) -> None:
        peer = self.membership.peer_of(connection)
        if isinstance(message, PartInit):
            if peer is not None or not self.beacon.welcome(message.hello):
                raise BadPacket("not a participant to talk to, or not for the first time")
            counts = self.membership.introduced(connection, message.hello, now)
            self._settle()
            if counts:
                self._replace(message)
            return
        if peer is None:
            raise BadPacket("it did not say who it is")
        owner = peer.hello.id
        match message:
            case PartInsertPublisher(publisher):
                self._insert(owner, publisher, True)
            case PartInsertSubscriber(subscriber):
                self._insert(owner, subscriber, False)
            case PartRemovePublisher(publisher):
                self._remove(owner, publisher.id, True)
            case PartRemoveSubscriber(subscriber=gone):
                self._remove(owner, gone.id, False)

    def _replace(self, init: PartInit) -> None:
        # What both the old and the new list have stays untouched.
        owner = init.hello.id
        for publishes, listed in ((True, init.publishers), (False, init.subscribers)):
            having = self.matching.publishers(owner) if publishes else self.matching.subscribers(owner)
            wanted = {(endpoint.id, endpoint.topic) for endpoint in listed}
            for member in having:
                if (member.id, member.topic) not in wanted:
                    self._remove(owner, member.id, publishes)
            for endpoint in listed:
                self._insert(owner, endpoint, publishes)

    def _insert(self, owner: bytes, endpoint: Endpoint, publishes: bool) -> None:
        if not self.matching.room(owner):
            raise BadPacket("it has more publishers and subscribers than anybody may have")
        if self.locals.known(publishes, endpoint.id) is not None:
            self._count("ids of others")  # nobody takes the place of one of this machine
            return
        add = self.matching.insert_publisher if publishes else self.matching.insert_subscriber
        for publisher, subscriber in add(owner, endpoint):
            self.locals.matched(publisher, subscriber)

    def _remove(self, owner: bytes, id: bytes, publishes: bool) -> None:
        drop = self.matching.remove_publisher if publishes else self.matching.remove_subscriber
        for publisher, subscriber in drop(owner, id):
            self.locals.unmatched(publisher, subscriber)

    def _peer_left(self, owner: bytes) -> None:
        for member in self.matching.publishers(owner):
            self._remove(owner, member.id, True)
        for member in self.matching.subscribers(owner):
            self._remove(owner, member.id, False)

    # Processes of this machine

    def _from_local(self, connection: int, message: ToPart, now: float) -> None:
        stranger = self._strangers.pop(connection, None) is not None
        if isinstance(message, Ready | Lost):
            act = self.locals.ready if isinstance(message, Ready) else self.locals.again
            if stranger or not act(connection, message.reference):
                raise BadPacket("it speaks of a stream that it was not told of")
            return
        if not stranger:
            raise BadPacket("it has said already who it is")
        refused = self._refused(message)
        if refused is not None:
            self._count("refused")
            self._send(connection, _FAILED[type(message)](*refused))
            self._close(connection)
        elif isinstance(message, InitLook):
            self._send(connection, LookInit(self.look(now), dict(self.counters)))
        else:
            self._join(connection, message, now)

    def _refused(self, message: InitPub | InitSub | InitLook) -> tuple[Reason, str] | None:
        shown: Credentials = message.credentials
        if shown.version != VERSION:
            return Reason.VERSION, f"it speaks version {VERSION}, not {shown.version}"
        if shown.domain != self.hello.domain:
            return Reason.DOMAIN, f"its domain is {self.hello.domain!r}, not {shown.domain!r}"
        if not hmac.compare_digest(shown.cookie, self.identity.cookie):
            return Reason.COOKIE, "the cookie is not the one in its directory"
        try:
            if isinstance(message, InitPub):
                parse_topic(message.topic)
            elif isinstance(message, InitSub):
                parse_filter(message.subscriber.topic)
        except BadTopic as error:
            return Reason.TOPIC, str(error)
        if not isinstance(message, InitLook) and not self.matching.room(self.hello.id):
            return Reason.FULL, "it has as many publishers and subscribers as it can hold"
        return None

    def _join(self, connection: int, message: InitPub | InitSub, now: float) -> None:
        publishes = isinstance(message, InitPub)
        endpoint = Endpoint(message.id, message.topic) if isinstance(message, InitPub) else message.subscriber
        before = self.locals.known(publishes, endpoint.id)
        if before is not None:
            # It came back before its old connection was seen to be over.
            self._close(before.connection)
            self._left(before.connection, now)
        for owner in self.matching.owners() - {self.hello.id}:
            self._remove(owner, endpoint.id, publishes)
        wired = {kept.id: kept for kept in message.wired} if isinstance(message, InitPub) else {}
        nukleus = message.process.nukleus if self._proven(message.process) else ""
        add = self.matching.insert_publisher if publishes else self.matching.insert_subscriber
        pairs = add(self.hello.id, endpoint)
        member = self.matching.member(self.hello.id, endpoint.id, publishes)
        self.locals.join(End(connection, member, publishes, nukleus, wired), pairs)
        self._tell(PartInsertPublisher(member.told()) if publishes else PartInsertSubscriber(member.told()))

    def _left(self, connection: int, now: float) -> None:
        end = self.locals.leave(connection)
        if end is None:
            return
        self._remove(self.hello.id, end.member.id, end.publishes)
        if end.publishes:
            self._tell(PartRemovePublisher(end.member.told()))
        else:
            self._tell(PartRemoveSubscriber(Gone(end.member.id)))
        self._quiet_since, self._quiet_s = now, self.identity.linger_s

    def look(self, now: float) -> list[Seen]:
        """All participants that are known, this one first."""
        me = Peer(self.hello, "127.0.0.1", now)
        return [self._seen(peer, now) for peer in (me, *self.membership.peers.values())]

    def _seen(self, peer: Peer, now: float) -> Seen:
        owner = peer.hello.id
        publishers = [member.told() for member in self.matching.publishers(owner)]
        subscribers = [member.told() for member in self.matching.subscribers(owner)]
        silent_ms = max(0, round(1000 * (now - peer.heard)))
        linked = peer.link is not None or owner == self.hello.id
        return Seen(peer.hello, peer.ip, silent_ms, linked, publishers, subscribers)

    # Outputs

    def _number(self) -> int:
        self._connections += 1
        return self._connections

    def _count(self, label: str) -> None:
        self.counters[label] += 1

    def _emit(self, output: Output) -> None:
        self._outputs.append(output)

    def _send(self, connection: int, message: Message) -> None:
        self._emit(Send(connection, wire.encode(message)))

    def _tell(self, message: PartToPart) -> None:
        for connection in sorted(self._greeted):
            self._send(connection, message)

    def _ip_of(self, owner: bytes) -> str:
        peer = self.membership.peers.get(owner)
        return peer.ip if peer is not None else ""

    def _close(self, connection: int) -> None:
        if connection in self._links:
            self.membership.close(connection)
        else:
            self._emit(Close(connection))
            self._forget(connection)

    def _forget(self, connection: int) -> None:
        self._links.pop(connection, None)
        self._greeted.discard(connection)
        self._desks.pop(connection, None)
        self._strangers.pop(connection, None)

    def _settle(self) -> None:
        # What membership decided concerns the rest of this participant, too.
        while self.membership.effects:
            effect = self.membership.effects.pop(0)
            if isinstance(effect, Close):
                self._forget(effect.connection)
            if isinstance(effect, Dial | Close):
                self._emit(effect)
            else:
                self._peer_left(effect.peer)
