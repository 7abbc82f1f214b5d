"""Reads along what the servers receive and send, and raises `BrokenPromise` as soon as one should not have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from echomesh.errors import BadMessage
from echomesh.frames import MAX_FRAME, Splitter
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Ack, Deliver, Hello, Nack, Nacked, Subscribe, Unsubscribe
from echomesh.mesh.codes import Command, Status
from echomesh.mesh.ranges import RangeSet
from echomesh.topics import matches

Whose = tuple[str, str, str]
"""A server, an environment, and an owner: a client or a group."""

Place = tuple[str, str, str, str]
"""The same, and a topic."""


class BrokenPromise(AssertionError):
    """Something happened that must not."""


@dataclass(eq=False)
class Told:
    """What a server was told over one connection, and what it sent there and waits for."""

    server: str
    requests: Splitter
    answers: Splitter
    client: str = ""
    environment: str = ""
    owner: str = ""
    filters: list[str] = field(default_factory=list)
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    """Bytes of the events that were sent and not acknowledged, by topic and offset."""
    nacks: dict[str, Nack] = field(default_factory=dict)
    subscribes: set[str] = field(default_factory=set)
    taken: bool = False
    """A newer session of the same client has what this one had."""

    @property
    def held(self) -> bool:
        """Whether it has something to go on with, once the others are gone."""
        return bool(self.filters) and not self.taken

    @property
    def whose(self) -> Whose:
        """Who is at the other end."""
        return (self.server, self.environment, self.owner)


class Witness:
    """Knows only what is on the wire."""

    def __init__(self, ends_of: Callable[[str, str], dict[str, int]]) -> None:
        self.ends_of = ends_of
        """Where each topic of a server's environment ends."""
        self.credit_bytes: dict[str, int] = {}
        self.may_lose = False
        """Whether servers keep only so much."""
        self.acknowledged: dict[Place, RangeSet] = {}
        """What each server knows to be dealt with, and would know after a kill."""
        self.begun: dict[Place, int] = {}
        """The first offset that was ever sent there."""
        self.refusals: dict[tuple[Place, int], int] = {}
        self.deliveries = 0
        self.subscribed_at: dict[Whose, dict[str, int]] = {}
        """Where each topic ended when the subscription came that decides where its owner begins."""
        self.subscribed: set[Whose] = set()
        """Those whose subscription was answered: from then on it holds."""
        self._told: dict[object, Told] = {}
        self._unkept: dict[str, list[tuple[Place, int]]] = {}

    # What the servers' connections tell

    def received(self, wire: object, server: str, data: bytes) -> None:
        """A server takes bytes from a connection that came in."""
        told = self._told.get(wire)
        if told is None:
            told = self._told[wire] = Told(server, Splitter(MAX_FRAME), Splitter(MAX_FRAME))
        # What is no message, the server has to deal with.
        with suppress(BadMessage):
            for payload in told.requests.feed(data):
                message = protocol.decode(payload)
                if message.command in _ASKED:
                    self._asked(told, message, protocol.body_of(message))

    def sent(self, wire: object, data: bytes) -> None:
        """A server sends bytes."""
        told = self._told.get(wire)
        if told is None:
            return
        for payload in told.answers.feed(data):
            message = protocol.decode(payload)
            if message.command == Command.ASYNC_MESSAGE_TO_CLIENT:
                self._delivered(told, protocol.body_of(message))
            elif message.command == Command.SUBSCRIBE_RESPONSE and message.status == Status.SUCCESS:
                self._subscribed(told, message)
            elif message.command == Command.NACK_RESPONSE:
                self._nacked(told, message)
            elif message.command == Command.DISCONNECT_RESPONSE:
                self.lost(wire)

    def lost(self, wire: object) -> None:
        """A server knows that a connection is over."""
        gone = self._told.pop(wire, None)
        if gone is not None and not any(other.held and gone.whose == other.whose for other in self._told.values()):
            self._remember_prefixes(*gone.whose)

    def flushed(self, server: str, *, kept: bool) -> None:
        """A server has written what it knew, before it sends on."""
        if kept:
            for place, offset in self._unkept.pop(server, ()):
                self.acknowledged.setdefault(place, RangeSet()).add(offset, offset + 1)

    def process_ended(self, server: str, *, power: bool) -> None:
        """A server's process is gone, and with a power cut what was not synced."""
        self._unkept.pop(server, None)
        self._told = {wire: told for wire, told in self._told.items() if told.server != server}
        if power:
            self.acknowledged = {place: done for place, done in self.acknowledged.items() if place[0] != server}
        else:
            self._remember_prefixes(server)

    def _remember_prefixes(self, *whose: str) -> None:
        # Nobody is there any more: what was acknowledged behind a gap comes again with what is in the gap.
        for place, done in self.acknowledged.items():
            if place[: len(whose)] == whose:
                begun = self.begun[place]
                self.acknowledged[place] = RangeSet([(begun, done.first_gap(begun))])

    # What it means

    def _asked(self, told: Told, message: protocol.Message, body: Any) -> None:
        if isinstance(body, Hello):
            told.client, told.environment = body.client_id, body.environment
            told.owner = f"client {body.client_id}"
        elif isinstance(body, Subscribe):
            if body.group is not None:
                told.owner = f"group {body.group}"
            told.filters += body.topics
            told.subscribes.add(message.seq)
            self._takes_over(told)
            anew = body.start not in (None, "acknowledged")
            if anew:
                self._begins_anew(told)
            if anew or told.whose not in self.subscribed:
                self.subscribed_at[told.whose] = self.ends_of(told.server, told.environment)
        elif isinstance(body, Unsubscribe):
            self._begins_anew(told)
            self.subscribed.discard(told.whose)
            told.subscribes.clear()
        elif isinstance(body, Ack):
            first = 0 if body.first is None else body.first
            place = self._place(told, body.topic)
            for topic, offset in [key for key in told.sizes if key[0] == body.topic and first <= key[1] < body.offset]:
                del told.sizes[topic, offset]
                self._unkept.setdefault(told.server, []).append((place, offset))
        elif isinstance(body, Nack) and (body.topic, body.offset) in told.sizes:
            del told.sizes[body.topic, body.offset]
            told.nacks[message.seq] = body
            where = (self._place(told, body.topic), body.offset)
            self.refusals[where] = self.refusals.get(where, 0) + 1

    def _takes_over(self, told: Told) -> None:
        # What another session of the same client had is this one's now.
        for other in self._told.values():
            if other is not told and other.whose == told.whose and told.owner.startswith("client "):
                other.sizes.clear()
                other.taken = set(other.filters) <= set(told.filters)

    def _begins_anew(self, told: Told) -> None:
        # Whoever says where to begin may get again what it had.
        whose = told.whose
        for known in (self.acknowledged, self.begun):
            for place in [place for place in known if place[:3] == whose]:
                del known[place]
        unkept = self._unkept.get(told.server, [])
        unkept[:] = [(place, offset) for place, offset in unkept if place[:3] != whose]
        for telling in self._told.values():
            if telling.whose == whose:
                telling.sizes.clear()

    def _place(self, told: Told, topic: str) -> Place:
        return (*told.whose, topic)

    def _delivered(self, told: Told, body: Deliver) -> None:
        place = self._place(told, body.topic)
        sizes = [len(event) for event in body.cloud_events]
        if body.lost is not None:
            if not self.may_lose:
                raise BrokenPromise(f"{told.client} is told that {body.topic} {body.lost} is lost")
            sizes = [0] * (body.lost[1] - body.lost[0])
        if body.environment != told.environment:
            raise BrokenPromise(f"{told.client} of {told.environment} gets an event of {body.environment}")
        if not any(matches(filter, body.topic) for filter in told.filters):
            raise BrokenPromise(f"{told.client} gets {body.topic}, and has {told.filters}")
        self._not_again(told, place, body.offset)
        self._alone(told, body)
        if place in self.acknowledged:
            # Behind a gap it may come again, and is to be acknowledged anew.
            self.acknowledged[place].discard(body.offset, body.offset + len(sizes))
        for offset, size in enumerate(sizes, body.offset):
            told.sizes[body.topic, offset] = size
        self.deliveries += len(sizes)
        waiting, limit = sum(told.sizes.values()), self.credit_bytes[told.server]
        if waiting > limit and len(told.sizes) > 1:
            raise BrokenPromise(f"{told.client} has {waiting:,} bytes to acknowledge, more than {limit:,}")

    def _not_again(self, told: Told, place: Place, offset: int) -> None:
        begun = self.begun[place] = min(self.begun.get(place, offset), offset)
        done = self.acknowledged.get(place)
        if done is not None and offset < done.first_gap(begun):
            raise BrokenPromise(f"{told.client} gets {place[3]} {offset} again; acknowledged are {done}")

    def _alone(self, told: Told, body: Deliver) -> None:
        span = range(body.offset, body.offset + len(body.cloud_events))
        for other in self._told.values():
            if other.whose == told.whose and (other is told or told.owner.startswith("group ")):
                both = [offset for offset in span if (body.topic, offset) in other.sizes]
                if both:
                    raise BrokenPromise(f"{told.client} gets {body.topic} {both}, which {other.client} has already")

    def _subscribed(self, told: Told, message: protocol.Message) -> None:
        if message.seq in told.subscribes:
            self.subscribed.add(told.whose)

    def _nacked(self, told: Told, message: protocol.Message) -> None:
        nack = told.nacks.pop(message.seq, None)
        if nack is None or message.status != Status.SUCCESS:
            return
        body: Nacked = protocol.body_of(message)
        if body.dead:
            self._unkept.setdefault(told.server, []).append((self._place(told, nack.topic), nack.offset))


_ASKED = frozenset(
    (
        Command.HELLO_REQUEST,
        Command.SUBSCRIBE_REQUEST,
        Command.UNSUBSCRIBE_REQUEST,
        Command.ASYNC_MESSAGE_TO_CLIENT_ACK,
        Command.NACK_REQUEST,
    )
)
