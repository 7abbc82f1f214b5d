"""One topic, read from any offset or time, in batches of checked records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from echomesh.errors import HoleError, LogBehind, LogCorrupt, LogDamaged, OffsetGone
from echomesh.log import adopted, index
from echomesh.log.adopted import Adopted
from echomesh.log.behind import next_chain
from echomesh.log.layout import (
    HEADER_BYTES,
    bases,
    check_segment_header,
    converted,
    parquet_name,
    segment_header,
    segment_name,
)
from echomesh.native.log_record import BAD, SHORT, Records, scan

if TYPE_CHECKING:
    from echomesh.log.parquet_file import ParquetSegment
    from echomesh.log.reader import LogReader
    from echomesh.log.view import TopicName
    from echomesh.native.log_topic import Topic

BATCH_BYTES: Final = 1 << 20
LEAST_BYTES: Final = 1 << 10
NEAR_BYTES: Final = 1 << 14
MANY_PLACES: Final = 8
HEAD_BYTES: Final = 8  # of a stage: length and sum of what says whose it is


class Place(NamedTuple):
    """Where offsets stand, for who reads files by other means; without a path where only a reader finds them."""

    start: int
    until: int
    path: str | None = None
    head: bytes = b""  # with which the file begins
    position: int = 0  # of a record, with the offset `first`, from which to go on to `start`
    first: int = 0
    shift: int = 0  # in a stage: what is added to its rows' numbers
    time_ns: int = -1  # in a stage: of all its rows


class TopicReader:
    """Reads one topic. It remembers where it was, so reading on costs no search."""

    def __init__(self, log: LogReader, name: TopicName) -> None:
        self.log = log
        self.name = name.name
        self.environment = name.environment
        self.number = name.number
        self.directory = log.paths.topic(name.number, name.level, log.log_id)
        self.level = name.level
        self.bases: list[int] = []
        self.converted: set[int] = set()  # those of them that are Parquet files
        self.parquet: ParquetSegment | None = None  # the one that was read last
        self.adopted: dict[int, Adopted] = {}  # those of them that are stages
        self.starts: dict[int, int] = {}  # of segments whose headers were checked, where their first record stands
        self.place = (-1, -1, -1)  # segment, offset and position behind the last read
        self.others: dict[
            int, tuple[int, int, int]
        ] = {}  # those behind reads before it, by offset: there may be several
        self.typical = 1 << 16  # bytes that a record may take, by those that were read last
        self.writer: Topic | None = None  # where the writer is in this process, and knows how far it has come

    @property
    def earliest(self) -> int:
        """The first offset that is still kept."""
        return self.log.current().earliest(self.number)

    @property
    def end(self) -> int:
        """The offset that the next event to become readable will have."""
        return self.log.current().high(self.number)

    def read(self, offset: int, *, max_bytes: int = BATCH_BYTES, max_records: int = 1 << 40) -> Records:
        """The records from `offset` on, about `max_bytes` of them and at least one; none at the end of the
        topic.

        `OffsetGone`, `HoleError` and `LogCorrupt` name the offsets that can't be had; to go on, read behind
        them.
        """
        end = self._check(offset)
        if offset >= end:
            return scan(b"", 0, offset)
        try:
            return self._read(offset, end, max_bytes, max_records)
        except (FileNotFoundError, HoleError):
            # Retention was quicker, or the list had a segment that a killed writer had begun and not committed. What
            # is known of the log may be older than the files that are seen.
            self.bases = []
            self.log.refresh()
            end = self._check(offset)
        try:
            return self._read(offset, end, max_bytes, max_records)
        except FileNotFoundError:
            raise LogCorrupt(self.name, offset, end - 1, self.directory) from None
        except HoleError as hole:
            if self.level != "disk":
                raise
            raise LogCorrupt(self.name, hole.first, hole.last, self.directory) from None

    def _check(self, offset: int) -> int:
        view = self.log.current()
        earliest, end = view.earliest(self.number), view.high(self.number)
        if offset < earliest:
            raise OffsetGone(self.name, offset, earliest - 1)
        if offset > end:
            raise LogBehind(self.name, offset, end)
        return end

    def _read(self, offset: int, end: int, max_bytes: int, max_records: int) -> Records:
        base, until = self._segment(offset, end)
        if base < 0:
            raise HoleError(self.name, offset, until - 1)
        if base in self.converted:
            try:
                return self._parquet(base).read(offset, max_bytes, min(max_records, until - offset))
            except LogDamaged as error:
                raise self._damage(error, base, offset, until) from None
        start = self._start(base, offset, until)
        position, first = self._find(base, offset, start)
        hinted = position != start
        size = max_bytes
        if first == offset or self.place == (base, first, position):
            passed = (offset - first) * self.typical
            size = min(
                max_bytes + passed, self._left(base, position, until - first), self._few(offset - first, max_records)
            )
            max_bytes = min(max_bytes, size)
        while True:
            data, summed = self._bytes(base, position, size)
            records = scan(data, 0, first, until, max_records, offset, summed)
            position, first = position + records.next_position, records.next_offset
            if len(records):
                self._stopped(base, first, position)
                self.typical = max(records.next_position // len(records), self.typical // 2)
                return records
            more = len(data) == size
            if more and records.stopped == SHORT and records.next_position == 0:
                size = max(size * 2, int.from_bytes(data[:4], "little") + 8)
            elif more and (records.stopped == SHORT or records.next_position == len(data)):
                size = max_bytes  # a large record that was passed over is no reason to give more than was asked for
            elif hinted:
                # The index, or what was remembered, may lie: the segment itself decides.
                position, first, hinted = start, base, False
            elif records.stopped != BAD and self._listed() and self._segment(offset, end) != (base, until):
                return self._read(offset, end, max_bytes, max_records)
            else:
                position, first = self._behind(base, position, first, offset, until, records.stopped), offset

    def _left(self, base: int, position: int, records: int) -> int:
        # The bytes of so many records: near the end less than what may be read. To read behind the end costs more than
        # the rest, since the kernel makes pages for what is not written yet.
        if self.writer is not None:
            written, end, *_ = self.writer.done
            if written == base and end > position:
                return end - position
        return records * self.typical + LEAST_BYTES

    def _few(self, passed: int, wanted: int) -> int:
        # The bytes of so many records, with some to spare: who says how many they want is to get all of them.
        return passed * self.typical + wanted * (self.typical + self.typical // 8) + LEAST_BYTES

    def _behind(self, base: int, position: int, first: int, offset: int, until: int, stopped: int) -> int:
        # Something is wrong at `position`. Where the wanted record stands behind it; else the error that says
        # what is not to be had.
        if stopped not in (BAD, SHORT) and self.level != "disk":
            raise HoleError(self.name, max(first, offset), until - 1)
        found, number = next_chain(self._bytes(base, position, 1 << 40)[0], max(first, offset - 1), until)
        if found >= 0 and number == offset:
            return position + found
        last = number - 1 if found >= 0 else until - 1
        raise LogCorrupt(self.name, max(first, offset), last, self.path_of(base))

    def place_of(self, offset: int, until: int) -> Place:
        """Where the records from `offset` on stand, as far as one file has them."""
        self._listed()  # who only asks this never finds out by reading that a new segment was begun
        try:
            base, behind = self._segment(offset, self._check(offset))
            stop = min(behind, until)
            if base < 0 or base in self.converted or self.log.current().patches(self.number, base):
                return Place(offset, stop)
            found = self._find(base, offset, self._start(base, offset, stop))
            path = self.path_of(base)
            if (stage := self.adopted.get(base)) is not None:
                head = self.log.storage.pread(self.log.handle(path), HEAD_BYTES, 0)
                return Place(offset, stop, path, head, *found, base - 1, stage.time_ns)
            return Place(offset, stop, path, segment_header(self.log.log_id, self.number, base), *found)
        except (OffsetGone, LogBehind, LogCorrupt, FileNotFoundError):
            return Place(offset, until)

    def parquet_at(self, offset: int) -> tuple[ParquetSegment, int] | None:
        """The Parquet file that has this offset, and where its offsets end; None when it is in a segment."""
        if self.converted or not self.bases:
            base, until = self._segment(offset, self._check(offset))
            if base in self.converted:
                try:
                    return self._parquet(base), until
                except LogDamaged as error:
                    raise self._damage(error, base, offset, until) from None
                except FileNotFoundError:
                    self.bases = []  # retention was quicker, as `read` will find
        return None

    def _parquet(self, base: int) -> ParquetSegment:
        path = f"{self.directory}/{parquet_name(base)}"
        if self.parquet is None or self.parquet.path != path:
            from echomesh.log.parquet_file import open_segment  # only who has Parquet files needs PyArrow

            self.parquet = open_segment(self.log, path, self.number, base)
        return self.parquet

    def _damage(self, error: LogDamaged, base: int, offset: int, until: int) -> LogCorrupt:
        # A row group is lost, or with its footer the whole file.
        opened = self.parquet is not None and self.parquet.path == error.path
        last = self.parquet.last_of(offset) if self.parquet is not None and opened else until - 1
        return LogCorrupt(self.name, offset, last, f"{self.directory}/{parquet_name(base)}: {error.reason}")

    def _listed(self) -> bool:
        names = self.log.storage.names(self.directory)
        self.converted = set(converted(names))
        self.adopted = self.log.current().staged(self.number) | adopted.adopted(self.directory, names)
        before, self.bases = self.bases, sorted({*bases(names), *self.converted, *self.adopted})
        for number, base in self.log.current().segments(self.number):
            if number == self.number and base not in self.bases:
                self.bases = sorted([*self.bases, base])
        return before != self.bases

    def _segment(self, offset: int, end: int) -> tuple[int, int]:
        # (first offset of the segment that has `offset`, where its offsets end at the latest)
        if not self.bases or offset < self.bases[0]:
            self._listed()
        at = bisect_right(self.bases, offset)
        if at and self._ends_before(self.bases[at - 1], offset):
            self._listed()
            at = bisect_right(self.bases, offset)
        until = min(end, self.bases[at]) if at < len(self.bases) else end
        missing = not at or self._ends_before(self.bases[at - 1], offset)
        return (-1 if missing else self.bases[at - 1]), until

    def _ends_before(self, base: int, offset: int) -> bool:
        # A stage says itself where it ends: what follows is in a segment that is not known here yet.
        return base in self.adopted and offset >= self.adopted[base].end

    def _stopped(self, base: int, first: int, position: int) -> None:
        if self.place[1] >= 0:
            self.others[self.place[1]] = self.place
            if len(self.others) > MANY_PLACES:
                del self.others[next(iter(self.others))]
        self.others.pop(first, None)
        self.place = (base, first, position)

    def _find(self, base: int, offset: int, start: int) -> tuple[int, int]:
        # Another reader may have had the few records since the last read: to pass over them costs less than a search.
        known, first, position = self.others.get(offset, self.place)
        if known == base and first <= offset and (offset - first) * self.typical <= NEAR_BYTES:
            return position, first
        position, first = self.index_of(base).by_offset(offset)
        return (start if first == base else position), first

    def index_of(self, base: int) -> index.Index:
        """The index of the segment that begins with this offset."""
        return index.Index(self.log.storage, self.directory, self.log.log_id, self.number, base)

    def path_of(self, base: int) -> str:
        """The file of the segment that begins with this offset, before it was converted."""
        if base not in self.bases:
            self._listed()
        return self.adopted[base].path if base in self.adopted else f"{self.directory}/{segment_name(base)}"

    def _start(self, base: int, offset: int, until: int) -> int:
        # Where the segment's first record stands; its header is looked at once.
        if base not in self.starts:
            path, storage = self.path_of(base), self.log.storage
            found = HEADER_BYTES
            try:
                if base in self.adopted:
                    found = adopted.start_of(storage, self.log.handle(path), self.adopted[base])
                elif not self.log.current().patches(self.number, base):
                    head = storage.pread(self.log.handle(path), HEADER_BYTES, 0)
                    check_segment_header(head, path, self.log.log_id, self.number, base)
            except LogDamaged:
                raise LogCorrupt(self.name, offset, until - 1, path) from None
            self.starts[base] = found
        return self.starts[base]

    def _bytes(self, base: int, position: int, size: int) -> tuple[bytes, int]:
        # And how far the sums of records were made just now.
        path = self.path_of(base)
        if base in self.adopted:
            return adopted.read(self.log.storage, self.log.handle(path), self.adopted[base], size, position)
        patches = self.log.current().patches(self.number, base)
        try:
            handle = self.log.handle(path)
            there = min(size, max(0, self.log.storage.size(handle) - position)) if size > 1 << 30 else size
            data = self.log.storage.pread(handle, there, position)
        except FileNotFoundError:
            if not patches:
                raise
            data = b""
        if not patches:
            return data, 0
        # What the journal has and the segment may not have yet.
        limit = min(size, max(at + len(patch) for at, patch in patches) - position)
        patched = bytearray(data.ljust(max(limit, 0), b"\0"))
        for at, patch in patches:
            start, stop = max(at, position), min(at + len(patch), position + len(patched))
            if start < stop:
                patched[start - position : stop - position] = patch[start - at : stop - at]
        return bytes(patched), 0

    def offset_at(self, time_ns: int) -> int:
        """The offset of the first event that was appended at this time or later; the end when there is
        none.
        """
        earliest, end = self.earliest, self.end
        self._listed()
        low = earliest
        for base in self.bases:
            if base > earliest and base < end and self._time(base) < time_ns:
                low = base
        if low < end and (found := self.parquet_at(low)) is not None:
            offset = found[0].first_at(time_ns)
        else:
            _, offset = self.index_of(low).by_time(time_ns)
        offset = min(max(offset, earliest), end)
        while offset < end:
            try:
                records = self.read(offset)
            except (HoleError, LogCorrupt) as gap:
                offset = gap.last + 1
                continue
            older = records.first_at(time_ns)
            if older < len(records) or not len(records):
                return offset + older
            offset = records.next_offset
        return end

    def _time(self, offset: int) -> int:
        try:
            return self.read(offset, max_bytes=4096).time_ns(0)
        except (HoleError, LogCorrupt):
            return -1

    def follow(self, offset: int, *, timeout: float | None = None) -> Iterator[Records]:
        """Batches from `offset` on, and what comes later, until nothing came for `timeout` seconds."""
        while True:
            records = self.read(offset)
            if len(records):
                offset = records.next_offset
                yield records
            elif not self.wait(offset, timeout):
                return

    async def tail(self, offset: int, *, timeout: float | None = None) -> AsyncIterator[Records]:
        """`follow` for an event loop, which goes on while there is nothing to read."""
        while True:
            records = self.read(offset)
            if len(records):
                offset = records.next_offset
                yield records
            elif not await self.wait_async(offset, timeout):
                return

    async def wait_async(self, offset: int, timeout: float | None = None) -> bool:
        """Waits until there is an event at `offset`; False when the time is over."""
        return await self.log.wait_async([(self.number, offset)], timeout)

    def wait(self, offset: int, timeout: float | None = None) -> bool:
        """Sleeps until there is an event at `offset`; False when the time is over."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = 1.0 if deadline is None else deadline - monotonic()
            if self.log.wait(self.number, offset, max(left, 0.0)):
                return True
            if left <= 0:
                return False
