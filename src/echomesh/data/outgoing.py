"""What a publisher does, whichever face it has: streams to subscribers, the pool, queues, statistics."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from echomesh.data.config import DataOptions
from echomesh.data.link import PublisherLink
from echomesh.data.messages import Path, PubInsertSubscriber
from echomesh.data.process import Process
from echomesh.data.queues import Entry, Line, PublisherOptions, Reason
from echomesh.errors import ClosedError, DataError, Forked, SlowSubscriber
from echomesh.events import Event
from echomesh.native.data_send import Sender
from echomesh.native.pool import Lease, Pool
from echomesh.nukleus import Stream
from echomesh.nukleus.streams import State
from echomesh.topics import parse_topic

SMALL_BYTES: Final = 8 << 10
"""From here on a message goes through the pool: copying it out of a ring, and zeroing that, would cost more."""

_JOINING_S: Final = 5.0
"""Subscribers are joined to a new publisher one after the other: each in milliseconds, on a busy machine later."""

OPEN: Final = 0
CLOSED: Final = 1
FORKED: Final = 2
FAILED: Final = 3


@dataclass(frozen=True, slots=True)
class PublisherStatistics:
    """What a publisher did since it was made."""

    sent: int
    """Messages."""
    bytes: int
    delivered: int
    """Taken by subscribers, as far as they said so: each message once for each of them."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Not given to a subscriber, by reason."""
    subscribers: int = 0
    """That are sent to."""
    unreachable: int = 0
    """Matched, with no path to them yet."""
    waiting: int = 0
    """Messages in queues."""
    pool_bytes: int = 0
    """Shared memory that the pool has."""
    pool_slots: int = 0
    """Large messages in it that somebody still looks at, or is to have."""


class Rest:
    """Something that has to be waited for before a message is sent, or has been given to all."""

    def __init__(self, ready: Callable[[], object], timeout: float | None, give_up: Callable[[], None]) -> None:
        self.ready = ready
        self.timeout = timeout
        self.give_up = give_up
        """Ends the wait: drops what did not go, and raises."""


