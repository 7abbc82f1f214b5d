"""Streaming reads: how far a batch goes, and what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from echomesh.errors import DataLoss
from echomesh.native.spark_plan import ends, grown
from echomesh.spark import columns, options, starts
from echomesh.spark.answers import Answers
from echomesh.spark.cut import Cutter, Limits
from echomesh.spark.garbage import collect_seldom, keep_memory, settle_once
from echomesh.spark.offsets import Offsets
from echomesh.spark.options import Place
from echomesh.spark.plan import Part, parts
from echomesh.spark.reach import Bounds, Range, Reach
from echomesh.spark.source import reach, read
from echomesh.topics import matches

if TYPE_CHECKING:
    import pyarrow as pa

SAID: Final = 1000  # gaps that are remembered


class _Measured(NamedTuple):
    """A batch whose end was asked for, and what is in it."""

    start: Offsets
    end: Offsets
    ranges: list[Range]


class _Asked(NamedTuple):
    """What the end of a batch depends on. Spark asks for it all the time while there is nothing new."""

    before: Offsets
    bounds: Bounds
    limit: ReadLimit
    target: Offsets | None

    def same(self, other: _Asked) -> bool:
        """Whether the answer is the same."""
        there = self.bounds is other.bounds and self.target is other.target and self.limit == other.limit
        return there and (self.before is other.before or self.before == other.before)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow. Spark makes one for planning and one for the driver; only the latter opens the log."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self.options = options.parse(given, streaming=True)
        self.columns = columns.chosen(schema)
        self.target: Offsets | None = None  # of a query that ends where the log ended when it began
        self.lost = 0
        self.said: set[str] = set()
        self.seen: Bounds | None = None
        self.measured: _Measured | None = None
        self.asked: _Asked | None = None
        self.answer = Offsets("", {})
        self.answers = Answers()
        self.whole = False  # it goes up to where the log ends
        self._reach: Reach | None = None
        self._cutter: Cutter | None = None

    @property
    def cutter(self) -> Cutter:
        """Cuts batches that would be too large."""
        if self._cutter is None:
            self._cutter = Cutter(self.reach)
        return self._cutter

    @property
    def reach(self) -> Reach:
        """The log, opened when it is needed first."""
        if self._reach is None:
            self._reach = reach(self.options)
            settle_once()
            collect_seldom()
            keep_memory()
        return self._reach

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        bounds = self._bounds()
        place = self.options.starting or Place("latest")
        begin = starts.places(self.reach, self.options, place, bounds, "starting")
        return Offsets(self.reach.log_id, begin).json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options allow a batch to have."""
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        return ReadMaxBytes(self.options.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the batch that begins at `start` is to end."""
        before, bounds = self.answers.hear(start), self._bounds()
        asked = _Asked(before, bounds, limit, self.target)
        if self.asked is None or not self.asked.same(asked):
            self.answer = self._latest(before, bounds, limit)
            self.asked = asked
        if self.answer == before:
            return start
        return self.answers.say(self.answer, self.lost if self.whole else None)

    def _latest(self, before: Offsets, bounds: Bounds, limit: ReadLimit) -> Offsets:
        self.seen = bounds
        ranges, events, others = self._grown(before, bounds)
        self.whole = self.target is None and not others and len(ranges) == len(bounds) and events > 0
        if not isinstance(limit, ReadAllAvailable):
            cut = self.cutter.cut(ranges, self._limits(limit))
            if cut is not ranges:
                ranges, events, self.whole = cut, self._events(before, cut), False
        kept = {topic: before.topics[topic] for topic in others if not self._subscribed(topic)}
        after = Offsets(self.reach.log_id, ends(ranges, kept), events)
        self.measured = _Measured(before, after, ranges)
        return after

    def _grown(self, before: Offsets, bounds: Bounds) -> tuple[list[Range], int, list[str]]:
        # And topics that were read and are not there now. The usual case is a loop over thousands of topics.
        if self.target is None and before.log_id == self.reach.log_id:
            plain = grown(dict(before.topics), dict(bounds), Range)
            if plain is not None:
                return *plain, []
        ranges = self._ranges(before, bounds, self.target)
        return ranges, self._events(before, ranges), sorted(before.topics.keys() - bounds.keys())

    def _events(self, before: Offsets, ranges: list[Range]) -> int:
        # Those that are lost too.
        begin = before.topics if before.log_id == self.reach.log_id else {}
        return sum(max(0, one.until - begin.get(one.topic, one.start)) for one in ranges)

    def _limits(self, limit: ReadLimit) -> Limits:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_offsets
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes
        return Limits(rows, size)

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that comes later belongs to this query."""
        bounds = self._bounds()
        self.target = Offsets(self.reach.log_id, {topic: end for topic, (_, end) in bounds.items()})

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end of the log, for the query's progress, and how many events the driver saw the query go on without."""
        bounds = self._bounds() if self.seen is None else self.seen  # those that the batch was measured by
        return self.answers.report((bounds, self.reach.log_id, self.lost), self._report)

    def _report(self, bounds: Bounds, log_id: str, lost: int) -> dict[str, Any]:
        ends = {topic: end for topic, (_, end) in bounds.items()}
        return Offsets(log_id, ends).json() | {"lost": lost}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        """What each task of the batch reads."""
        begin, until = self.answers.hear(start), self.answers.hear(end)
        if self.measured is not None and self.measured[:2] == (begin, until):
            # Measured a moment ago; what is removed since then, its task finds out.
            return parts(self.reach, self.options, self.measured.ranges, self.columns)
        bounds = self._bounds()
        if until.log_id != self.reach.log_id:
            self._lost(_another(until.log_id, self.reach.log_id))
            return []
        return parts(self.reach, self.options, self._ranges(begin, bounds, until), self.columns)

    def _bounds(self) -> Bounds:
        return self.reach.bounds(self.options.subscribe)

    def _subscribed(self, topic: str) -> bool:
        return any(matches(filter, topic) for filter in self.options.subscribe)

    def _ranges(self, start: Offsets, bounds: Bounds, target: Offsets | None) -> list[Range]:
        """From `start` up to the end, or the target's; what the log has not got any more is loss."""
        begin = start.topics
        if start.log_id != self.reach.log_id:
            self._lost(_another(start.log_id, self.reach.log_id))
            begin = {}
        for topic in begin.keys() - bounds.keys():
            if self._subscribed(topic):
                self._lost(DataLoss(topic, 0, begin[topic], "the topic is gone"))
        ranges = []
        for topic, (earliest, end) in bounds.items():
            at = begin.get(topic, earliest)
            until = end if target is None else target.topics.get(topic, at)
            if at < until or topic in begin:  # a new topic counts from its first event on
                if not earliest <= at <= until <= end:
                    at, until = self._inside(topic, at, until, earliest, end)
                ranges.append(Range(topic, at, until))
        return ranges

    def _inside(self, topic: str, at: int, until: int, earliest: int, end: int) -> tuple[int, int]:
        if max(at, until) > end:
            reason = f"the topic ends at {end}, before what was read: was its directory made anew?"
            self._lost(DataLoss(topic, end, max(at, until) - 1, reason))
            return end, end
        if at < earliest and at < until:
            last = min(earliest, until) - 1
            self._lost(DataLoss(topic, at, last, "they were removed before they were read"))
            return last + 1, until
        return at, max(at, until)

    def _lost(self, loss: DataLoss) -> None:
        # A batch meets the same gap when it is measured and when it is planned.
        if str(loss) not in self.said:
            self.lost += starts.lost(self.options.fail_on_data_loss, loss)
            self.said = {*self.said, str(loss)} if len(self.said) < SAID else {str(loss)}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: readers leave no trace in a log."""

    def stop(self) -> None:
        """Lets go of the log."""
        if self._reach is not None:
            self._reach.close()
            self._reach = None


def _another(before: str, now: str) -> DataLoss:
    return DataLoss("", 0, 0, f"the checkpoint is of the log {before}, and this is {now}: it was made anew")
