"""Tables on disk that take each batch of rows exactly once: Delta, Iceberg and Parquet, without a JAR.

`table` has the way of a write: Spark writes files where nobody looks (`staging`), then one commit makes them part of
the table, with the writer and its epoch. `delta`, `iceberg` and `parquet` know how each format commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echomesh.errors import BadTable
from echomesh.spark.formats import FORMATS, Format
from echomesh.spark.tables.compaction import Compacted
from echomesh.spark.tables.table import Table, Written

__all__ = ["Compacted", "Format", "Table", "Written", "existing_table", "open_table"]

_MARKS: dict[Format, str] = {"delta": "_delta_log", "iceberg": "catalog.db", "parquet": "_schema.json"}


def open_table(
    path: str | Path,
    *,
    format: Format = "delta",
    partition_by: Sequence[str] = ("date",),
    sort_by: Sequence[str] = ("topic", "offset"),
) -> Table:
    """The table in a directory that driver and executors reach; its first write makes it.

    It is partitioned by those of these columns that the first rows have; `date` is made of their `timestamp`, in UTC,
    if they have no such column. A table that is there keeps its partitions. Rows are sorted within each file.
    """
    place = _local(path)
    if format not in FORMATS:
        raise BadTable(f"no format {format!r}: there are {', '.join(FORMATS)}")
    for other, mark in _MARKS.items():
        if other != format and (place / mark).exists():
            raise BadTable(f"{place} is a table of the format {other!r}, not {format!r}")
    return _kind(format)(place, partition_by, sort_by)


def existing_table(path: str | Path) -> Table:
    """The table that is in a directory, whatever format it has."""
    for format, mark in _MARKS.items():
        if (_local(path) / mark).exists():
            return open_table(path, format=format)
    raise BadTable(f"{path} holds no table")


def _local(path: str | Path) -> Path:
    text = str(path)
    scheme, found, rest = text.partition("://")
    if found and scheme != "file":
        raise BadTable(f"{text!r} is on {scheme}: a table lies in a directory that driver and executors share")
    return Path(rest if found else text).absolute()


def _kind(format: Format) -> type[Table]:
    if format == "delta":
        from echomesh.spark.tables.delta import Delta

        return Delta
    if format == "iceberg":
        from echomesh.spark.tables.iceberg import Iceberg

        return Iceberg
    from echomesh.spark.tables.parquet import Parquet

    return Parquet
