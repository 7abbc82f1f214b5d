"""One topic, read from any offset or time, in batches of checked records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final

from echomesh.errors import HoleError, LogCorrupt, LogDamaged
from echomesh.log.behind import next_chain
from echomesh.log.layout import (
    parquet_name,
)
from echomesh.log.topic_files import TopicFiles
from echomesh.native.log_record import BAD, SHORT, Records, scan

if TYPE_CHECKING:
    from echomesh.log.parquet_file import ParquetSegment
    from echomesh.log.reader import LogReader
    from echomesh.log.view import TopicName

BATCH_BYTES: Final = 1 << 20
LEAST_BYTES: Final = 1 << 10


class TopicReader(TopicFiles):
    """Reads one topic. It remembers where it was, so reading on costs no search."""

    def __init__(self, log: LogReader, name: TopicName) -> None:
        super().__init__(log, name)
        self.parquet: ParquetSegment | None = None  # the one that was read last

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
