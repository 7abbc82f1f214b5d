"""What each task reads: ranges of offsets, packed and split so that all tasks have about as many bytes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from echomesh.native.spark_plan import filled, packed
from echomesh.spark.reach import Range, Reach, Way

if TYPE_CHECKING:
    from echomesh.spark.options import SourceOptions

TASKS_A_CORE: Final = 2
MUCH_BYTES: Final = 512 << 20  # for a task: it takes about a second, and less is not worth a second one for a core
LEAST_BYTES: Final = 1 << 20  # what a task should have at least: starting one costs milliseconds


@dataclass
class Part(InputPartition):
    """What one task reads, and how it gets there."""

    way: Way
    ranges: list[Range]
    columns: dict[str, bool]  # and whether they are nullable
    fail_on_data_loss: bool
    places: bytes = b""  # of all ranges, for the reader inside the JVM

    def __getstate__(self) -> dict[str, object]:
        # Three long columns: Spark's pickler asks Python about each range, of which there may be thousands. Split.java
        # reads this too, and has no use for them.
        columns = pickle.dumps(list(zip(*self.ranges, strict=True)), pickle.HIGHEST_PROTOCOL)
        return {**self.__dict__, "ranges": columns, "server": self.way.for_jvm() if self.places else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        del state["server"]
        self.__dict__.update(state, ranges=list(map(Range, *pickle.loads(state["ranges"]))), places=b"")


def narrowed(pickled: bytes, number: int, start: int, until: int) -> Part:
    """A partition with these offsets of one of its ranges alone: what its task leaves to Python, by Split.java."""
    part: Part = pickle.loads(pickled)
    return replace(part, ranges=[Range(part.ranges[number].topic, start, until)])


def parts(reach: Reach, options: SourceOptions, ranges: Sequence[Range], columns: dict[str, bool]) -> list[Part]:
    """Tasks for these ranges."""
    ranges = filled(list(ranges))
    if not ranges:
        return []
    sizes = reach.sizes(ranges)
    way = reach.way()
    packs = pack(ranges, sizes, _tasks(sum(sizes), options.min_partitions))
    found = [Part(way, some, columns, options.fail_on_data_loss) for some in packs]
    if options.in_jvm:
        _place(reach, found)
    return found


def _place(reach: Reach, parts: list[Part]) -> None:
    """Says where the events stand, unless most of them can be read by Python alone."""
    found = [reach.places(part.ranges) for part in parts]
    if sum(places.known for places in found) > sum(places.unknown for places in found):
        for part, places in zip(parts, found, strict=True):
            part.places = places.packed()


def _tasks(size: int, least: int | None) -> int:
    cores = len(os.sched_getaffinity(0))
    most = TASKS_A_CORE * cores if size > cores * MUCH_BYTES else cores
    return max(least or 1, min(most, size // LEAST_BYTES))


def pack(ranges: Sequence[Range], sizes: Sequence[int], tasks: int) -> list[list[Range]]:
    """The ranges in order, cut into at most so many lists of about the same number of bytes."""
    return packed(list(ranges), list(sizes), tasks, Range)
