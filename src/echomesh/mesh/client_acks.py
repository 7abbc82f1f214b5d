"""Which delivered events were dealt with, and what of that a server is told.

A server is told ranges: [first, end) was dealt with. Users settle events in any order, so a range grows over what is
settled without a gap, and the rest is remembered here until the gap closes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from echomesh.mesh.ranges import RangeSet

_NONE: Final = -1
_MOST_RANGES: Final = 256  # of settled offsets that are remembered


class Run(Struct, gc=False):
    """One delivery: offsets from `first` to before `end`; those of a lost range (`whole`) are settled by its first."""

    first: int
    end: int
    size: int
    seq: str
    whole: bool = False


class Range(Struct, gc=False):
    """Offsets to acknowledge, and the seq of the delivery that they end in."""

    first: int
    end: int
    seq: str


class TopicAcks:
    """What of one topic was delivered, and what of that is settled.

    It outlives connections: after `reset` the server delivers again what it was not told of. What the user settled is
    then acknowledged once more, and not handed out a second time.
    """

    __slots__ = (
        "_again",
        "_early",
        "_end",
        "_from",
        "_high",
        "_holes",
        "_late",
        "_next",
        "_run",
        "_runs",
        "_settled",
        "_untold",
        "topic",
    )

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._run: Run | None = None  # the first delivery that is not settled
        self._runs: deque[Run] = deque()  # those behind it
        self._from = self._next = self._end = _NONE  # of that run: not told, not settled, its end
        self._high = 0  # the end of what was delivered in order
        self._early: set[int] = set()  # settled, behind one that is not
        self._holes: set[int] = set()  # of these, what was given back to the server
        self._late: dict[int, Range] = {}  # delivered out of order, by offset: acknowledged alone
        self._untold: list[Range] = []
        self._settled = RangeSet()
        self._again = False  # after a reset: what comes may have been settled

    @property
    def untold(self) -> bool:
        """Whether there is something to tell the server."""
        return self._next > self._from or bool(self._untold)

    def deliver(self, run: Run) -> list[tuple[int, int]]:
        """Notes a delivery; the parts of it that are for the user: all, but for what was settled before."""
        if run.first < self._high:
            return self._deliver_late(run)
        self._high = run.end
        if self._run is None:
            self._begin(run)
        else:
            self._runs.append(run)
        if not self._again:
            return [(run.first, run.end)]
        parts = self._new_parts(run)
        if parts != [(run.first, run.end)]:
            for first, end in _between(parts, run):
                self._early.update(range(first, first + 1 if run.whole else end))
            self._advance()
        return parts

    def settle(self, first: int, end: int) -> int:
        """The user is done with [first, end). Returns the bytes of deliveries that are settled to the last with it."""
        if first == self._next and end <= self._end and not self._early:
            self._next = end
            return 0 if end < self._end else self._advance()
        return sum(self._settle(offset) for offset in range(first, end))

    def give_back(self, offset: int) -> None:
        """The server delivers this one again later: it is neither settled nor waited for."""
        if offset in self._late:
            del self._late[offset]
        elif self._next <= offset < self._high:
            self._holes.add(offset)
            self._early.add(offset)
            self._advance()

    def take(self) -> list[Range]:
        """What the server is to be told now."""
        if self._next > self._from and self._run is not None:
            self._close(self._next)
            self._from = self._next
        ranges, self._untold = self._untold, []
        return ranges

    def reset(self) -> None:
        """The connection is gone, and with it what was delivered and not acknowledged."""
        self.take()
        for offset in self._early - self._holes:
            self._remember(offset, offset + 1)
        self._run = None
        self._runs.clear()
        self._from = self._next = self._end = _NONE
        self._high = 0
        self._early.clear()
        self._holes.clear()
        self._late.clear()
        self._again = True

    def _deliver_late(self, run: Run) -> list[tuple[int, int]]:
        parts = self._new_parts(run)
        if parts != [(run.first, run.end)]:
            self._untold.extend(Range(first, end, run.seq) for first, end in _between(parts, run))
        for first, end in parts:
            if run.whole:
                self._late[first] = Range(first, end, run.seq)
            else:
                self._late.update((offset, Range(offset, offset + 1, run.seq)) for offset in range(first, end))
        return parts

    def _new_parts(self, run: Run) -> list[tuple[int, int]]:
        if not self._again:
            return [(run.first, run.end)]
        if run.whole:
            return [] if run.first in self._settled else [(run.first, run.end)]
        return self._settled.missing(run.first, run.end)

    def _settle(self, offset: int) -> int:
        if (late := self._late.pop(offset, None)) is not None:
            self._remember(late.first, late.end)
            self._untold.append(late)
        elif self._next <= offset < self._high and self._run is not None:
            self._early.add(offset)
            return self._advance()
        elif self._again and offset >= self._high:
            # It came over a connection that is gone, and may come again over this one.
            self._remember(offset, offset + 1)
        return 0

    def _begin(self, run: Run) -> None:
        self._run = run
        self._from = self._next = run.first
        self._end = run.first + 1 if run.whole else run.end

    def _advance(self) -> int:
        """Goes over all that is settled; the bytes of the deliveries that are behind it then."""
        freed = 0
        while (run := self._run) is not None:
            while self._next < self._end and self._next in self._early:
                self._early.discard(self._next)
                if self._next in self._holes:
                    self._holes.discard(self._next)
                    self._close(self._next)
                    self._from = self._next + 1
                self._next += 1
            if self._next < self._end:
                break
            self._close(run.end)
            freed += run.size
            if self._runs:
                self._begin(self._runs.popleft())
            else:
                self._run = None
                self._from = self._next = self._end = _NONE
        return freed

    def _close(self, end: int) -> None:
        first, run, untold = self._from, self._run, self._untold
        if run is None or end <= first:
            return
        self._remember(first, end)
        if untold and untold[-1].end == first:
            untold[-1].end = end
            untold[-1].seq = run.seq
        else:
            untold.append(Range(first, end, run.seq))

    def _remember(self, first: int, end: int) -> None:
        self._settled.add(first, end)
        if len(self._settled) > _MOST_RANGES:
            self._settled.discard(*next(iter(self._settled)))


def _between(parts: list[tuple[int, int]], run: Run) -> list[tuple[int, int]]:
    """What of a run is in none of the parts."""
    edges = [run.first, *(edge for part in parts for edge in part), run.end]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if first < end]
