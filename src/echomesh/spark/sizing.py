"""About how many bytes a range of a topic has, from looks at a few of its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from echomesh.spark.reach import Range

TOPICS_AT_ONCE: Final = 64  # that are looked into in one call: those with most events
FEW: Final = 64  # events for which one look will do, and after which to look again
PARTS: Final = (0.0, 1 / 64, 1 / 8, 1 / 2)  # where to look: batches are cut from the beginning of a range
USUAL_BYTES: Final = 512.0

Look = Callable[[str, int, int], float | None]  # topic, from, until: bytes of a record there


class _Seen(NamedTuple):
    """What was seen of a topic: from which offset on records have how many bytes, up to where that was looked for."""

    marks: list[tuple[int, float]]
    until: int

    def fits(self, wanted: Range) -> bool:
        """Whether it still tells something of this range."""
        begin = self.marks[0][0]
        return wanted.start - begin <= FEW and wanted.until - self.until <= max(FEW, self.until - begin)

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
            self.last = list(ranges), self._of(ranges)
        return self.last[1]

    def _of(self, ranges: Sequence[Range]) -> list[int]:
        seen_of = self.seen.get
        new = [one for one in ranges if (seen := seen_of(one.topic)) is None or not seen.fits(one)]
        for one in sorted(new, key=lambda one: one.start - one.until)[:TOPICS_AT_ONCE]:
            if (seen := self._looked(one)) is not None:
                self.seen[one.topic] = seen
                self.usual += (seen.marks[0][1] - self.usual) / min(len(self.seen), 100)
        usual = self.usual
        return [
            round((one.until - one.start) * usual if (seen := seen_of(one.topic)) is None else seen.size(one))
            for one in ranges
        ]

    def _looked(self, one: Range) -> _Seen | None:
        rows = one.until - one.start
        places = [one.start + int(rows * part) for part in (PARTS if rows > FEW else PARTS[:1])]
        places = [at for at, behind in pairwise([*dict.fromkeys(places), one.until]) if at < behind]
        found = [(at, average) for at in places if (average := self.look(one.topic, at, one.until)) is not None]
        return _Seen(found, one.until) if found else None
