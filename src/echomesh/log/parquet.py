"""Sealed segments become Parquet files: smaller, and every engine reads them.

A segment is replaced only by a file that gives back every stored byte. At any point a crash leaves the segment,
the file, or both: readers take the file when it is there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from time import time_ns
from typing import Final

from echomesh.errors import LogCorrupt, LogDamaged, LogLocked, NotAnEvent, OffsetsLost
from echomesh.log import state
from echomesh.log.adopted import adopted, marks_of
from echomesh.log.index_mending import Mending
from echomesh.log.layout import Paths, converted, parquet_name, segment_name
from echomesh.log.parquet_file import ParquetSegment, build, open_segment
from echomesh.log.reader import LogReader
from echomesh.log.segments import listed
from echomesh.log.storage import Storage
from echomesh.log.topic_reader import TopicReader
from echomesh.native.log_record import Records

import pyarrow as pa  # isort: skip  # after what says how to install it

MIN_AGE_S: Final = 600.0  # the default of `duplicate_s`: the window of duplicates is read from segments
_NEW: Final = ".new"


@dataclass(frozen=True)
class Conversion:
    """What became of one segment; `reason` says why it stays."""

    first: int
    end: int
    before_bytes: int
    after_bytes: int
    reason: str = ""

    @property
    def done(self) -> bool:
        """Whether it is a Parquet file now."""
        return not self.reason


@dataclass
class Compaction:
    """What became of a topic's sealed segments."""

    topic: str
    segments: list[Conversion] = field(default_factory=list)

    @property
    def done(self) -> list[Conversion]:
        """Those that are Parquet files now."""
        return [segment for segment in self.segments if segment.done]

    @property
    def stayed(self) -> list[Conversion]:
        """Those that stay as they are."""
        return [segment for segment in self.segments if not segment.done]


Progress = Callable[[int, int, Conversion], None]  # how many of how many are looked at, and the last one


def compact(
    topic: TopicReader,
    *,
    min_age_s: float = MIN_AGE_S,
    progress: Progress | None = None,
    clock: Callable[[], int] = time_ns,
) -> Compaction:
    """Converts all sealed segments of the topic whose events are older than `min_age_s`.

    May run beside a writer, in any process with the right to write there; a second one gets `LogLocked`. What
    the last checkpoint has not behind it waits for the next time. Topics of the level `none` stay in memory.
    """
    log, report = topic.log, Compaction(topic.name)
    if topic.level == "none":
        return report
    with alone(log):
        tidy(topic)
        limit = checkpointed(log.storage, log.paths).get(topic.number, 0)
        found = listed(log.storage, topic.directory)
        wanted = [
            (base, behind)
            for base, behind in pairwise(found.firsts)
            if behind <= limit and base >= topic.earliest and base not in found.converted
        ]
        before = clock() - int(min_age_s * 1e9)
        for number, (base, behind) in enumerate(wanted, 1):
            made = convert(topic, base, behind, before)
            if made is None:
                break
            report.segments.append(made)
            if progress is not None:
                progress(number, len(wanted), made)
    return report


def convert(
    topic: TopicReader,
    base: int,
    behind: int,
    before_ns: int = 1 << 62,
    *,
    stopping: Callable[[], bool] = lambda: False,
) -> Conversion | None:
    """Converts the segment with the offsets from `base` to before `behind`.

    None when it is too young, or `stopping` said so meanwhile.
    """
    log = topic.log
    size = _size(log, topic.path_of(base))
    try:
        records = _whole(topic, base, behind)
        if records is None:
            return Conversion(base, behind, size, size, "it has a gap")
        if records.time_ns(len(records) - 1) >= before_ns:
            return None
        data = build(records, topic.name, log.log_id, topic.number, stopping)
    except NotAnEvent as error:
        return Conversion(base, behind, size, size, f"offset {error.offset} is no event")
    except (LogCorrupt, OffsetsLost, FileNotFoundError) as error:
        return Conversion(base, behind, size, size, str(error))
    given_back = data is not None and _gives_back(data, records, stopping)
    if stopping():
        return None
    if data is None or not given_back:
        return Conversion(base, behind, size, size, "its bytes can't be made again from columns")
    _mark(topic, base)
    _replace(topic, base, data)
    return Conversion(base, behind, size, len(data))


