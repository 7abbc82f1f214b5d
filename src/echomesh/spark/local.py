"""A log read where it lies: its data directory is on this machine, or on one that is mounted."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from echomesh.errors import DataLoss, HoleError, LogCorrupt, OffsetGone, OffsetsLost, UnknownTopic
from echomesh.log import LogReader, Records, TopicReader, arrow
from echomesh.log.handles import allowed
from echomesh.log.layout import parquet_name
from echomesh.log.segments import listed
from echomesh.native.spark_places import Files, Spot, told
from echomesh.spark.garbage import settle
from echomesh.spark.places import Places, spot_of
from echomesh.spark.reach import Range
from echomesh.spark.sizing import Sizes
from echomesh.topics import Matcher

if TYPE_CHECKING:
    import pyarrow as pa

    from echomesh.log.view import TopicName

SAMPLE_BYTES: Final = 1 << 16
KEPT_BEFORE: Final = 32
KEPT_BYTES: Final = 1 << 14
ALL_KEPT_BYTES: Final = 64 << 20
MANY_HANDLES: Final = 16384
MANY_READERS: Final = 1024
NEAR_EVENTS: Final = 256
SPOT_S: Final = 300.0
MANY_SPOTS: Final = 1 << 17
CARRIED_BYTES: Final = 4 << 20  # of events that travel with the plan of a task


class _Topics:
    """The topics of one environment by name, each with a reader that remembers where it was."""

    def __init__(self, directory: str, environment: str) -> None:
        self.log = LogReader(directory)
        self.environment = environment
        self.listed: list[TopicName] = []
        self.names: dict[str, TopicName] = {}
        self.readers: dict[str, TopicReader] = {}
        self.settle_at = MANY_READERS

    def look(self) -> None:
        """Sees what has come since; what a running writer does is seen at once in any case."""
        if not self.log.view.live:
            self.log.look()
        self.list()

    def list(self) -> None:
        """Knows the topics that are visible now."""
        found = self.log.topics()
        if found is not self.listed and found != self.listed:
            self.listed = found
            self.names = {topic.name: topic for topic in found if topic.environment == self.environment}

    def __getitem__(self, name: str) -> TopicReader:
        reader = self.readers.get(name)
        if reader is None:
            if name not in self.names:
                self.look()
            if name not in self.names:
                raise UnknownTopic(name, self.environment)
            reader = self.readers[name] = TopicReader(self.log, self.names[name])
            if len(self.readers) == self.settle_at:
                self.settle_at *= 2
                settle()
        return reader


@dataclass
class _Asked:
    """Topics whose bounds are asked for, by name, and what they were last."""

    filters: Sequence[str]
    names: dict[str, TopicName]
    matching: list[str]
    numbers: list[int]
    states: list[tuple[int, int]] = field(default_factory=list)
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)


class LocalReach:
    """The topics of a data directory, for the driver."""

    def __init__(self, directory: str, environment: str) -> None:
        self.directory = str(Path(directory).absolute())
        self.environment = environment
        self.open: _Topics | None = None
        self.looks = Sizes(self._look)
        self.times = _Times()
        self.spots = _Spots()
        self.asked: _Asked | None = None
        self.log_id = self._topics().log.log_id.hex()

    def _topics(self) -> _Topics:
        # A directory that was made anew has another id, and none of the old files.
        if self.open is not None and _id_of(self.directory) != self.open.log.log_id:
            self.close()
        if self.open is None:
            self.open = _Topics(self.directory, self.environment)
            self.log_id = self.open.log.log_id.hex()
        self.open.look()
        return self.open

    def bounds(self, filters: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The first offset that is kept and the end of each topic that matches one of these filters, by name.

        As long as nothing changes it is the same dictionary: a stream asks again and again.
        """
        found = self._topics()
        states = found.log.bounds(lambda: self._wanted(found, filters))
        asked = self.asked
        assert asked is not None
        if states != asked.states or not asked.bounds:
            asked.states, asked.bounds = states, dict(zip(asked.matching, states, strict=True))
        return asked.bounds

    def _wanted(self, found: _Topics, filters: Sequence[str]) -> list[int]:
        # The numbers of the topics, and their names beside them.
        found.list()
        asked = self.asked
        if asked is None or asked.names is not found.names or asked.filters != tuple(filters):
            matcher: Matcher[None] = Matcher()
            for filter in filters:
                matcher.add(filter, None)
            matching = sorted(name for name in found.names if matcher.match(name))
            numbers = [found.names[name].number for name in matching]
            asked = self.asked = _Asked(tuple(filters), found.names, matching, numbers)
        return asked.numbers

    def at_time(self, topics: Sequence[str], time_us: int) -> dict[str, int]:
        """The offset of the first event that was appended at this time or later; the end when there is none."""
        found = self._topics()
        return {name: self.times.offset_at(found[name], time_us * 1000) for name in topics}

    def sizes(self, ranges: Sequence[Range]) -> list[int]:
        """About how many bytes each of these has."""
        return self.looks.of(ranges)

    def _look(self, topic: str, start: int, until: int) -> float | None:
        try:
            records = self._topics()[topic].read(start, max_bytes=SAMPLE_BYTES, max_records=until - start)
        except (OffsetsLost, LogCorrupt):
            return None
        return max(1.0, len(records.raw()) / max(1, len(records)))

    def converted(self, topic: str) -> list[tuple[int, int, str]]:
        """(first offset, the one behind the last, path) of each segment that is a Parquet file, in order."""
        reader = self._topics()[topic]
        found = listed(reader.log.storage, reader.directory)
        behind = [*found.firsts[1:], reader.end]
        return [
            (first, until, f"{reader.directory}/{parquet_name(first)}")
            for first, until in zip(found.firsts, behind, strict=True)
            if first in found.converted
        ]

    def places(self, ranges: Sequence[Range]) -> Places:
        """Where the events of a task's ranges stand in files, in order."""
        return self.spots.of(self._topics(), ranges)

    def way(self) -> LocalWay:
        """What tasks carry."""
        return LocalWay(self.directory, self.environment, self.log_id)

    def close(self) -> None:
        """Closes its files."""
        if self.open is not None:
            self.open.log.close()
            self.open = None
        self.looks = Sizes(self._look)
        self.times = _Times()
        self.spots = _Spots()
        self.asked = None


