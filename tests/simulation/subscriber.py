"""Clients that subscribe: they acknowledge in any order, give some events back, and crash between two of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from echomesh.events import Event
from echomesh.mesh.bodies import Ack, Body, Hello
from echomesh.mesh.client_core import ClientCore
from echomesh.mesh.client_events import Answered, Delivery, Happening, Refused, Told
from echomesh.mesh.client_outbox import State
from echomesh.mesh.codes import Command
from echomesh.topics import matches
from tests.simulation.client import Client
from tests.simulation.clock import Clock
from tests.simulation.network import Network
from tests.simulation.witness import BrokenPromise, Whose, Witness

POISON = "poison"
"""The type of events that nobody can deal with."""

Where = tuple[str, int]
"""A topic and an offset."""


@dataclass(eq=False, repr=False)
class Subscription:
    """What one subscriber, or all members of a group, wanted and got."""

    server: str
    environment: str
    client: str
    filters: list[str]
    group: str | None = None
    start: Any = None
    tired: set[Where] = field(default_factory=set)
    """What was given back although there was nothing wrong with it, which happens once."""
    got: dict[Where, tuple[str, str]] = field(default_factory=dict)
    """Source and id of what came."""
    lost: set[Where] = field(default_factory=set)
    """What the server said it has no more."""
    settled: set[Where] = field(default_factory=set)
    given_back: set[Where] = field(default_factory=set)
    highest: dict[str, int] = field(default_factory=dict)
    doubled: bool = False
    """Whether two programs had it: which of them ends it would be a matter of luck."""
    given_up: bool = False

    def __repr__(self) -> str:
        return f"{self.group or self.client} at {self.server} with {self.environment} {self.filters}"

    @property
    def owner(self) -> tuple[str, str]:
        """Whose it is."""
        return ("client", self.client) if self.group is None else ("group", self.group)

    @property
    def whose(self) -> Whose:
        """How the witness calls it."""
        return (self.server, self.environment, " ".join(self.owner))

    def wants(self, topic: str) -> bool:
        """Whether it has a filter for the topic."""
        return any(matches(filter, topic) for filter in self.filters)

    def first_in(self, topic: str, begun: dict[str, int]) -> int:
        """The offset from which on nothing may be missing, where `begun` is where topics ended then."""
        end = begun.get(topic, 0)
        if self.start == "earliest":
            return 0
        if self.start == "last":
            return max(0, end - 1)
        return min(self.start, end) if isinstance(self.start, int) else end

    def came(self, topic: str, offset: int, event: Event) -> None:
        """An event came: in order if it is new, else the same as before."""
        identity = (event.source, event.id)
        before = self.got.get((topic, offset))
        highest = self.highest.get(topic, -1)
        if before is None and self.group is None and offset < highest:
            raise BrokenPromise(f"{self} gets {topic} {offset} late: it had {highest} before")
        if before not in (None, identity):
            raise BrokenPromise(f"{topic} {offset} is {identity}, and was {before}")
        self.got[topic, offset] = identity
        self.highest[topic] = max(offset, highest)

    def begin_anew(self) -> None:
        """It was given up, and nothing of what was before is promised any more."""
        self.highest.clear()
        self.given_back.clear()


class PlainCore(ClientCore):
    """A client that knows nothing of ranges: it says up to where it is."""

    def _send(self, command: Command, seq: str, body: Body | None) -> None:
        if isinstance(body, Ack):
            body.first = None
        super()._send(command, seq, body)


class Subscriber(Client):
    """One who subscribes, alone or in a group."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        hello: Hello,
        subscription: Subscription,
        witness: Witness,
        *,
        leads: bool = True,
    ) -> None:
        self.plain = subscription.group is None and clock.chance(0.2)
        """Whether it gives nothing back, and acknowledges in the plainest way."""
        super().__init__(clock, network, subscription.server, hello)
        self.subscription = subscription
        self.leads = leads
        """Whether it says where a group begins."""
        self.slowest = clock.between(0.001, 3.0)
        self.fragile = 0.1 if clock.chance(0.2) else 0.0
        """How often it crashes over what it gets."""
        self._witness = witness
        self._nacks = 0.05 if clock.chance(0.3) else 0.0

    def make_core(self) -> ClientCore:
        return PlainCore(self.hello) if self.plain else super().make_core()

    def twin(self) -> Subscriber:
        """Another program that takes itself for the same client."""
        self.subscription.doubled = True
        return Subscriber(self.clock, self.network, self.hello, self.subscription, self._witness)

    def begin(self) -> None:
        wanted = self.subscription
        if self.left:
            return
        new = wanted.whose not in self._witness.subscribed
        if new and not self.leads:
            self.later(0.1, self.begin)
            return
        # Whoever subscribed before goes on where it was.
        start = wanted.start if new else None
        self.core.subscribe(list(wanted.filters), "subscribe", start=start, group=wanted.group)
        self.flush_soon()

    def unsubscribe(self) -> None:
        """Gives the subscription up, and makes it anew."""
        wanted = self.subscription
        if self.core.state is State.UP and wanted.group is None and not wanted.doubled:
            self.clock.note(self.name, "unsubscribes")
            wanted.given_up = True
            self.core.unsubscribe(list(wanted.filters), "unsubscribe")
            self.flush_soon()

    def happened(self, what: Happening) -> None:
        if isinstance(what, Delivery):
            self._delivered(what)
        elif isinstance(what, Told) and what.kind == "taken-over":
            self.clock.note(self.name, "is not wanted any more")
            self.leave()
        elif isinstance(what, Answered):
            self._answered(what.token)
        elif isinstance(what, Refused):
            self.clock.note(self.name, f"is refused {what.token}: {what.error!r}")
            if what.token == "unsubscribe":
                self.subscription.begin_anew()
            if what.token in ("subscribe", "unsubscribe"):
                self.later(0.2, self.begin)

    def _answered(self, token: str) -> None:
        self.clock.note(self.name, f"has {token} done")
        if token == "unsubscribe":
            self.subscription.begin_anew()
            self.begin()

    def _delivered(self, delivery: Delivery) -> None:
        wanted, topic = self.subscription, delivery.topic
        if delivery.lost is not None:
            self.clock.note(self.name, f"has lost {topic} {delivery.lost}")
            wanted.lost.update((topic, offset) for offset in range(*delivery.lost))
            self._settle(delivery, delivery.lost[0])
            return
        self.clock.note(self.name, f"gets {topic} {delivery.first}+{len(delivery.events)}")
        for offset, raw in enumerate(delivery.events, delivery.first):
            event = Event.decode(raw)
            wanted.came(topic, offset, event)
            self._deal_with(delivery, offset, event)
        if self.clock.chance(self.fragile):
            self.crash(told=self.clock.chance(0.7))

    def _deal_with(self, delivery: Delivery, offset: int, event: Event) -> None:
        where = (delivery.topic, offset)
        poison = event.type == POISON and not delivery.topic.startswith("dead/")
        tired = where not in self.subscription.tired and self.clock.chance(self._nacks)
        if (poison or tired) and not self.plain:
            self.subscription.given_back.add(where)
            self.subscription.tired.add(where)
            self.later(self.clock.random.uniform(0.0, self.slowest), lambda: self._give_back(delivery, offset))
        elif self.clock.chance(0.5):
            self._settle(delivery, offset)
        else:
            self.later(self.clock.random.uniform(0.0, self.slowest), lambda: self._settle(delivery, offset))

    def _settle(self, delivery: Delivery, offset: int) -> None:
        self.core.settle(delivery, offset)
        self.subscription.settled.add((delivery.topic, offset))
        self.flush_soon()

    def _give_back(self, delivery: Delivery, offset: int) -> None:
        delay = self.clock.random.choice((None, 0.0, 0.1))
        self.core.nack(delivery, offset, f"nack {delivery.topic} {offset}", delay, "it is poison")
        self.flush_soon()
