"""The file of a stage, and how its rows become records. A stage is made of records itself, so that its bytes
are checked.

Record 0 holds what the stage is for, 1 to n the rows (in `time_ns` the number of the row's topic), n + 1 the
end: the names of the topics and the sum of all that is before. Between them may stand by what a window of duplicates
knows the rows. The last one says where the end stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import sleep
from typing import Final, NamedTuple

import msgspec

from echomesh.errors import StageMissing
from echomesh.log.adopted import Adopted
from echomesh.log.index import STEP_BYTES
from echomesh.log.layout import HEADER_BYTES, Paths
from echomesh.log.state import CommitNote, TopicEnd
from echomesh.log.storage import Storage
from echomesh.native import log_stage
from echomesh.native.log_record import SHORT, Records, encode, scan
from echomesh.native.log_stage import Cursor, Layout
from echomesh.native.log_sums import crc32c
from echomesh.native.log_window import Window


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
    end: int  # where the rows end
    marks: list[tuple[int, int]] = msgspec.field(default_factory=list)  # number and position of some rows


class Stage(NamedTuple):
    """A whole stage, without its rows: there may be more of them than memory."""

    purpose: Purpose
    ending: Ending
    ending_at: int

    @property
    def end(self) -> int:
        """Where the rows end."""
        return self.ending.end


Key = tuple[str, str]  # environment, name
Write = Callable[[int, int, int, bytes], None]  # topic, segment, position, bytes
Mark = Callable[[int, int, int, int], None]  # topic, segment, offset, position

_CHUNK_BYTES: Final = 1 << 20
_PURPOSE_BYTES: Final = 1 << 16
_TURN_BYTES: Final = 1 << 18
_COPY_BYTES: Final = 1 << 18  # of one topic, written at once
_BUFFERED_BYTES: Final = 8 << 20  # of all topics
_purpose = msgspec.msgpack.Decoder(Purpose).decode
_ending = msgspec.msgpack.Decoder(Ending).decode
pack = msgspec.msgpack.Encoder().encode
TAIL_BYTES: Final = len(encode(0, 0, None, bytes(8)))


def path_of(paths: Paths, stage: str) -> str:
    """The stage's file."""
    if not stage or not all(c in "0123456789abcdef" for c in stage):
        raise StageMissing(stage, "not the name of a stage")
    return f"{paths.staging}/{stage}.stage"


def _opened(storage: Storage, paths: Paths, stage: str) -> int:
    path = path_of(paths, stage)
    if not storage.exists(path):
        raise StageMissing(stage, "it is not there: never closed, aborted, or expired")
    return storage.open(path)


def tail(position: int) -> bytes:
    """The last record of a stage whose end stands there."""
    return encode(0, -2, None, position.to_bytes(8, "little"))


def _batches(storage: Storage, paths: Paths, stage: str, end: int, chunk: int = _CHUNK_BYTES) -> Iterator[Records]:
    # All records before this position, some at a time; whatever is not a record is an error.
    handle = _opened(storage, paths, stage)
    try:
        position, expected, size = 0, 0, chunk
        while data := storage.pread(handle, min(size, end - position), position):
            records = scan(data, 0, expected)
            if len(records):
                yield records
                position, expected, size = position + records.next_position, records.next_offset, chunk
            elif len(data) == size and records.stopped == SHORT:
                size = max(size * 2, int.from_bytes(data[:4], "little") + 8)
            else:
                raise StageMissing(stage, f"it is not whole: row {expected} is damaged")
    finally:
        storage.close(handle)


def look(storage: Storage, paths: Paths, stage: str) -> Stage:
    """The stage as its first and its last record tell it, or `StageMissing`; the rows are not looked at."""
    handle = _opened(storage, paths, stage)
    try:
        size = storage.size(handle)
        last = scan(storage.pread(handle, TAIL_BYTES, max(0, size - TAIL_BYTES)), 0, 0, max_records=1)
        end = int.from_bytes(last[0][3], "little") if len(last) else size
        ending = scan(storage.pread(handle, max(0, size - TAIL_BYTES - end), end), 0, -1, max_records=1)
        first = scan(storage.pread(handle, _PURPOSE_BYTES, 0), 0, 0, max_records=1)
        if not len(ending) or not len(first):
            raise StageMissing(stage, "it is not whole: there is no end")
        return Stage(_purpose(first[0][3]), _ending(ending[0][3]), end)
    except msgspec.MsgspecError as error:
        raise StageMissing(stage, f"it is not whole: {error}") from None
    finally:
        storage.close(handle)