class _Spots:
    """Finds where offsets stand. To look for one takes some 60 µs, and a stream may have a few events of each of ten
    thousand topics in every batch: where one stood a moment ago, those that follow are taken to stand behind it, and
    read from there at once. If they are not there, since a new segment was begun, they are looked for.
    """

    def __init__(self) -> None:
        self.known: dict[str, Spot] = {}
        self.files: Files | None = None
        self.looked_at = monotonic()

    def of(self, topics: _Topics, ranges: Sequence[Range]) -> Places:
        """Where the events of each range stand."""
        found, now = Places(), monotonic()
        if self.files is None:
            self.files = Files(allowed(MANY_HANDLES, 2))
        if now - self.looked_at > SPOT_S:
            self.looked_at = now
            self.files.close_idle(self.known)

        def look(number: int, one: Range) -> None:
            self._look(topics[one.topic], number, one, found)

        events = told(ranges, self.known, now, NEAR_EVENTS, found.pieces, look, self.files, CARRIED_BYTES, SPOT_S)
        found.known += events  # `look` adds to it too
        return found

    def _look(self, topic: TopicReader, number: int, wanted: Range, found: Places) -> None:
        at = wanted.start
        while at < wanted.until:
            place = topic.place_of(at, wanted.until)
            # They are not all looked for again in the same batch.
            spot = spot_of(topic.name, place, monotonic() + random.uniform(0.5, 1.5) * SPOT_S)
            found.add(number, at, place.until, spot, known=place.path is not None)
            at = place.until
            if at == wanted.until and place.path is not None:
                if len(self.known) > MANY_SPOTS:
                    self.known.clear()
                self.known[topic.name] = spot


class _Times:
    """Finds offsets by append time. A cut asks for the same topics again and again, at times close to each other, so
    the records around the last answer are kept.
    """

    def __init__(self) -> None:
        self.kept: dict[str, Records] = {}
        self.size = 0

    def offset_at(self, topic: TopicReader, time_ns: int) -> int:
        """The first offset that was appended at this time or later, or the end."""
        while True:
            try:
                known = self._known(topic, time_ns)
                return self._found(topic, time_ns) if known is None else known
            except OffsetGone:
                self.kept.pop(topic.name, None)  # retention was quicker, and the next look begins behind it

    def _known(self, topic: TopicReader, time_ns: int) -> int | None:
        records = self.kept.get(topic.name)
        if records is None or records.first < topic.earliest:
            return None
        if time_ns > records.time_ns(len(records) - 1):
            return topic.end if records.next_offset == topic.end else None
        if time_ns <= records.time_ns(0) and records.first > topic.earliest:
            return None
        return records.first + records.first_at(time_ns)

    def _found(self, topic: TopicReader, time_ns: int) -> int:
        at = topic.offset_at(time_ns)
        if topic.earliest < topic.end:
            try:
                records = topic.read(max(topic.earliest, min(at, topic.end - 1) - KEPT_BEFORE), max_bytes=KEPT_BYTES)
            except (HoleError, LogCorrupt):
                return at
            if self.size > ALL_KEPT_BYTES:
                self.kept.clear()
                self.size = 0
            self.size += len(records.raw())
            self.kept[topic.name] = records
        return at


def _id_of(directory: str) -> bytes:
    try:
        return Path(directory, "log-id").read_bytes()[:16]
    except FileNotFoundError:
        return b""


_opened: dict[tuple[str, str], _Topics] = {}  # in a worker process, which does one task after the other


@dataclass
class LocalWay:
    """The way of a task to a data directory."""

    directory: str
    environment: str
    log_id: str
    fresh: bool = field(default=False, repr=False, compare=False)

    def for_jvm(self) -> None:
        """Files are read."""

    def scan(self, topic: str, start: int, until: int, builder: arrow.Builder) -> Iterator[pa.RecordBatch]:
        """The events of these offsets as record batches; see `Way`."""
        reader = self._topics()[topic]
        if reader.end < until:
            reader.log.refresh()
        return arrow.fill(reader, start, until, builder)

    def _topics(self) -> _Topics:
        key = (self.directory, self.environment)
        found = _opened.get(key)
        if found is not None and self.fresh:
            return found
        if found is not None and _id_of(self.directory) != found.log.log_id:
            found.log.close()
            found = None
        if found is None:
            found = _opened[key] = _Topics(*key)
            # A worker reads its share of thousands of topics in each batch: opening a file takes longer than reading.
            # Spark ends a worker that has nothing to do, and so lets deleted segments go.
            found.log.max_handles = allowed(MANY_HANDLES, 2)
        if found.log.log_id.hex() != self.log_id:
            raise DataLoss("", 0, 0, f"{self.directory} has become another log")
        found.look()
        self.fresh = True
        return found
