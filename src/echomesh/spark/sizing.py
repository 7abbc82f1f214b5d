"""About how many bytes a range of a topic has, from looks at a few of its records."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from echomesh.native.spark_plan import guessed
from echomesh.spark.reach import Range

TOPICS_AT_ONCE: Final = 64  # that are looked into in one call: those with most events
ENOUGH: Final = 256  # topics that were looked into: others with few events are taken to be like them
FEW: Final = 64  # events for which one look will do, and after which to look again
PARTS: Final = (0.0, 1 / 64, 1 / 8, 1 / 2)  # where to look: batches are cut from the beginning of a range
USUAL_BYTES: Final = 512.0

Look = Callable[[str, int, int], float | None]  # topic, from, until: bytes of a record there


class _Seen(NamedTuple):
    """What was seen of a topic: from which offset on records have how many bytes, up to where that was looked for."""

    marks: list[tuple[int, float]]
    until: int

    def size(self, wanted: Range) -> float:
        """The bytes of the range."""
        if len(self.marks) == 1:
            return max(0, wanted.until - wanted.start) * self.marks[0][1]
        ends = [*self.marks[1:], (max(wanted.until, self.until), 0.0)]
        known = sum(
            max(0, min(wanted.until, end) - max(wanted.start, at)) * average
            for (at, average), (end, _) in zip(self.marks, ends, strict=True)
        )
        before = max(0, min(self.marks[0][0], wanted.until) - wanted.start)
        return known + before * self.marks[0][1]


class Sizes:
    """Remembers what it has seen, and looks again when a reader has gone on."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.seen: dict[str, _Seen] = {}
        self.usual = USUAL_BYTES
        self.last: tuple[list[Range], list[int]] = [], []

    def of(self, ranges: Sequence[Range]) -> list[int]:
        """About how many bytes each of these has."""
        if ranges != self.last[0]:  # a batch is measured once where it ends, and once for its tasks
            known = list(ranges)
            self.last = known, self._of(known)
        return self.last[1]

    def _of(self, ranges: list[Range]) -> list[int]:
        enough = len(self.seen) >= ENOUGH
        sizes, new = guessed(ranges, self.seen, self.usual, FEW, enough)
        looked = heapq.nsmallest(TOPICS_AT_ONCE, new, key=lambda one: one.start - one.until)
        for one in looked:
            if (seen := self._looked(one)) is not None:
                self.seen[one.topic] = seen
                self.usual += (seen.marks[0][1] - self.usual) / min(len(self.seen), 100)
        return guessed(ranges, self.seen, self.usual, FEW, enough)[0] if looked else sizes

    def _looked(self, one: Range) -> _Seen | None:
        rows = one.until - one.start
        places = [one.start + int(rows * part) for part in (PARTS if rows > FEW else PARTS[:1])]
        places = [at for at, behind in pairwise([*dict.fromkeys(places), one.until]) if at < behind]
        found = [(at, average) for at in places if (average := self.look(one.topic, at, one.until)) is not None]
        return _Seen(found, one.until) if found else None
