"""The sparse index beside a segment: where records stand by offset and time. A hint: records are checked
when read, and the index is made again from them when it is gone (`index_mending`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from echomesh.log.layout import HEADER_BYTES, header_sum, index_name
from echomesh.log.storage import Storage
from echomesh.native.log_sums import crc32c

_FIELDS: Final = struct.Struct("<QqI")
ENTRY_BYTES: Final = _FIELDS.size + 4
STEP_BYTES: Final = 32768
# No record stands before this: a segment has a header of 64 bytes, and in a stage a record, which says whose it is and
# has 28 bytes at least, stands before the first row.
FIRST_POSITION: Final = 32


class Mark(NamedTuple):
    """A record's offset, when it was appended, and where it stands."""

    offset: int
    time_ns: int
    position: int


def pack(marks: Iterable[Mark], seed: int) -> bytes:
    """The bytes of these entries; `seed` is the segment header's sum, so that they fit no other segment."""
    packed = [_FIELDS.pack(*mark) for mark in marks]
    return b"".join(entry + crc32c(entry, seed).to_bytes(4, "little") for entry in packed)


def unpack(data: bytes, base: int, seed: int) -> list[Mark]:
    """The entries up to the first that can't be true."""
    marks: list[Mark] = []
    before = Mark(base - 1, -1 << 63, FIRST_POSITION - 1)
    for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        entry = data[at : at + _FIELDS.size]
        if crc32c(entry, seed) != int.from_bytes(data[at + _FIELDS.size : at + ENTRY_BYTES], "little"):
            break
        mark = Mark(*_FIELDS.unpack(entry))
        if mark.position % 8 or not follows(mark, before):
            break
        marks.append(mark)
        before = mark
    return marks


def follows(mark: Mark, before: Mark) -> bool:
    """Whether a record may stand there when the other one stands before it."""
    return mark.offset > before.offset and mark.position > before.position and mark.time_ns >= before.time_ns


class Index:
    """The index file of one segment."""

    def __init__(self, storage: Storage, directory: str, log_id: bytes, topic: int, base: int) -> None:
        self.storage = storage
        self.path = f"{directory}/{index_name(base)}"
        self.base = base
        self.seed = header_sum(log_id, topic, base)

    def load(self) -> list[Mark]:
        """The entries; none when there is no file."""
        return self.read()[0]

    def read(self) -> tuple[list[Mark], bool]:
        """The entries, and whether there is a file and nothing else is in it."""
        try:
            handle = self.storage.open(self.path)
        except FileNotFoundError:
            return [], False
        try:
            data = self.storage.pread(handle, self.storage.size(handle), 0)
        finally:
            self.storage.close(handle)
        marks = unpack(data, self.base, self.seed)
        return marks, len(marks) * ENTRY_BYTES == len(data)

    def by_offset(self, offset: int) -> tuple[int, int]:
        """(position, offset) of a record at or before this offset."""
        return self._last(lambda mark: mark.offset <= offset)

    def by_time(self, time_ns: int) -> tuple[int, int]:
        """(position, offset) of a record before the first that is not older than this."""
        return self._last(lambda mark: mark.time_ns < time_ns)

    def _last(self, early: Callable[[Mark], bool]) -> tuple[int, int]:
        # A few looks into the file: a large segment has tens of thousands of entries.
        found = HEADER_BYTES, self.base
        try:
            handle = self.storage.open(self.path)
        except FileNotFoundError:
            return found
        try:
            low, high = 0, self.storage.size(handle) // ENTRY_BYTES
            while low < high:
                middle = (low + high) // 2
                marks = unpack(self.storage.pread(handle, ENTRY_BYTES, middle * ENTRY_BYTES), self.base, self.seed)
                if marks and early(marks[0]):
                    low = middle + 1
                    found = marks[0].position, marks[0].offset
                else:
                    high = middle
        finally:
            self.storage.close(handle)
        return found

    def extend(self, marks: list[Mark]) -> None:
        """Adds entries, which most often stand behind those in the file."""
        handle = self.storage.open(self.path, create=True)
        try:
            marks = _ordered(marks)
            position = self.storage.size(handle)
            last = self.storage.pread(handle, ENTRY_BYTES, max(0, position - ENTRY_BYTES))
            if not self._fits(last, position, marks[0]):
                # Rows of a staged commit are copied late, and the file may be damaged.
                marks = _ordered([*unpack(self.storage.pread(handle, position, 0), self.base, self.seed), *marks])
                position = 0
            self._put(handle, marks, position)
        finally:
            self.storage.close(handle)

    def _fits(self, last: bytes, size: int, mark: Mark) -> bool:
        if size == 0:
            return True
        before = unpack(last, self.base, self.seed)
        return size % ENTRY_BYTES == 0 and bool(before) and follows(mark, before[0])

    def replace(self, marks: list[Mark]) -> None:
        """Has these entries and no others."""
        handle = self.storage.open(self.path, create=True)
        try:
            self._put(handle, marks, 0)
        finally:
            self.storage.close(handle)

    def _put(self, handle: int, marks: list[Mark], position: int) -> None:
        self.storage.truncate(handle, position)
        self.storage.pwrite(handle, pack(marks, self.seed), position)

    def cut(self, position: int) -> None:
        """Drops the entries of records that stand there or behind."""
        marks = self.load()
        if marks and marks[-1].position >= position:
            self.replace([mark for mark in marks if mark.position < position])


def _ordered(marks: list[Mark]) -> list[Mark]:
    found: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: mark.position):
        if not found or follows(mark, found[-1]):
            found.append(mark)
    return found