def _whole(topic: TopicReader, base: int, behind: int) -> Records | None:
    # The reader checks every record; one that is not followed up to the next segment stays.
    records = topic.read(base, max_bytes=1 << 31, max_records=behind - base)
    return records if len(records) == behind - base else None


def _gives_back(data: bytes, records: Records, stopping: Callable[[], bool]) -> bool:
    # Asked of the file itself: what PyArrow wrote must be what it reads.
    raw, at = records.raw(), 0
    try:
        segment = ParquetSegment(lambda position, size: data[position : position + size], len(data), "the new file")
        for number in range(len(segment.facts.groups)):
            block, _ = segment.records(number)
            # Not as memoryviews: they are compared byte by byte, and all other threads wait for that.
            if stopping() or not pa.py_buffer(raw[at : at + len(block)]).equals(pa.py_buffer(block)):
                return False
            at += len(block)
    except LogDamaged:
        return False
    return at == len(raw)


def _mark(topic: TopicReader, base: int) -> None:
    # The index stays: it says when the segment began, and costs next to nothing. So it must be there now.
    index = topic.index_of(base)
    marks, whole = index.read()
    if base in topic.adopted:
        found = None if marks else marks_of(topic.log.storage, topic.adopted[base])
    else:
        handle = topic.log.handle(topic.path_of(base))
        found = Mending(topic.log.storage, handle, base, topic.log.storage.size(handle)).missing(marks)
    if found is not None or not whole:
        index.replace(marks if found is None else found)


def _replace(topic: TopicReader, base: int, data: bytes) -> None:
    storage, directory = topic.log.storage, topic.directory
    path = f"{directory}/{parquet_name(base)}"
    handle = storage.open(path + _NEW, create=True)
    try:
        storage.truncate(handle, 0)
        storage.pwrite(handle, data, 0)
        storage.fdatasync(handle)
    except OSError:
        storage.unlink(path + _NEW)
        raise
    finally:
        storage.close(handle)
    storage.rename(path + _NEW, path)
    storage.sync_directory(directory)
    if base < topic.earliest:
        # Retention has removed the segment meanwhile, and its files must not come back.
        storage.unlink(path)
        storage.unlink(topic.index_of(base).path)
    storage.unlink(topic.path_of(base))


def tidy(topic: TopicReader) -> None:
    """Ends what a crash has interrupted."""
    log, directory = topic.log, topic.directory
    names = log.storage.names(directory)
    for name in names:
        if name.endswith(".parquet" + _NEW):
            log.storage.unlink(f"{directory}/{name}")
    stages = adopted(directory, names)
    for base in converted(names):
        if segment_name(base) not in names and base not in stages:
            continue
        try:
            open_segment(log, f"{directory}/{parquet_name(base)}", topic.number, base)
        except LogDamaged:
            log.storage.unlink(f"{directory}/{parquet_name(base)}")
        else:
            log.storage.sync_directory(directory)
            log.storage.unlink(stages[base].path if base in stages else f"{directory}/{segment_name(base)}")


def checkpointed(storage: Storage, paths: Paths) -> dict[int, int]:
    """The first offset of the segment, by topic number, before which recovery needs no segment.

    It follows the segments of `os` topics from the one that a checkpoint names, and must find them: the newest
    one, and the one before it when the newest is damaged.
    """
    found: dict[int, int] | None = None
    for path in (paths.checkpoint, paths.checkpoint_copy):
        try:
            saved = state.load(storage, path)
        except LogDamaged:
            return {}
        if saved is not None:
            ends = {end.number: end.base for end in saved.topics}
            found = ends if found is None else {number: min(ends.get(number, 0), found[number]) for number in found}
    return found or {}


def _size(log: LogReader, path: str) -> int:
    try:
        handle = log.storage.open(path)
    except FileNotFoundError:
        return 0
    try:
        return log.storage.size(handle)
    finally:
        log.storage.close(handle)


@contextmanager
def alone(log: LogReader) -> Iterator[None]:
    """While nobody else converts segments of this directory; `LogLocked` when somebody does."""
    handle = os.open(f"{log.paths.root}/compact.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LogLocked(log.paths.root, 0, "compact") from None
        yield
    finally:
        os.close(handle)
