"""The sparse index beside a segment: where records stand by offset and time. A hint: records are checked
when read.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from echomesh.log.layout import HEADER_BYTES
from echomesh.log.storage import Storage
from echomesh.native.log_sums import crc32c

_FIELDS: Final = struct.Struct("<QqI")
ENTRY_BYTES: Final = _FIELDS.size + 4
STEP_BYTES: Final = 32768


class Mark(NamedTuple):
    """A record's offset, when it was appended, and where it stands."""

    offset: int
    time_ns: int
    position: int


def pack(marks: Iterable[Mark]) -> bytes:
    """The bytes of these entries."""
    packed = [_FIELDS.pack(*mark) for mark in marks]
    return b"".join(entry + crc32c(entry).to_bytes(4, "little") for entry in packed)


def unpack(data: bytes, base: int) -> list[Mark]:
    """The entries up to the first that can't be true."""
    marks: list[Mark] = []
    for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        entry = data[at : at + _FIELDS.size]
        if crc32c(entry) != int.from_bytes(data[at + _FIELDS.size : at + ENTRY_BYTES], "little"):
            break
        mark = Mark(*_FIELDS.unpack(entry))
        before = marks[-1] if marks else Mark(base - 1, -1 << 63, HEADER_BYTES - 8)
        if mark.offset <= before.offset or mark.position <= before.position or mark.time_ns < before.time_ns:
            break
        marks.append(mark)
    return marks


def load(storage: Storage, path: str, base: int) -> list[Mark]:
    """The index in this file; empty when there is none."""
    if not storage.exists(path):
        return []
    handle = storage.open(path)
    try:
        return unpack(storage.pread(handle, storage.size(handle), 0), base)
    finally:
        storage.close(handle)


def extend(storage: Storage, path: str, base: int, marks: list[Mark]) -> None:
    """Puts entries behind those in the file that are before them."""
    kept = [mark for mark in load(storage, path, base) if mark.position < marks[0].position]
    handle = storage.open(path, create=True)
    try:
        position = len(kept) * ENTRY_BYTES
        storage.truncate(handle, position)
        storage.pwrite(handle, pack(marks), position)
    finally:
        storage.close(handle)


def by_offset(marks: list[Mark], offset: int, base: int) -> tuple[int, int]:
    """(position, offset) of a record at or before this offset."""
    at = bisect_right(marks, offset, key=lambda mark: mark.offset)
    return (marks[at - 1].position, marks[at - 1].offset) if at else (HEADER_BYTES, base)


def by_time(marks: list[Mark], time_ns: int, base: int) -> tuple[int, int]:
    """(position, offset) of a record before the first that is not older than this."""
    at = bisect_left(marks, time_ns, key=lambda mark: mark.time_ns)
    return (marks[at - 1].position, marks[at - 1].offset) if at else (HEADER_BYTES, base)
