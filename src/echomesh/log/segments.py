"""The segments of a topic as the writer finds them on disk, those that are Parquet files by now included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from echomesh.log.adopted import Adopted, adopted
from echomesh.log.index import Index
from echomesh.log.layout import bases, converted
from echomesh.log.storage import Storage

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore

UNKNOWN_NS: Final = 1 << 62


class Segments(NamedTuple):
    """First offsets, in order, and which of them are those of Parquet files, and of stages."""

    firsts: list[int]
    converted: set[int]
    adopted: dict[int, Adopted]
    names: set[str]


def listed(storage: Storage, directory: str) -> Segments:
    """What is in a topic's directory."""
    names = storage.names(directory)
    parquet = set(converted(names))
    stages = adopted(directory, names)
    return Segments(sorted({*bases(names), *parquet, *stages}), parquet, stages, set(names))


def index_of(log: LogCore, topic: ActiveTopic, base: int) -> Index:
    """The index of one of the topic's segments."""
    return Index(log.storage, topic.directory, log.log_id, topic.number, base)


def began_ns(log: LogCore, topic: ActiveTopic, base: int, stages: Mapping[int, Adopted]) -> int:
    """When the first record of a segment was appended; far in the future when that can't be told.

    `stages` are those of the topic's segments that are stages.
    """
    if base in stages:
        return stages[base].time_ns
    try:
        return topic.first_time(base)
    except FileNotFoundError:
        # Not begun yet; or converted, then its index is still there.
        marks = index_of(log, topic, base).load()
        return marks[0].time_ns if marks and marks[0].offset == base else UNKNOWN_NS
