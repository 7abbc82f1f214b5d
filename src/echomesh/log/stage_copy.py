"""The file of a stage, and how its rows become records. A stage is made of records itself, so that its bytes
are checked.

Record 0 holds what the stage is for, 1 to n the rows (in `time_ns` the number of the row's topic), n + 1 the
end: the names of the topics and the sum of all that is before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import sleep
from typing import Final, NamedTuple

import msgspec

from echomesh.errors import StageMissing
from echomesh.log.layout import HEADER_BYTES, Paths
from echomesh.log.state import CommitNote, Share, TopicEnd
from echomesh.log.storage import Storage
from echomesh.native.log_record import HEADER_BYTES as RECORD_HEADER
from echomesh.native.log_record import SHORT, Records, encode, scan
from echomesh.native.log_sums import crc32c


class Purpose(msgspec.Struct, array_like=True):
    """What a stage is for."""

    writer: str
    epoch: int
    run: str
    part: int
    made_ns: int


class Ending(msgspec.Struct, array_like=True):
    """What closes a stage."""

    topics: list[tuple[str, str]]  # environment, name
    rows: int
    checksum: int


class Stage(NamedTuple):
    """A whole stage, without its rows: there may be more of them than memory."""

    purpose: Purpose
    ending: Ending


@dataclass
class Layout:
    """The rows that a commit has for one topic: how many, and how they fill segments of their own."""

    count: int = 0
    bytes: int = 0
    pieces: list[tuple[int, int]] = field(default_factory=list)  # rows and bytes of each segment

    def add(self, size: int, limit: int) -> None:
        """One more row; `limit` is what a segment takes."""
        self.count += 1
        self.bytes += size
        if self.pieces and self.pieces[-1][1] + size <= limit - HEADER_BYTES:
            rows, used = self.pieces[-1]
            self.pieces[-1] = (rows + 1, used + size)
        else:
            self.pieces.append((1, size))


Key = tuple[str, str]  # environment, name
Write = Callable[[int, int, int, bytes], None]  # topic, segment, position, bytes
Row = Callable[[int, int, int, int, bytes], None]  # topic, segment, offset, position, event

_CHUNK_BYTES: Final = 1 << 20
_TURN_ROWS: Final = 64
_COPY_BYTES: Final = 1 << 18  # of one topic, written at once
_BUFFERED_BYTES: Final = 8 << 20  # of all topics
_purpose = msgspec.msgpack.Decoder(Purpose).decode
_ending = msgspec.msgpack.Decoder(Ending).decode
pack = msgspec.msgpack.Encoder().encode


def path_of(paths: Paths, stage: str) -> str:
    """The stage's file."""
    if not stage or not all(c in "0123456789abcdef" for c in stage):
        raise StageMissing(stage, "not the name of a stage")
    return f"{paths.staging}/{stage}.stage"


def _batches(storage: Storage, paths: Paths, stage: str) -> Iterator[Records]:
    # All records of the file, about a MiB of them at a time; whatever is not a record is an error.
    path = path_of(paths, stage)
    if not storage.exists(path):
        raise StageMissing(stage, "it is not there: never closed, aborted, or expired")
    handle = storage.open(path)
    try:
        position, expected, size = 0, 0, _CHUNK_BYTES
        while data := storage.pread(handle, size, position):
            records = scan(data, 0, expected)
            if len(records):
                yield records
                position, expected, size = position + records.next_position, records.next_offset, _CHUNK_BYTES
            elif len(data) == size and records.stopped == SHORT:
                size = max(size * 2, int.from_bytes(data[:4], "little") + 8)
            else:
                raise StageMissing(stage, f"it is not whole: row {expected} is damaged")
    finally:
        storage.close(handle)


def check(storage: Storage, paths: Paths, stage: str) -> Stage:
    """The stage, every byte of it checked, or `StageMissing`."""
    purpose, last, summed, pending = b"", b"", 0, b""
    count = 0
    for records in _batches(storage, paths, stage):
        purpose = purpose or records[0][3]
        raw = records.raw()
        start = records.position(len(records) - 1)
        summed = crc32c(raw[:start], crc32c(pending, summed))
        pending, last = bytes(raw[start:]), records[len(records) - 1][3]
        count += len(records)
    try:
        if count < 2:
            raise ValueError("there is no end")
        found = Stage(_purpose(purpose), _ending(last))
        if found.ending.rows != count - 2 or found.ending.checksum != summed:
            raise ValueError("rows are missing")
    except (msgspec.MsgspecError, ValueError) as error:
        raise StageMissing(stage, f"it is not whole: {error}") from None
    return found


