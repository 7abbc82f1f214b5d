"""`archive`: topics to tables, each event exactly once.

The table has the columns of the source and `date`, the day on which an event was appended. With schemas it has the
fields of the payloads too, and events that do not fit go to a second table, with their reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from echomesh.spark.pipelines.define import Pipeline, pipeline
from echomesh.spark.pipelines.outputs import Batch, OpenedTable, Table, batches, table
from echomesh.spark.pipelines.ready import option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from echomesh.spark.formats import Format
    from echomesh.spark.pipelines.typed import Typed

_DUPLICATES: Final = ("source", "id")
_QUARANTINED: Final = ("data", "topic", "offset", "reason", "timestamp", "id", "source", "type", "dataschema", "date")


@dataclass(frozen=True)
class Options:
    """What may be said of an archive."""

    topics: str = option("**", "Topics or filters, with commas between them.", metavar="FILTERS")
    table: str = option("archive", "The table: a name below the directory of tables, or a path.", metavar="NAME")
    quarantine: str | None = option(
        None, "The table for events that do not fit; NAME-quarantine when not given.", metavar="NAME"
    )
    format: str = option("delta", "delta, iceberg or parquet.")
    typed: str | None = option(
        None, "Payload columns by a schemas.toml, or by one JSON Schema for all topics.", metavar="FILE"
    )
    distinct: str | None = option(
        None, "Leave out events whose source and id came before, within so long a time.", metavar="TIME"
    )
    every: str = option("5 seconds", "The time between two commits.", metavar="TIME")
    name: str = option("archive", "The pipeline's name.", metavar="NAME")


@dataclass(frozen=True)
class Tables:
    """The two tables of an archive, to be written."""

    archive: OpenedTable
    quarantine: OpenedTable


def make(options: Options) -> Pipeline:
    """The pipeline."""
    format = cast("Format", options.format)  # which `table` looks at
    rows = table(options.table, format=format)
    bad = table(options.quarantine or f"{options.table}-quarantine", format=format)
    writer = _Writer(rows, bad, options.typed, keep=options.distinct is not None)
    made = pipeline(
        inputs={"events": options.topics},
        output=batches(writer, f"{rows} and {bad}" if options.typed else str(rows), (rows, bad)),
        trigger=options.every,
        name=options.name,
        watermark=None if options.distinct is None else ("timestamp", options.distinct),
    )
    return made(_distinct if options.distinct else _all)


def _all(events: DataFrame) -> DataFrame:
    return events


def _distinct(events: DataFrame) -> DataFrame:
    # By append time: events of all topics come in its order, so that none is too late to be kept.
    return events.dropDuplicatesWithinWatermark(list(_DUPLICATES))


class _Writer:
    """Writes batches. It opens the tables once, and reads the schemas when the first batch comes."""

    def __init__(self, rows: Table, bad: Table, typed: str | None, *, keep: bool) -> None:
        self.rows = rows
        self.bad = bad
        self.path = typed
        self.keep = keep and typed is not None
        self._tables: Tables | None = None
        self._typed: Typed | None = None

    def __call__(self, rows: DataFrame, batch: Batch) -> None:
        if self._tables is None:
            self._tables = Tables(batch.open(self.rows), batch.open(self.bad))
            if self.path is not None:
                from echomesh.spark.pipelines.typed import Typed, schemas_of

                self._typed = Typed(schemas_of(self.path))
        if self.keep:
            rows = rows.persist()  # what is known of duplicates is not worked out a second time
        try:
            archive_batch(rows, batch.epoch, batch.writer, self._tables, self._typed)
        finally:
            if self.keep:
                rows.unpersist()


@dataclass(frozen=True)
class Archived:
    """How many events of a batch went where; 0 for what was there already."""

    stored: int
    quarantined: int


def archive_batch(rows: DataFrame, epoch: int, writer: str, tables: Tables, typed: Typed | None = None) -> Archived:
    """Writes a batch of events to the tables of an archive, once for each `writer` and `epoch`."""
    if typed is None:
        return Archived(tables.archive.write(rows, writer, epoch).rows, 0)
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from echomesh.spark.pipelines.typed import REASON

    judged, told = typed.judged(rows), Observation()
    seen = judged.observe(told, F.count(REASON).alias("bad"))
    written = tables.archive.write(seen.where(F.col(REASON).isNull()).drop(REASON), writer, epoch)
    # Rows are read again for those that do not fit: only when there are some, or nobody has counted them.
    if not written.repeated and told.get["bad"] == 0 and tables.quarantine.exists:
        return Archived(written.rows, 0)
    bad = judged.where(F.col(REASON).isNotNull()).withColumnRenamed(REASON, "reason")
    columns = [name for name in _QUARANTINED if name in bad.columns]
    return Archived(written.rows, tables.quarantine.write(bad.select(columns), writer, epoch).rows)
