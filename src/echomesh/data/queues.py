"""What a publisher does for subscribers that can't keep up: the choices of the user, and a bounded queue for each."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

from echomesh.errors import BadOptions
from echomesh.native.data_home import Home
from echomesh.native.data_target import Target
from echomesh.native.pool import Lease
from echomesh.native.streams import Outlet

Reliability = Literal["reliable", "best effort"]
Slow = Literal["block", "drop oldest", "latest"]

TIMEOUT_S: Final = 30.0
POOL_BYTES: Final = 256 << 20
QUEUE: Final = 64
HISTORY_LIMIT: Final = 1 << 20
_MOST_GAPS: Final = 16


class Reason(IntEnum):
    """Why messages were lost to a subscriber."""

    SLOW = 1
    TIMEOUT = 2
    DEADLINE = 3
    POOL = 4

    @property
    def text(self) -> str:
        """In words."""
        return _WORDS[self]


_WORDS: Final = {
    Reason.SLOW: "the subscriber was slow",
    Reason.TIMEOUT: "the publisher waited no longer",
    Reason.DEADLINE: "the deadline had passed",
    Reason.POOL: "the publisher's pool was full",
}


def reason_text(code: int) -> str:
    """The reason that a publisher gave, in words; a newer one may have reasons that are unknown here."""
    return Reason(code).text if code in _WORDS else f"reason {code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """What a publisher does, and for how long, when it can't deliver at once."""

    reliability: Reliability = "reliable"
    """`reliable`, or `best effort`: what a subscriber can't take at once it does not get."""
    slow: Slow = "block"
    """When a subscriber is slow: `block` the publisher, `drop oldest` of its queue, or keep the `latest` only."""
    timeout: float | None = TIMEOUT_S
    """For how many seconds `block` waits before it raises `SlowSubscriber`; None: for ever."""
    queue: int = QUEUE
    """How many messages `drop oldest` keeps for each subscriber beyond those that it was sent."""
    history: int = 0
    """How many of the last messages a subscriber that comes later gets first."""
    deadline: float | None = None
    """Seconds after which a message that could not be sent is given up as a whole."""
    pool: int = POOL_BYTES
    """The most shared memory for large messages, in bytes; the largest message is one of this size."""

    def __post_init__(self) -> None:
        if self.reliability not in ("reliable", "best effort"):
            raise BadOptions("reliability", self.reliability, "it is 'reliable' or 'best effort'")
        if self.slow not in ("block", "drop oldest", "latest"):
            raise BadOptions("slow", self.slow, "it is 'block', 'drop oldest' or 'latest'")
        for name, least in (("queue", 1), ("history", 0), ("pool", 1 << 16)):
            if getattr(self, name) < least:
                raise BadOptions(name, getattr(self, name), f"it is {least} at least")
        if self.history > HISTORY_LIMIT:
            raise BadOptions("history", self.history, f"it is {HISTORY_LIMIT} at the most")
        for name in ("timeout", "deadline"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise BadOptions(name, value, "it is a number of seconds, or None")

    @property
    def blocks(self) -> bool:
        """Whether `send` waits for slow subscribers."""
        return self.reliability == "reliable" and self.slow == "block"

    @property
    def window(self) -> int:
        """How many messages may be on their way to a subscriber; 0: as many as that takes."""
        return {"block": 0, "drop oldest": self.queue, "latest": 1}[self.slow]


class Entry:
    """A message that could not go to everybody at once."""

    __slots__ = ("expires", "flags", "left", "payload", "prefix", "sequence", "time_ns")

    def __init__(
        self,
        sequence: int,
        time_ns: int,
        flags: int,
        prefix: bytes,
        payload: bytes | Lease,
        expires: float | None = None,
    ) -> None:
        self.sequence = sequence
        self.time_ns = time_ns
        self.flags = flags
        self.prefix = prefix
        self.payload = payload
        self.expires = expires
        self.left: set[Line] = set()
        """Who has not got it yet."""


class Line(Target):
    """The queue for one subscriber, and what it was not given. Call it under its publisher's lock."""

    def __init__(
        self, home: Home, outlet: Outlet, stream_id: int, subscriber: bytes, options: PublisherOptions
    ) -> None:
        super().__init__(home, outlet, stream_id)
        self.subscriber = subscriber
        self.dropped: Counter[Reason] = Counter()
        self._options = options
        self._queue: deque[Entry] = deque()
        self._gaps: deque[tuple[int, int, Reason]] = deque()
        self._dead: dict[int, Reason] = {}
        self._hello: tuple[bytes, bytes, int, int] | None = None
        self._limit = max(options.queue, options.history)

    def greet(self, publisher: bytes, topic: str, history: list[Entry]) -> None:
        """Who publishes, and what it is to have first."""
        self._hello = publisher, topic.encode(), self.next, self._options.window
        for entry in history:
            entry.left.add(self)
            self._queue.append(entry)

    def offer(self, entry: Entry) -> None:
        """Takes a message that can't go now; what the choice does not keep is dropped."""
        if entry.sequence < self.next:
            return  # it went meanwhile, with the history
        self.slow = True
        entry.left.add(self)
        self._insert(entry)
        options = self._options
        if options.reliability == "best effort":
            if not self.flush():
                self.drop(entry, Reason.SLOW)
        elif options.slow != "block":
            keep = 1 if options.slow == "latest" else self._limit
            while len(self._queue) > keep:
                self.drop(self._queue[0], Reason.SLOW)

    def _insert(self, entry: Entry) -> None:
        # Threads that send at the same time may come here in another order than that of their numbers.
        later = []
        while self._queue and self._queue[-1].sequence > entry.sequence:
            later.append(self._queue.pop())
        self._queue.append(entry)
        self._queue.extend(reversed(later))

    def drop(self, entry: Entry, reason: Reason) -> None:
        """Gives a message up for this subscriber, who is told so in its turn."""
        if self not in entry.left:
            return
        entry.left.discard(self)
        self.dropped[reason] += 1
        self._dead[entry.sequence] = reason
        self._bury()

    def _bury(self) -> None:
        # Those in the middle stay until it is their turn: gaps are told in order too.
        while self._queue and (reason := self._dead.pop(self._queue[0].sequence, None)) is not None:
            self._lose(self._queue.popleft().sequence, reason)

    def skip(self, sequence: int, reason: Reason) -> None:
        """A message that was never made."""
        entry = Entry(sequence, 0, 0, b"", b"")
        self.offer(entry)
        self.drop(entry, reason)

    def _lose(self, sequence: int, reason: Reason) -> None:
        if self._gaps:
            first, last, before = self._gaps[-1]
            if last + 1 == sequence and (before == reason or len(self._gaps) >= _MOST_GAPS):
                self._gaps[-1] = first, sequence, before
                return
        self._gaps.append((sequence, sequence, reason))

    def flush(self) -> bool:
        """Writes what can go; True when nothing is left, and messages may go past the queue again."""
        if self._hello is not None:
            if not self.write_hello(*self._hello):
                return False
            self._hello = None
        self._expire()
        while True:
            if self._gaps:
                if not self.write_gap(*self._gaps[0]):
                    return False
                self._gaps.popleft()
                continue
            if not self._queue:
                self.slow = False
                return True
            entry = self._queue[0]
            if self.write(entry.sequence, entry.time_ns, entry.flags, entry.prefix, entry.payload):
                self._queue.popleft()
                entry.left.discard(self)
                self._bury()
            else:
                return False

    def _expire(self) -> None:
        if self._options.deadline is not None:
            now = time.monotonic()
            for entry in [one for one in self._queue if one.expires is not None and one.expires <= now]:
                self.drop(entry, Reason.DEADLINE)

    def close(self) -> None:
        """The subscriber is gone: nobody waits for it any more."""
        super().close()
        for entry in self._queue:
            entry.left.discard(self)
        self._queue.clear()
        self._gaps.clear()
        self._dead.clear()
        self.slow = False

    def shed(self) -> bool:
        """Drops the oldest message that is kept for it and has a place in the pool; False when there is none."""
        held = next((entry for entry in self._queue if isinstance(entry.payload, Lease)), None)
        if held is not None:
            self.drop(held, Reason.POOL)
        return held is not None

    @property
    def answered(self) -> bool:
        """Whether the subscriber has said how much it takes: from then on it is sent to."""
        return self.limit > 0

    @property
    def waiting(self) -> int:
        """How many messages wait here."""
        return len(self._queue)
