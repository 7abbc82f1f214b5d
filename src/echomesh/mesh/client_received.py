"""An event as a subscription gives it, with its place in the log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from echomesh.errors import OffsetsLost
from echomesh.events import Attribute, Event
from echomesh.mesh.bodies import Server
from echomesh.mesh.client_events import Delivery

if TYPE_CHECKING:
    from echomesh.mesh.client_subscription import Subscription


class Incoming(Struct, eq=False):
    """What both kinds of received events share: the event is decoded when it is first looked at."""

    delivery: Delivery
    offset: int
    raw: Raw
    _event: Event | None = None

    @property
    def event(self) -> Event:
        """The event itself."""
        event = self._event
        if event is None:
            event = self._event = Event.decode(bytes(self.raw))
        return event

    @property
    def encoded(self) -> bytes:
        """The event's bytes, as they were published."""
        return bytes(self.raw)

    @property
    def topic(self) -> str:
        """Where it was published."""
        return self.delivery.topic

    @property
    def tries(self) -> int:
        """How often it was delivered, this time included; more than 1 after a nack."""
        return self.delivery.tries

    @property
    def via(self) -> tuple[Server, ...]:
        """The bridged servers that it came through, the nearest last; empty if it was published at this one."""
        return self.delivery.via

    @property
    def id(self) -> str:
        """The event's id, unique within its source."""
        return self.event.id

    @property
    def source(self) -> str:
        """Where it happened."""
        return self.event.source

    @property
    def type(self) -> str:
        """What happened."""
        return self.event.type

    @property
    def subject(self) -> str | None:
        """What within the source it is about."""
        return self.event.subject

    @property
    def time(self) -> datetime | None:
        """When it happened."""
        return self.event.time

    @property
    def data(self) -> Any:
        """What it carries: the JSON value where its type says JSON, else bytes or str."""
        return self.event.data

    @property
    def extensions(self) -> Mapping[str, Attribute]:
        """Its other attributes."""
        return self.event.extensions

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r}, offset={self.offset}, {self.event!r})"


class Received(Incoming, eq=False):
    """An event that a subscription gave."""

    async def ack(self) -> None:
        """It was dealt with: it does not come again, even after a restart. Any order is fine."""
        self._subscription.settle(self)

    async def nack(self, delay: float | None = None, reason: str | None = None) -> bool:
        """It could not be dealt with: it comes again after `delay` seconds (the server's choice by default).

        After a number of tries that the server knows, it goes to `dead/<topic>` with the reason: then this gives True.
        """
        return await self._subscription.refuse(self, delay, reason)

    @property
    def _subscription(self) -> Subscription:
        return self.delivery.owner  # type: ignore[no-any-return]


class Lost(Struct, frozen=True):
    """Offsets of a topic that can't be delivered any more: removed by retention, or damaged on disk."""

    topic: str
    first: int
    last: int

    def error(self) -> OffsetsLost:
        """The same to raise."""
        return OffsetsLost(self.topic, self.first, self.last)