class Outgoing(Sender):
    """A publisher without a face."""

    def __init__(
        self, process: Process, options: DataOptions, topic: str, choices: PublisherOptions, id: bytes | None = None
    ) -> None:
        pool = Pool(process.pool_of(process.place.nukleus), process.next_segment, choices.pool)
        super().__init__(process, pool, SMALL_BYTES)
        self.topic = parse_topic(topic)
        self.choices = choices
        self._process = process
        pool.on_retired = self._retired
        self._guard = threading.Lock()
        self._streams: dict[Stream, Line] = {}
        self._claims: dict[bytes, tuple[str, int]] = {}
        self._unreachable: set[bytes] = set()
        self._past: Counter[Reason] = Counter()
        self._past_delivered = 0
        self._error: DataError | None = None
        self._announced = 0.0
        if choices.history:
            self.history = deque(maxlen=choices.history)
        self._link = PublisherLink(
            options,
            self.topic,
            process.place,
            on_subscriber=self._on_subscriber,
            on_subscriber_lost=self._on_subscriber_lost,
            on_failed=self._on_failed,
            id=id,
        )
        self.id = self._link.id
        """16 bytes that no other publisher has."""

    # What the participant says, in the background thread

    def _on_subscriber(self, told: PubInsertSubscriber) -> None:
        if told.path is Path.SHARED_MEMORY:
            self._claims[told.subscriber.id] = told.nukleus, told.stream
            self._process.claim(told.nukleus, told.stream, self, told.subscriber.id)
        else:
            self._unreachable.add(told.subscriber.id)

    def _on_subscriber_lost(self, id: bytes) -> None:
        self._unreachable.discard(id)
        if id in self._claims:
            self._process.unclaim(*self._claims.pop(id))
        for stream, line in list(self._streams.items()):
            if line.subscriber == id:
                self._end(stream)
        self._process.wake()  # who waits until all have joined need not wait for this one

    def _on_failed(self, error: DataError) -> None:
        self._error = error
        self.state = FAILED
        self._process.wake()

    # Streams

    def began(self, stream: Stream, peer: object) -> None:
        """A subscriber's stream is open."""
        assert isinstance(peer, bytes)
        line = Line(self.home, self._process.outlet(stream.peer), stream.outbound_id, peer, self.choices)
        with self._guard:
            self._streams[stream] = line
            stream.taker = line
            line.greet(self.id, self.topic, [Entry(*before) for before in self.join(line)])
            self._share_pool()
            line.flush()

    def lost(self, stream: Stream) -> None:
        """A subscriber is gone."""
        with self._guard:
            line = self._streams.pop(stream, None)
            if line is None:
                return
            self.part(line)
            self._past_delivered += line.taken
            self._past.update(line.dropped)
            line.close()
            self._share_pool()
        self._process.soon(self._link.forget, line.subscriber)

    def _share_pool(self) -> None:
        # So that those who hold on to what they have can never have all of it.
        targets = self.targets
        for line in targets:
            line.lent_limit = self.pool.limit // (len(targets) + 1)

    def _end(self, stream: Stream) -> None:
        with self._process.streams():
            if stream.alive and not (stream.outbound == State.OPEN and stream.end()):
                stream.reset()  # there is no room for more than that
        self.lost(stream)

    def _retired(self, segment: int) -> None:
        for line in self.targets:
            line.write_retired(segment)

    # Sending

    def buffer_of(self, data: Any) -> Any:
        """Events are sent in their wire encoding."""
        return data.encode() if isinstance(data, Event) else super().buffer_of(data)

    def refuse(self) -> None:
        """Says why nothing can be sent."""
        if self.state == FORKED:
            raise Forked("publisher")
        if self._error is not None:
            raise self._error
        raise ClosedError(f"the publisher of {self.topic!r} is closed")

    def overflowed(
        self,
        pending: list[Line],
        sequence: int,
        time_ns: int,
        flags: int,
        prefix: bytes,
        payload: bytes | Lease,
        timeout: float | None,
    ) -> Rest | None:
        """Leaves the message to the queues of those that can't have it now, and tells what is to be waited for."""
        choices = self.choices
        expires = (
            None if choices.deadline is None else time_ns / 1e9 + choices.deadline - time.time() + time.monotonic()
        )
        entry = Entry(sequence, time_ns, flags, prefix, payload, expires)
        with self._guard:
            for line in pending:
                if line.open:
                    line.offer(entry)
                    line.flush()
        if not entry.left or not choices.blocks:
            return None
        limit = choices.timeout if timeout is None else timeout
        late = choices.deadline is not None and (limit is None or choices.deadline <= limit)

        def ready() -> bool:
            self.resume()
            return not entry.left

        def give_up() -> None:
            with self._guard:
                left = [line for line in entry.left if line.open]
                for line in left:
                    line.drop(entry, Reason.DEADLINE if late else Reason.TIMEOUT)
            if left and not late:
                slow = [line.subscriber.hex() for line in left]
                raise SlowSubscriber(self.topic, sequence, limit or 0.0, slow, "they took nothing meanwhile")

        return Rest(ready, choices.deadline if late else limit, give_up)

    def resume(self) -> bool:
        """Writes what waits in queues, as far as it can go."""
        if not any(line.slow for line in self.targets):
            return True
        with self._guard:
            return not [line for line in self.targets if line.slow and not line.flush()]

    # The pool

    def room(self, length: int, timeout: float | None) -> Lease | None:
        """A place in the pool; where a slow subscriber may lose messages, those make room."""
        lease = self.pool.lease(length)
        while lease is None and not self.choices.blocks and self._shed():
            lease = self.pool.lease(length)
        return lease

    def _shed(self) -> bool:
        with self._guard:
            return bool([line for line in self.targets if line.shed()])

    def unroomed(self, data: Any, flags: int, prefix: bytes, timeout: float | None) -> Rest | None:
        """A large message for which the pool has no room."""
        if not self.choices.blocks:
            sequence = self.skip()
            with self._guard:
                for line in self.targets:
                    line.skip(sequence, Reason.POOL)
                    line.flush()
            return None
        view = memoryview(data).cast("B")
        limit = self.choices.timeout if timeout is None else timeout
        rest: Rest | None = None
        lease: Lease | None = None

        def ready() -> bool:
            nonlocal rest, lease
            if lease is None:
                self.resume()
                lease = self.pool.lease(len(view))
                if lease is None:
                    return False
                memoryview(lease)[:] = view
                lease.seal(len(view))
                rest = self.post_lease(lease, flags, prefix, timeout)
            return rest is None or bool(rest.ready())

        def give_up() -> None:
            if rest is not None:
                rest.give_up()
            else:
                self.no_room(limit)

        return Rest(ready, limit, give_up)

    def borrow(self, size: int, timeout: float | None) -> tuple[list[Lease], Rest]:
        """A place in the pool: it is in the list once what is to be waited for is ready."""
        if self.state or not self.home.alive:
            self.refuse()
        limit = self.choices.timeout if timeout is None else timeout
        found: list[Lease] = []

        def ready() -> bool:
            lease = Outgoing.room(self, size, timeout)
            if lease is not None:
                found.append(lease)
            return lease is not None

        def give_up() -> None:
            self.no_room(limit)

        return found, Rest(ready, limit, give_up)

    def returned(self, lease: Lease, view: memoryview, timeout: float | None, *, failed: bool) -> Rest | None:
        """Sends what the user wrote, or gives the place back."""
        with contextlib.suppress(BufferError):  # `seal` says it
            view.release()
        if failed:
            return None
        lease.seal(lease.length)
        rest: Rest | None = self.post_lease(lease, 0, b"", timeout)
        return rest

    def no_room(self, timeout: float | None) -> None:
        """Says who has all of the pool."""
        holding = [line.subscriber.hex() for line in self.targets if line.ledger]
        raise SlowSubscriber(self.topic, self.sequence, timeout or 0.0, holding, "they hold on to all of the pool")

    # Facts

    def written(self) -> Callable[[], bool]:
        """Whether the processes of all subscribers have what was sent up to now."""
        marks = [(line, line.outlet.ring.tail) for line in self.targets]

        def ready() -> bool:
            return self.resume() and all(not line.open or line.outlet.ring.head >= tail for line, tail in marks)

        return ready

    def is_matched(self, count: int) -> bool:
        """Whether so many subscribers are sent to."""
        if self.state:
            self.refuse()
        return self.matched_now >= count

    def has_joined(self) -> bool:
        """Whether all are sent to who were there when it was announced, or were told of since."""
        return not self._link.coming and self.matched_now >= len(self._claims)

    def joining_s(self, left_s: float) -> float:
        """For how long a request that has `left_s` waits for that: one that is stopped never joins."""
        return max(0.0, min(self._announced + _JOINING_S - time.monotonic(), left_s / 2))

    @property
    def matched_now(self) -> int:
        """How many subscribers are sent to."""
        return sum(line.answered for line in self.targets)

    @property
    def statistics(self) -> PublisherStatistics:
        """What it did, and how it is."""
        targets = self.targets
        dropped = sum((line.dropped for line in targets), self._past)
        return PublisherStatistics(
            sent=self.sequence,
            bytes=self.byte_count,
            delivered=self._past_delivered + sum(line.taken for line in targets),
            dropped={reason.text: number for reason, number in dropped.items()},
            subscribers=self.matched_now,
            unreachable=len(self._unreachable),
            waiting=sum(line.waiting for line in targets),
            pool_bytes=self.pool.total,
            pool_slots=self.pool.used,
        )

    @property
    def subscribers(self) -> list[bytes]:
        """The ids of those that are matched, with a path to them or without."""
        return [*(line.subscriber for line in self.targets), *self._unreachable]

    # Life

    def open(self) -> Any:
        """Announces it; a coroutine for the background thread."""
        self._announced = time.monotonic()
        self._process.ends.add(self)
        return self._link.open()

    async def end(self) -> None:
        """Ends the streams and takes the announcement back; for the background thread, once all was written."""
        self.state = self.state or CLOSED
        for stream in list(self._streams):
            self._end(stream)
        await self._link.close()
        self._process.ends.discard(self)
        if self.history is not None:
            self.history.clear()
        self.pool.close()

    def forked(self) -> None:
        """This is a child of the process that it belongs to."""
        self.state = FORKED
