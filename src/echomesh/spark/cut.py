"""A batch with a limit: all topics are cut at one append time.

Cut by rows for each topic they would drift apart, and a watermark that follows the fastest would drop what the
slower ones bring as late.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import time_ns
from typing import Final, NamedTuple

import pyarrow as pa

from echomesh.errors import EchomeshError
from echomesh.log.arrow import Builder
from echomesh.native.spark_plan import filled, rows_of
from echomesh.spark.options import LAST_US
from echomesh.spark.reach import Range, Reach

ENOUGH: Final = 0.9  # of a limit: to get closer is not worth another look
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What a batch may have at most."""

    rows: int | None
    size: int | None


class _Try(NamedTuple):
    """What was appended before a time, and how much of the limits that takes."""

    time_us: int
    untils: dict[str, int]
    share: float


class Cutter:
    """Cuts one batch after the other; the last cut says where to look for the next."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.last_us = 0
        self.width_us = _SECOND_US

    def cut(self, ranges: list[Range], limits: Limits) -> list[Range]:
        """The ranges within the limits, these if they are; at least one event stays if there is one."""
        full = filled(ranges)
        if not full or self._share(full, limits) <= 1.0:
            return ranges
        search = _Search(self, full, limits)
        untils = search.untils()
        if self.last_us:
            self.width_us = max(1, search.found_us - self.last_us)
        self.last_us = search.found_us
        return [Range(one.topic, one.start, untils.get(one.topic, one.until)) for one in ranges]

    def _share(self, ranges: list[Range], limits: Limits) -> float:
        rows = rows_of(ranges)
        found = rows / limits.rows if limits.rows else 0.0
        if limits.size and found <= 1.0 and rows:
            found = max(found, sum(self.reach.sizes(ranges)) / limits.size)
        return found


class _Search:
    """Looks for the latest time before which not too much was appended."""

    def __init__(self, cutter: Cutter, ranges: list[Range], limits: Limits) -> None:
        self.cutter = cutter
        self.ranges = ranges
        self.limits = limits
        self.under = _Try(0, {one.topic: one.start for one in ranges}, 0.0)
        self.over = _Try(1 << 62, {one.topic: one.until for one in ranges}, float("inf"))
        self.found_us = 0

    def untils(self) -> dict[str, int]:
        """Where each topic is cut."""
        self._surround()
        halve = False
        while self.over.time_us - self.under.time_us > 1 and self.under.share < ENOUGH:
            self._look(self._between(halve))
            halve = not halve
        self.found_us = max(1, self.under.time_us)
        return self.under.untils if self.under.share >= ENOUGH else self._tie()

    def _surround(self) -> None:
        # The next cut is often as far from the last as that was from the one before it. The first is looked for behind
        # the first event of the topic with most of them.
        step = self.cutter.width_us
        self._look((self.cutter.last_us or self._first()) + step)
        while self.over.share == float("inf"):
            self._look(self.under.time_us + step)
            step *= 2
        while self.under.time_us == 0 and self.over.time_us > step:
            self._look(self.over.time_us - step)
            step *= 2

    def _first(self) -> int:
        longest = max(self.ranges, key=lambda one: one.until - one.start)
        builder = Builder(longest.topic, ["timestamp"])
        try:
            given = list(self.cutter.reach.way().scan(longest.topic, longest.start, longest.start + 1, builder))
            (batch,) = [*given, *builder.rest()]
            return int(batch.column(0).cast(pa.int64())[0].as_py())
        except EchomeshError:
            return time_ns() // 1000  # the task will say what is wrong with it

    def _between(self, halve: bool) -> int:
        low, high = self.under, self.over
        part = 0.5 if halve else (0.5 * (1 + ENOUGH) - low.share) / (high.share - low.share)
        width = high.time_us - low.time_us
        return low.time_us + max(1, min(width - 1, int(width * part)))

    def _look(self, time_us: int) -> None:
        # Topics with nothing appended between the two times are settled, and soon most of them are.
        time_us = min(time_us, LAST_US)
        low, high = self.under.untils, self.over.untils
        unsettled = [topic for topic in low if low[topic] < high[topic]]
        found = self.cutter.reach.at_time(unsettled, time_us)
        untils = low | {topic: max(low[topic], min(high[topic], at)) for topic, at in found.items()}
        kept = [Range(one.topic, one.start, untils[one.topic]) for one in self.ranges if untils[one.topic] > one.start]
        tried = _Try(time_us, untils, self.cutter._share(kept, self.limits))
        if tried.share <= 1.0:
            self.under = tried
        else:
            self.over = tried

    def _tie(self) -> dict[str, int]:
        # What is left was all appended in one microsecond: each topic gives its part, and one event comes in any case.
        low, high = self.under, self.over
        part = (1.0 - low.share) / (high.share - low.share)
        untils = {topic: at + int((high.untils[topic] - at) * part) for topic, at in low.untils.items()}
        if all(untils[one.topic] == one.start for one in self.ranges):
            first = next(topic for topic, at in untils.items() if high.untils[topic] > at)
            untils[first] += 1
        return untils
