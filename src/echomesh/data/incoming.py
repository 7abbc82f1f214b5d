"""What a subscriber does, whichever face it has: streams from publishers, gaps, statistics."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from echomesh.data.config import DataOptions
from echomesh.data.link import SubscriberLink
from echomesh.data.messages import Path, SubInsertPublisher
from echomesh.data.process import Process
from echomesh.data.queues import reason_text
from echomesh.errors import BadFrame, BadOptions, ClosedError, DataError, Forked, MessagesLost
from echomesh.native.data_message import Message
from echomesh.native.data_receive import Arrival, Inbox
from echomesh.nukleus import Stream
from echomesh.topics import matches, parse_filter

_log = logging.getLogger(__name__)

QUEUE: Final = 8192
_MOST_QUEUE: Final = 1 << 20

RESERVED: Final = "_reply/"
"""Topics of answers: a filter with wildcards does not get them."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of one publisher that will not come, by their exact numbers."""

    topic: str
    publisher: bytes
    first: int
    last: int
    reason: str

    def error(self) -> MessagesLost:
        """As an error."""
        return MessagesLost(self.topic, self.publisher, self.first, self.last, self.reason)


OnGap = Callable[[Gap], object] | Literal["raise"] | None


@dataclass(frozen=True, slots=True)
class SubscriberStatistics:
    """What a subscriber got since it was made."""

    delivered: int
    """Messages that were taken."""
    bytes: int
    waiting: int
    """Messages that came and were not taken yet."""
    publishers: int
    """With an open stream."""
    gaps: int
    lost: dict[str, int] = field(default_factory=dict)
    """Messages that will not come, by reason."""


class Incoming(Inbox):
    """A subscriber without a face."""

    def __init__(
        self,
        process: Process,
        options: DataOptions,
        filter: str,
        *,
        queue: int = QUEUE,
        on_gap: OnGap = None,
        spin: float = 0.0,
        id: bytes | None = None,
        answer: Callable[[Message, Any], Any] | None = None,
    ) -> None:
        if not 1 <= queue <= _MOST_QUEUE:
            raise BadOptions("queue", queue, f"it is 1 to {_MOST_QUEUE} messages")
        super().__init__(process, queue, spin)
        self.filter = parse_filter(filter)
        self._process = process
        self._on_gap = on_gap
        self._answer = answer
        self._references: dict[bytes, int] = {}
        self._arrivals: dict[Stream, Arrival] = {}
        self._gaps = 0
        self._lost: Counter[str] = Counter()
        self._warned: set[bytes] = set()
        self._link = SubscriberLink(
            options,
            self.filter,
            process.place,
            on_publisher=self._on_publisher,
            on_publisher_lost=self._on_publisher_lost,
            on_failed=self._on_failed,
            id=id,
        )
        self.id = self._link.id
        """16 bytes that no other subscriber has."""

    # What the participant says, in the background thread

    def _on_publisher(self, told: SubInsertPublisher) -> None:
        if told.path is Path.SHARED_MEMORY:
            self._references[told.publisher.id] = told.reference
            self._process.expect(told.reference, self, told.publisher.id)

    def _on_publisher_lost(self, id: bytes) -> None:
        reference = self._references.pop(id, None)
        if reference is not None:
            self._process.unexpect(reference)

    def _on_failed(self, error: DataError) -> None:
        self.closed = error
        self._process.wake()

    # Streams

    def began(self, stream: Stream, peer: object) -> None:
        """A publisher's stream is open."""
        outlet = self._process.outlet(stream.peer)
        arrival = Arrival(self, outlet, stream.outbound_id, stream.peer, self._process.pool_of(stream.peer))
        self._arrivals[stream] = arrival
        stream.taker = arrival

    def lost(self, stream: Stream) -> None:
        """The publisher is gone; what it sent can still be taken."""
        arrival = self._arrivals.pop(stream, None)
        if arrival is not None:
            arrival.close()

    def resume(self) -> bool:
        """Gives credit, and parts of pools back, that found no room before."""
        return not [arrival for arrival in list(self._arrivals.values()) if not arrival.settle()]

    def greeted(self, arrival: Arrival) -> None:
        """Looks at what a publisher says of itself."""
        if not matches(self.filter, arrival.topic):
            raise BadFrame(f"{arrival.peer} publishes {arrival.topic!r}, which {self.filter!r} does not match")
        if arrival.topic.startswith(RESERVED) and arrival.topic != self.filter:
            raise BadFrame(f"{arrival.topic!r} is for one who asked, and not for {self.filter!r}")

    def gap(self, arrival: Arrival, first: int, last: int, reason: int) -> None:
        """Messages that will not come."""
        gap = Gap(arrival.topic, arrival.publisher, first, last, reason_text(reason))
        self._gaps += 1
        self._lost[gap.reason] += last - first + 1
        if callable(self._on_gap):
            self._on_gap(gap)
        elif self._on_gap == "raise":
            raise gap.error()
        elif gap.publisher not in self._warned:
            self._warned.add(gap.publisher)
            _log.warning("%s (said once for each publisher; see the statistics)", gap.error())

    def reply(self, message: Message, data: Any) -> Any:
        """Answers a request."""
        if self._answer is None:
            raise ClosedError("this subscriber can't answer: its mesh is gone")
        return self._answer(message, data)

    # Facts

    def written(self) -> Callable[[], bool]:
        """It sends nothing that anybody would miss."""
        return lambda: True

    def has_more(self) -> bool:
        """Whether there is something to take, or to say."""
        return self.waiting > 0 or self.closed is not None

    @property
    def statistics(self) -> SubscriberStatistics:
        """What it got, and how it is."""
        return SubscriberStatistics(
            self.delivered, self.byte_count, self.waiting, len(self._arrivals), self._gaps, dict(self._lost)
        )

    @property
    def publishers(self) -> list[bytes]:
        """The ids of those that send to it now."""
        return [arrival.publisher for arrival in list(self._arrivals.values()) if arrival.publisher is not None]

    # Life

    def open(self) -> Any:
        """Announces it; a coroutine for the background thread."""
        self._process.ends.add(self)
        return self._link.open()

    async def end(self) -> None:
        """Resets the streams and takes the announcement back; for the background thread."""
        self.closed = self.closed or ClosedError(f"the subscriber of {self.filter!r} is closed")
        for id in list(self._references):
            self._on_publisher_lost(id)
        for stream in list(self._arrivals):
            with self._process.streams():
                stream.reset()
            self.lost(stream)
        self.clear()
        await self._link.close()
        self._process.ends.discard(self)
        self._process.wake()

    def forked(self) -> None:
        """This is a child of the process that it belongs to."""
        self.closed = Forked("subscriber")
        self.clear()