def _rows(storage: Storage, paths: Paths, stage: str, ending: Ending) -> Iterator[tuple[Key, bytes]]:
    # The rows of a stage that was checked.
    for records in _batches(storage, paths, stage):
        for row, topic, _, event in records.tuples():
            if row % _TURN_ROWS == 0:
                sleep(0)  # others who append want the interpreter too, and not only every 5 ms
            if 1 <= row <= ending.rows:
                if not 0 <= topic < len(ending.topics):
                    raise StageMissing(stage, f"it is not whole: row {row} has no topic")
                yield ending.topics[topic], event


def lay_out(
    storage: Storage,
    paths: Paths,
    stages: list[tuple[str, Ending]],
    segment_bytes: int,
    seen: Callable[[Key, int, bytes], None] = lambda key, number, event: None,
) -> dict[Key, Layout]:
    """What each topic gets, in the order of the stages and of their rows.

    `seen` is called with the topic of each row, its number among the topic's rows, and the row.
    """
    found: dict[Key, Layout] = {}
    for stage, ending in stages:
        for key, event in _rows(storage, paths, stage, ending):
            layout = found.get(key)
            if layout is None:
                layout = found[key] = Layout()
            seen(key, layout.count, event)
            layout.add(record_bytes(event), segment_bytes)
    return found


def record_bytes(event: bytes) -> int:
    """What a row's record takes in a segment."""
    return (RECORD_HEADER + len(event) + 7) & ~7


def read_purpose(storage: Storage, path: str) -> Purpose | None:
    """What the stage in this file is for; None when not even that is there."""
    try:
        handle = storage.open(path)
    except FileNotFoundError:
        return None
    try:
        data = storage.pread(handle, _CHUNK_BYTES >> 4, 0)
    finally:
        storage.close(handle)
    records = scan(data, 0, 0, max_records=1)
    try:
        return _purpose(records[0][3]) if len(records) else None
    except msgspec.MsgspecError:
        return None


class _Cursor:
    """Where the next row of a topic goes, and the rows that are not written yet."""

    def __init__(self, share: Share) -> None:
        self.number = share.number
        self.runs = iter(share.runs)
        self.left = 0
        self.base = self.position = self.offset = 0
        self.buffer = bytearray()

    def put(self, event: bytes, time_ns: int) -> None:
        if not self.left:
            run = next(self.runs)
            self.left, self.base, self.position, self.offset = run.count, run.base, run.position, run.first
        self.buffer += encode(self.offset, time_ns, None, event)
        self.left -= 1
        self.offset += 1

    def take(self) -> tuple[int, int, int, bytes]:
        data, position = bytes(self.buffer), self.position
        self.position += len(data)
        self.buffer.clear()
        return self.number, self.base, position, data


def copies(
    storage: Storage,
    paths: Paths,
    note: CommitNote,
    topics: dict[int, Key],
    row: Row | None = None,
    checked: dict[str, Ending] | None = None,
) -> Iterator[tuple[int, int, int, bytes]]:
    """(topic, segment, position, bytes) of everything that a commit puts into segments, in bounded pieces.

    Stages that were `checked` already are not checked again but for the sum of each row.
    """
    cursors = {topics[share.number]: _Cursor(share) for share in note.shares}
    waiting = 0
    for stage in note.stages:
        ending = checked[stage] if checked else check(storage, paths, stage).ending
        for key, event in _rows(storage, paths, stage, ending):
            cursor = cursors[key]
            before = len(cursor.buffer)
            cursor.put(event, note.time_ns)
            waiting += len(cursor.buffer) - before
            if row is not None:
                row(cursor.number, cursor.base, cursor.offset - 1, cursor.position + before, event)
            if len(cursor.buffer) >= _COPY_BYTES or not cursor.left:
                waiting -= len(cursor.buffer)
                yield cursor.take()
            elif waiting >= _BUFFERED_BYTES:
                waiting = 0
                yield from (other.take() for other in cursors.values() if other.buffer)


def names(topics: list[TopicEnd]) -> dict[int, Key]:
    """The topics' names by their numbers."""
    return {topic.number: (topic.environment, topic.name) for topic in topics}
