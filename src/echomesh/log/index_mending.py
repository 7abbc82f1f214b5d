"""An index that is missing, damaged or too short is made again from its segment."""

from __future__ import annotations

from typing import Final

from echomesh.log.index import STEP_BYTES, Mark
from echomesh.log.layout import HEADER_BYTES
from echomesh.log.storage import Storage
from echomesh.native.log_record import SHORT, Records, scan

_LOOK_BYTES: Final = STEP_BYTES + 8192
_WIDE_BYTES: Final = 2 * STEP_BYTES  # a gap between two entries that only a large record makes


class Mending:
    """Looks at a segment up to the position `end`, from one entry of the index to the next."""

    def __init__(self, storage: Storage, handle: int, base: int, end: int) -> None:
        self.storage = storage
        self.handle = handle
        self.base = base
        self.end = end

    def missing(self, marks: list[Mark]) -> list[Mark] | None:
        """All entries that the index should have; None when these will do."""
        found = self._believed(marks)
        following = self._after(found[-1]) if found else self._record(HEADER_BYTES, self.base)
        if following is None and len(found) == len(marks):
            return None
        while following is not None:
            found.append(following)
            following = self._after(following)
        return found

    def _believed(self, marks: list[Mark]) -> list[Mark]:
        # The entries up to the first gap that should not be there.
        if not marks or (marks[0].offset, marks[0].position) != (self.base, HEADER_BYTES):
            return []
        for i in range(1, len(marks)):
            if marks[i].position >= self.end:
                return marks[:i]
            if marks[i].position - marks[i - 1].position > _WIDE_BYTES:
                following = self._after(marks[i - 1])
                if following is not None and following.position < marks[i].position:
                    return marks[:i]
        return marks

    def _after(self, mark: Mark) -> Mark | None:
        # The first record a step behind this one; None when there is none, or damage before it.
        records, more = self._scan(mark.position, mark.offset)
        size = _LOOK_BYTES
        while more and records.next_position < STEP_BYTES:
            size *= 2
            records, more = self._scan(mark.position, mark.offset, size)
        at = _first_from(records, STEP_BYTES)
        if at < len(records):
            return Mark(mark.offset + at, records.time_ns(at), mark.position + records.position(at))
        if records.next_position < STEP_BYTES:
            return None
        return self._record(mark.position + records.next_position, records.next_offset)

    def _record(self, position: int, offset: int) -> Mark | None:
        records, more = self._scan(position, offset, max_records=1)
        size = _LOOK_BYTES
        while more and not len(records):
            size *= 2
            records, more = self._scan(position, offset, size, 1)
        return Mark(offset, records.time_ns(0), position) if len(records) else None

    def _scan(
        self, position: int, offset: int, size: int = _LOOK_BYTES, max_records: int = 1 << 40
    ) -> tuple[Records, bool]:
        # Records from there on, and whether more bytes would give more of them.
        data = self.storage.pread(self.handle, max(0, min(size, self.end - position)), position)
        records = scan(data, 0, offset, max_records=max_records)
        cut_off = records.stopped == SHORT or records.next_position == len(data)
        return records, len(data) == size and cut_off


def _first_from(records: Records, position: int) -> int:
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        if records.position(middle) < position:
            low = middle + 1
        else:
            high = middle
    return low
