"""Batch reads, and what a task of any read does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from echomesh.errors import DataLoss, LogCorrupt, NotAnEvent, OffsetsLost
from echomesh.log import arrow
from echomesh.spark import columns, options, starts
from echomesh.spark.garbage import settle_once
from echomesh.spark.plan import Part, parts
from echomesh.spark.reach import Range, Reach

BATCH_BYTES: Final = 1 << 20  # small beside the caches; larger ones were not seen to be faster


def check(given: Mapping[str, str]) -> None:
    """Looks at the options as soon as they are there, as far as it can be told whether they are for a read."""
    if "subscribe" in given:
        options.parse(given)


def schema(given: Mapping[str, str]) -> StructType:
    """The columns of a read with these options."""
    options.parse(given)
    return columns.SOURCE_SCHEMA


def reach(chosen: options.SourceOptions) -> Reach:
    """The way to the log that the options name, for the driver."""
    if chosen.server is None:
        from echomesh.spark.local import LocalReach

        return LocalReach(chosen.path or "", chosen.environment)
    from echomesh.spark.remote import ServerReach

    return ServerReach(chosen)


class BatchReader(DataSourceReader):
    """Reads what there is at the time of planning."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self.options = options.parse(given, streaming=False)
        self.columns = columns.chosen(schema)

    def partitions(self) -> list[Part]:
        """What each task reads."""
        found = reach(self.options)
        try:
            return parts(found, self.options, starts.batch(found, self.options), self.columns)
        finally:
            found.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read(partition)


def read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task; none for the partition that Spark makes up when there are none."""
    if isinstance(partition, Part):
        settle_once()
        names = list(partition.columns)
        found = _batches(partition, list(dict.fromkeys("data" if name == columns.SIZE else name for name in names)))
        yield from found if columns.SIZE not in names else (_with_size(batch, names) for batch in found)


def _batches(part: Part, names: list[str]) -> Iterator[pa.RecordBatch]:
    builder = arrow.Builder("", names, BATCH_BYTES, never_null=_never_null(part))
    for one in part.ranges:
        yield from _scan(part, one, builder)
    yield from builder.rest()


def _with_size(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    import pyarrow.compute as pc  # which takes long to load, and most reads do without

    data: Any = batch.column("data")
    size = pc.binary_length(data).cast(pa.int64())
    fields = [pa.field(name, size.type) if name == columns.SIZE else batch.schema.field(name) for name in names]
    arrays = [size if name == columns.SIZE else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _never_null(part: Part) -> list[str]:
    return [name for name, nullable in part.columns.items() if not nullable]


def _scan(part: Part, wanted: Range, builder: arrow.Builder) -> Iterator[pa.RecordBatch]:
    topic, start, until = wanted
    while start < until:
        try:
            yield from part.way.scan(topic, start, until, builder)
            return
        except (OffsetsLost, LogCorrupt, NotAnEvent) as gap:
            first, last = max(gap.first, start), min(gap.last, until - 1)
            starts.lost(part.fail_on_data_loss, DataLoss(topic, first, last, str(gap)))
            start = last + 1
