"""Clients that publish: every event is written down first, and published until it is answered."""

from __future__ import annotations

from dataclasses import dataclass, field

from echomesh.errors import MeshError
from echomesh.events import Event
from echomesh.mesh.bodies import Hello, Server
from echomesh.mesh.client_events import Happening, Refused, Stored, Up
from echomesh.mesh.codes import PORT
from tests.simulation.client import Client
from tests.simulation.clock import Clock
from tests.simulation.network import Network


@dataclass(eq=False, repr=False)
class Publication:
    """An event that somebody wants to have published, and what became of it."""

    at: str
    environment: str
    topic: str
    event: Event
    target: str | None = None
    twice: bool = False
    tries: int = 0
    """Over how many connections it may have gone."""
    offsets: set[int] = field(default_factory=set)
    refused: MeshError | None = None

    def __repr__(self) -> str:
        where = f"{self.at} -> {self.target}" if self.target is not None else self.at
        return f"{self.event.source} {self.event.id} ({self.environment} {self.topic} at {where})"

    @property
    def identity(self) -> tuple[str, str]:
        """What tells it from all other events."""
        return (self.event.source, self.event.id)

    @property
    def answered(self) -> bool:
        """Whether its publisher knows what became of it."""
        return bool(self.offsets) or self.refused is not None

    @property
    def home(self) -> str:
        """The server whose log it is for in the first place."""
        return self.target or self.at


class Publisher(Client):
    """Publishes what it has to, in order; a crash does not make it forget what is not answered."""

    def __init__(
        self, clock: Clock, network: Network, server: str, hello: Hello, plan: list[Publication], seconds: float
    ) -> None:
        super().__init__(clock, network, server, hello)
        self.plan = plan
        self._begun = 0
        self._pace = seconds / max(1, len(plan))

    @property
    def done(self) -> bool:
        """Whether everything is answered."""
        return all(publication.answered for publication in self.plan)

    def begin(self) -> None:
        for publication in self.plan[: self._begun]:
            if not publication.answered:
                self._publish(publication)
        self._go_on()

    def _go_on(self) -> None:
        # Some at once, some one by one.
        for _ in range(self.clock.random.choice((1, 1, 1, 5))):
            if self._begun < len(self.plan):
                self._begun += 1
                self._publish(self.plan[self._begun - 1])
        if self._begun < len(self.plan):
            self.later(self.clock.random.uniform(0.0, 2 * self._pace), self._go_on)

    def _publish(self, publication: Publication) -> None:
        server = None if publication.target is None else Server(publication.target, PORT)
        publication.tries += 1 + publication.twice
        for _ in range(1 + publication.twice):
            self.core.publish(publication.topic, publication.event.encode(), publication, server)
        self.flush_soon()

    def happened(self, what: Happening) -> None:
        if isinstance(what, Up):
            for publication in self.plan[: self._begun]:
                publication.tries += not publication.answered
        elif isinstance(what, Stored):
            for publication, offset in zip(what.tokens, what.offsets, strict=True):
                self.clock.note(self.name, f"has {publication.topic} {publication.event.id} stored at {offset}")
                publication.offsets.add(offset)
        elif isinstance(what, Refused):
            self.clock.note(self.name, f"is refused {what.token.topic} {what.token.event.id}: {what.error!r}")
            what.token.refused = what.error
