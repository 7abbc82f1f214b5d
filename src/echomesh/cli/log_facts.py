"""What can be told of topics and their segments by looking at them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from echomesh.errors import HoleError, LogCorrupt, OffsetGone
from echomesh.log import TopicReader, index
from echomesh.log.layout import HEADER_BYTES, parquet_name, segment_name
from echomesh.log.segments import listed

_BLOCK_BYTES = 512
_LOOK_BYTES = 1 << 16


@dataclass(frozen=True)
class SegmentFacts:
    """A segment: offsets from `first` up to `end`, which is not in it."""

    first: int
    end: int
    bytes: int
    disk_bytes: int
    kind: str  # open, sealed or parquet
    index: str
    index_entries: int
    path: str


@dataclass(frozen=True)
class TopicFacts:
    """A topic: offsets from `earliest` up to `next`; bytes are those of records, `disk_bytes` what they take."""

    environment: str
    topic: str
    level: str
    earliest: int
    next: int
    bytes: int
    disk_bytes: int
    segments: int
    last_time_ns: int | None

    @property
    def events(self) -> int:
        """How many there are, those that were lost included."""
        return self.next - self.earliest


def last_time(topic: TopicReader) -> tuple[int | None, int, int]:
    """When the last event was appended, its segment and where that ends; None when it can't be told."""
    try:
        if topic.end > topic.earliest:
            records = topic.read(topic.end - 1, max_bytes=_LOOK_BYTES, max_records=1)
            if len(records):
                return records.time_ns(0), topic.place[0], topic.place[2]
    except (HoleError, LogCorrupt, OffsetGone):
        pass
    return None, -1, -1


def topic_facts(topic: TopicReader) -> TopicFacts:
    """A topic's figures; they cost a look at its directory and its last event."""
    earliest, end = topic.earliest, topic.end
    time_ns, base, position = last_time(topic)
    used = taken = count = 0
    for entry in _entries(topic.directory):
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue  # retention was quicker
        taken += status.st_blocks * _BLOCK_BYTES
        if entry.name.endswith((".seg", ".parquet", ".rows")):
            count += 1
            active = entry.name == segment_name(base)
            used += position if active else status.st_size
    return TopicFacts(topic.environment, topic.name, topic.level, earliest, end, used, taken, count, time_ns)


def segment_facts(topic: TopicReader) -> list[SegmentFacts]:
    """All segments of a topic, with the state of their indexes."""
    _, active, position = last_time(topic)
    end = topic.end
    there = listed(topic.log.storage, topic.directory)
    parquet, stages = there.converted, there.adopted
    firsts = [base for base in there.firsts if base < end or base == active]
    found = []
    for i, base in enumerate(firsts):
        path = Path(topic.directory, parquet_name(base)) if base in parquet else Path(topic.path_of(base))
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # retention was quicker
        sealed = i + 1 < len(firsts) or base in stages
        used = status.st_size if sealed or base != active else position
        kind = "parquet" if base in parquet else "sealed" if sealed else "open"
        # A Parquet file finds its rows itself.
        index_state, entries = _index_state(topic, base, used) if kind != "parquet" else ("none", 0)
        behind = firsts[i + 1] if i + 1 < len(firsts) else end
        taken = status.st_blocks * _BLOCK_BYTES
        found.append(SegmentFacts(base, behind, used, taken, kind, index_state, entries, str(path)))
    return found


def _index_state(topic: TopicReader, base: int, used: int) -> tuple[str, int]:
    found = topic.index_of(base)
    marks, whole = found.read()
    if not topic.log.storage.exists(found.path):
        # A segment shorter than a step of the index needs none.
        return ("none yet" if used <= HEADER_BYTES + index.STEP_BYTES else "missing"), 0
    if not whole:
        return "damaged", len(marks)
    reach = marks[-1].position + 2 * index.STEP_BYTES if marks else HEADER_BYTES
    return ("whole" if reach >= used else "behind"), len(marks)


def disk_bytes(directory: str) -> int:
    """What all files below a directory take on disk."""
    total = 0
    for entry in _entries(directory):
        with suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                total += disk_bytes(entry.path)
            else:
                total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    return total


def appended_since(topic: TopicReader, time_ns: int) -> int:
    """How many events were appended since then."""
    return max(0, topic.end - topic.offset_at(time_ns))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except FileNotFoundError:
        return []
