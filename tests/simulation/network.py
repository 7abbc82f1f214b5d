"""Connections as they are: streams of bytes that come late and in pieces, stall, fill up, and break anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.simulation.clock import Clock

DIAL_SECONDS = 5.0


class Owner(Protocol):
    """Who has an end of a connection."""

    @property
    def asleep(self) -> bool:
        """Whether it takes nothing for now."""

    def received(self, data: bytes) -> None:
        """Bytes came."""

    def lost(self) -> None:
        """The connection is over."""

    def writable(self, yes: bool) -> None:
        """The other end does not keep up, or does so again."""


Accept = Callable[["End"], Owner]


class End:
    """One end of a connection."""

    def __init__(self, network: Network, here: str, there: str) -> None:
        self.network = network
        self.here = here
        self.there = there
        self.owner: Owner | None = None
        self.peer: End = self
        self.over = False
        self._inbox = bytearray()
        self._coming = False
        self._reading = True
        self._last = False  # the other end closes once its bytes are here
        self._blocked = False
        self._closing = False

    # What an owner does

    def write(self, data: bytes) -> None:
        """Sends; what the other end never sees is lost without a word."""
        if self.over or self._closing:
            return
        if self.peer.over:
            # Nobody is there any more: whoever sends is told, if anybody can.
            if self.network.reachable(self.here, self.there):
                self._end_after(self.network.delay())
            return
        self.peer._inbox += data
        self.peer.wake()
        if len(self.peer._inbox) > self.network.buffer_bytes and not self._blocked and self.owner is not None:
            self._blocked = True
            self.owner.writable(False)

    def close(self) -> None:
        """Ends the connection when all that was written is at the other end."""
        if not self.over and not self._closing:
            self._closing = True
            self.peer._last = True
            self.peer.wake()
            if self.peer.over:
                self._end_after(0.0)

    def abort(self) -> None:
        """Ends the connection here and now; the other end learns of it."""
        self._closing = True
        self._drop()
        self.peer._end_after(self.network.delay())
        self._end_after(0.0)

    def read(self, yes: bool) -> None:
        """Whether bytes are wanted."""
        self._reading = yes
        self.wake()

    @property
    def unread(self) -> int:
        """Bytes that the other end has not taken yet."""
        return len(self.peer._inbox)

    # What happens to it

    def vanish(self, *, told: bool) -> None:
        """The process of this end is gone. With `told` the other end hears of it, after some of what was sent."""
        random = self.network.clock.random
        self.over = True
        self.peer._cut(random.randint(0, len(self.peer._inbox)) if random.random() < 0.5 else len(self.peer._inbox))
        if told:
            self.peer._last = True
            self.peer.wake()
        self.network.forget(self)

    def reset(self, silent_s: float) -> None:
        """Something between the ends breaks the connection; one of them may not notice for long."""
        for end in (self, self.peer):
            end._drop()
        first, second = self.network.clock.random.sample((self, self.peer), 2)
        first._end_after(self.network.delay())
        second._end_after(self.network.delay() + silent_s)

    def wake(self) -> None:
        """Bytes may go on now."""
        if not self._coming and not self.over and self._reading and (self._inbox or self._last):
            self._coming = True
            self.network.clock.after(self.network.delay(), self._arrive)

    def _arrive(self) -> None:
        self._coming = False
        owner = self.owner
        if self.over or not self._reading or owner is None or owner.asleep:
            return
        if not self.network.open(self.here, self.there):
            return
        if self._inbox:
            data = self._piece()
            if self.peer._blocked and len(self._inbox) <= self.network.buffer_bytes // 4:
                self.peer._unblock()
            owner.received(data)
        if self._last and not self._inbox and not self.over:
            self._end_after(0.0)
            self.peer._end_after(0.0)
        self.wake()

    def _piece(self) -> bytes:
        random, inbox = self.network.clock.random, self._inbox
        kind = random.random()
        size = len(inbox) if kind < 0.6 else random.randint(1, len(inbox)) if kind < 0.97 else random.randint(1, 9)
        data = bytes(inbox[:size])
        del inbox[:size]
        return data

    def _unblock(self) -> None:
        self._blocked = False
        if self.owner is not None and not self.over:
            self.owner.writable(True)

    def _cut(self, size: int) -> None:
        del self._inbox[size:]

    def _drop(self) -> None:
        self._inbox.clear()
        self._reading = False

    def _end_after(self, delay: float) -> None:
        self.network.clock.after(delay, self._end)

    def _end(self) -> None:
        if self.over:
            return
        if self.owner is not None and self.owner.asleep:
            self._end_after(0.1)
            return
        self.over = True
        self.network.forget(self)
        if self.owner is not None:
            self.owner.lost()


class Network:
    """Hosts by name, who listens there, and which of them can't reach each other for now."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.slowest = clock.between(0.0005, 0.05)
        self.buffer_bytes = int(clock.between(1 << 10, 256 << 10))
        self.ends: list[End] = []
        self._listening: dict[str, Accept] = {}
        self._cuts: set[frozenset[str]] = set()

    def delay(self) -> float:
        """How long a piece is on its way; some take long."""
        delay = self.clock.random.uniform(0.0001, self.slowest)
        return delay * 10 if self.clock.chance(0.02) else delay

    def listen(self, host: str, accept: Accept) -> None:
        """Somebody listens at the host now."""
        self._listening[host] = accept

    def deaf(self, host: str) -> None:
        """Nobody listens there any more."""
        self._listening.pop(host, None)

    def dial(self, here: str, there: str, answer: Callable[[End | None], Owner | None]) -> None:
        """Connects; `answer` gets the end, and says whose it is; or None when it did not work."""

        def arrive() -> None:
            if there in self._listening and self.open(here, there):
                self._connect(here, there, answer)
            else:
                self.clock.after(0.0 if self.open(here, there) else DIAL_SECONDS, fail)

        def fail() -> None:
            answer(None)

        self.clock.after(self.delay(), arrive)

    def _connect(self, here: str, there: str, answer: Callable[[End | None], Owner | None]) -> None:
        mine, theirs = End(self, here, there), End(self, there, here)
        mine.peer, theirs.peer = theirs, mine
        self.ends += (mine, theirs)
        theirs.owner = self._listening[there](theirs)
        mine.owner = answer(mine)
        if mine.owner is None:
            mine.vanish(told=True)
        for end in (mine, theirs):
            end.wake()

    def forget(self, end: End) -> None:
        """The end is no more."""
        if end in self.ends:
            self.ends.remove(end)

    # Partitions

    def cut(self, one: str, other: str) -> None:
        """Nothing gets from one to the other; connections stay, as nobody can tell their ends."""
        self._cuts.add(frozenset((one, other)))

    def heal(self) -> None:
        """Everybody reaches everybody; what was on its way arrives."""
        self._cuts.clear()
        for end in list(self.ends):
            end.wake()

    def open(self, one: str, other: str) -> bool:
        """Whether bytes get from one to the other."""
        return frozenset((one, other)) not in self._cuts

    def reachable(self, one: str, other: str) -> bool:
        """Whether a host answers at all."""
        return self.open(one, other) and other in self._listening