def hashes(storage: Storage, paths: Paths, name: str, stage: Stage) -> bytes | None:
    """By what a window of duplicates knows the rows; None when the stage does not tell."""
    if stage.ending_at <= stage.end:
        return None
    handle = _opened(storage, paths, name)
    try:
        found = scan(storage.pread(handle, stage.ending_at - stage.end, stage.end), 0, 0, max_records=1)
    finally:
        storage.close(handle)
    if not len(found) or len(found[0][3]) != 16 * stage.ending.rows:
        raise StageMissing(name, "it is not whole: what tells its rows is damaged")
    return found[0][3]


def check(storage: Storage, paths: Paths, stage: str) -> Stage:
    """The stage, every byte of it checked, or `StageMissing`."""
    found = look(storage, paths, stage)
    count = summed = 0
    for records in _batches(storage, paths, stage, found.end):
        count += len(records)
        summed = crc32c(records.raw(), summed)
    if (found.ending.rows, found.ending.checksum) != (count - 1, summed):
        raise StageMissing(stage, "it is not whole: rows are missing")
    return found


def _rows(storage: Storage, paths: Paths, name: str, stage: Stage) -> Iterator[Records]:
    try:
        for records in _batches(storage, paths, name, stage.end, _TURN_BYTES):
            yield records
            sleep(0)  # others who append want the interpreter too, and not only every 5 ms
    except ValueError as error:
        raise StageMissing(name, f"it is not whole: {error}") from None


def lay_out(
    storage: Storage,
    paths: Paths,
    stages: Sequence[tuple[str, Stage]],
    segment_bytes: int,
    now: int = 0,
    window: Callable[[Key], Window | None] = lambda key: None,
) -> dict[Key, Layout]:
    """What each topic gets, in the order of the stages and of their rows.

    `window` gives a topic's window against duplicates; the rows are entered there, by their number in the topic.
    """
    found: dict[Key, Layout] = {}
    for name, stage in stages:
        layouts: list[Layout] = []
        for key in stage.ending.topics:
            if key not in found:
                found[key] = Layout(segment_bytes - HEADER_BYTES, window(key), now)
            layouts.append(found[key])
        for records in _rows(storage, paths, name, stage):
            log_stage.lay_out(records, stage.ending.rows, layouts)
    return {key: layout for key, layout in found.items() if layout.count}


def read_purpose(storage: Storage, path: str) -> Purpose | None:
    """What the stage in this file is for; None when not even that is there."""
    try:
        handle = storage.open(path)
    except FileNotFoundError:
        return None
    try:
        data = storage.pread(handle, _PURPOSE_BYTES, 0)
    finally:
        storage.close(handle)
    records = scan(data, 0, 0, max_records=1)
    try:
        return _purpose(records[0][3]) if len(records) else None
    except msgspec.MsgspecError:
        return None


def copies(
    storage: Storage,
    paths: Paths,
    note: CommitNote,
    topics: dict[int, Key],
    mark: Mark | None = None,
    checked: dict[str, Stage] | None = None,
) -> Iterator[tuple[int, int, int, bytes]]:
    """(topic, segment, position, bytes) of everything that a commit puts into segments, in bounded pieces.

    Stages that were `checked` already are not checked again but for the sum of each row. `mark` is told some of the
    rows, for an index.
    """
    cursors: dict[Key, Cursor] = {}
    whole = {run.stage for share in note.shares for run in share.runs}
    for share in note.shares:
        runs = [(run.base, run.position, run.first, run.count) for run in share.runs if not run.stage]
        cursors[topics[share.number]] = Cursor(share.number, runs)
    nowhere = Cursor(-1, ())
    for name in note.stages:
        if name in whole:
            continue
        stage = checked[name] if checked else check(storage, paths, name)
        into = [cursors.get(key, nowhere) for key in stage.ending.topics]
        for records in _rows(storage, paths, name, stage):
            marks: list[tuple[int, int, int, int]] = []
            yield from log_stage.copy_rows(
                records, stage.ending.rows, into, note.time_ns, _COPY_BYTES, STEP_BYTES, marks
            )
            if mark is not None:
                for found in marks:
                    mark(*found)
            if sum(cursor.size for cursor in into) >= _BUFFERED_BYTES:
                yield from (cursor.take() for cursor in cursors.values() if cursor.size)


def adoptions(paths: Paths, note: CommitNote) -> Iterator[tuple[int, Adopted]]:
    """(topic, segment) of the stages that a commit makes segments as they are, where they waited for it."""
    for share in note.shares:
        for run in share.runs:
            if run.stage:
                yield share.number, Adopted(run.first, note.time_ns, run.count, path_of(paths, run.stage))


def names(topics: list[TopicEnd]) -> dict[int, Key]:
    """The topics' names by their numbers."""
    return {topic.number: (topic.environment, topic.name) for topic in topics}
