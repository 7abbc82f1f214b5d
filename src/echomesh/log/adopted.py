"""Stages that became segments as they are: a large commit gives its files to the topics instead of copying them.

Such a file has the stage's own numbers in its rows. What the records of the segment would be follows from its name: the
offset of the first row, the time of the commit, and how many rows there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from echomesh.errors import LogDamaged
from echomesh.log.index import STEP_BYTES, Mark
from echomesh.log.storage import Storage
from echomesh.native.log_record import SHORT, Records, scan
from echomesh.native.log_stage import as_records, mark_rows

_NAME: Final = re.compile(r"(\d{20})-(\d+)-(\d+)\.rows")
_FIRST_BYTES: Final = 4096
_CHUNK_BYTES: Final = 1 << 20
_ALL_BYTES: Final = 1 << 30  # who asks for more looks for something behind damage


@dataclass(frozen=True)
class Adopted:
    """A segment that is a stage."""

    base: int
    time_ns: int
    count: int
    path: str

    @property
    def end(self) -> int:
        """The offset behind its last row."""
        return self.base + self.count


def adopted(directory: str, names: list[str]) -> dict[int, Adopted]:
    """Those among the file names of a topic's directory, by their first offsets."""
    found = (_NAME.fullmatch(name) for name in names if name.endswith(".rows"))
    made = (Adopted(int(m[1]), int(m[2]), int(m[3]), f"{directory}/{m[0]}") for m in found if m)
    return {segment.base: segment for segment in made}


def start_of(storage: Storage, handle: int, segment: Adopted) -> int:
    """Where the first row stands, behind the record that says what the stage was for."""
    records = scan(storage.pread(handle, _FIRST_BYTES, 0), 0, 0, max_records=1)
    if records.stopped == SHORT and not len(records):
        records = scan(storage.pread(handle, storage.size(handle), 0), 0, 0, max_records=1)
    if not len(records):
        raise LogDamaged(segment.path, "what the stage was for is damaged")
    return records.next_position


def read(storage: Storage, handle: int, segment: Adopted, size: int, position: int) -> tuple[bytes, int]:
    """The bytes from this position on, where a row begins, as those of a segment; and how far their sums are new."""
    search = size > _ALL_BYTES
    data = storage.pread(handle, storage.size(handle) if search else size, position)
    return as_records(data, segment.base - 1, segment.time_ns, search)


def records_of(storage: Storage, segment: Adopted) -> Iterator[Records]:
    """All records, some at a time, up to what is damaged."""
    handle = storage.open(segment.path)
    try:
        position, offset, size = start_of(storage, handle, segment), segment.base, _CHUNK_BYTES
        while offset < segment.end:
            data, summed = read(storage, handle, segment, size, position)
            records = scan(data, 0, offset, segment.end, summed=summed)
            if len(records):
                yield records
                position, offset, size = position + records.next_position, records.next_offset, _CHUNK_BYTES
            elif records.stopped == SHORT and len(data) == size:
                size *= 2
            else:
                return
    finally:
        storage.close(handle)


def marks_of(storage: Storage, segment: Adopted) -> list[Mark]:
    """Entries for its index, up to what is damaged."""
    handle = storage.open(segment.path)
    try:
        position = mark = start_of(storage, handle, segment)
    except LogDamaged:
        return []
    finally:
        storage.close(handle)
    found: list[tuple[int, int]] = []
    for records in records_of(storage, segment):
        mark = mark_rows(records, position, mark, STEP_BYTES, found)
        position += records.next_position
    return [Mark(offset, segment.time_ns, at) for offset, at in found]
