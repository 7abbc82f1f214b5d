"""The files of one topic: which of them has an offset, and where."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from echomesh.errors import LogBehind, LogCorrupt, LogDamaged, OffsetGone
from echomesh.log import adopted, index
from echomesh.log.adopted import Adopted
from echomesh.log.layout import (
    HEADER_BYTES,
    bases,
    check_segment_header,
    converted,
    segment_header,
    segment_name,
)
from echomesh.log.place import Place
from echomesh.log.stretch import Stretch
from echomesh.native.log_record import scan

if TYPE_CHECKING:
    from echomesh.log.reader import LogReader
    from echomesh.log.view import TopicName
    from echomesh.native.log_topic import Topic

NEAR_BYTES: Final = 1 << 14
LOOK_BYTES: Final = 3 * index.STEP_BYTES
MANY_PLACES: Final = 8
HEAD_BYTES: Final = 8  # of a stage: length and sum of what says whose it is


class TopicFiles:
    """Knows which files have which offsets of a topic, and remembers where reads ended."""

    def __init__(self, log: LogReader, name: TopicName) -> None:
        self.log = log
        self.name = name.name
        self.environment = name.environment
        self.number = name.number
        self.directory = log.paths.topic(name.number, name.level, log.log_id)
        self.level = name.level
        self.bases: list[int] = []
        self.converted: set[int] = set()  # those of them that are Parquet files
        self.adopted: dict[int, Adopted] = {}  # those of them that are stages
        self.starts: dict[int, int] = {}  # of segments whose headers were checked, where their first record stands
        self.place = (-1, -1, -1)  # segment, offset and position behind the last read
        self.others: dict[
            int, tuple[int, int, int]
        ] = {}  # those behind reads before it, by offset: there may be several
        self.marks: dict[int, list[index.Mark]] = {}  # of segments that get no more
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

    def _check(self, offset: int) -> int:
        view = self.log.current()
        earliest, end = view.earliest(self.number), view.high(self.number)
        if offset < earliest:
            raise OffsetGone(self.name, offset, earliest - 1)
        if offset > end:
            raise LogBehind(self.name, offset, end)
        return end

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

    def stretch(self, offset: int, until: int, most: int) -> Stretch | None:
        """The bytes of these records, as far as one file has them, for who checks their sums.

        None where they are not to be had without a look at each, or where they would be more than so many.
        """
        try:
            base, behind = self._segment(offset, self._check(offset))
            if base < 0 or base in self.converted or not self.log.storage.direct:
                return None
            if self.log.current().patches(self.number, base):
                return None
            start, stop = self._start(base, offset, behind), min(behind, until)
            begin, end = self._exact(base, offset, start), self._exact(base, stop, start)
            if begin < 0 or not begin < end <= begin + most:
                return None
            stage = self.adopted.get(base)
            told = (base - 1, stage.time_ns) if stage is not None else ()
            made = Stretch(self.log.handle(self.path_of(base)), begin, end - begin, stop, *told)
        except (OffsetGone, LogBehind, LogCorrupt, FileNotFoundError):
            return None
        self._stopped(base, stop, end)
        return made

    def _exact(self, base: int, offset: int, start: int) -> int:
        # Where this record stands, or the one before it ends; -1 if that is not to be seen by a short look.
        known, first, position = self.others.get(offset, self.place)
        if (known, first) == (base, offset):
            return position
        position, first = self._marked(base, offset)
        position = start if first == base else position
        data, summed = self._bytes(base, position, LOOK_BYTES)
        passed = scan(data, 0, first, offset, summed=summed)
        if passed.next_offset == offset:
            return position + passed.next_position
        self.marks.pop(base, None)  # the index was not whole, and may be by now
        return -1

    def _marked(self, base: int, offset: int) -> tuple[int, int]:
        # What the index knows. That of a segment which gets no more is kept: who fetches asks for all of it.
        if base == self.bases[-1] and base not in self.adopted:
            return self.index_of(base).by_offset(offset)
        marks = self.marks.get(base)
        if marks is None:
            if len(self.marks) >= MANY_PLACES:
                del self.marks[next(iter(self.marks))]
            marks = self.marks[base] = self.index_of(base).load()
        at = bisect_right(marks, offset, key=lambda mark: mark.offset)
        return (marks[at - 1].position, marks[at - 1].offset) if at else (HEADER_BYTES, base)

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
