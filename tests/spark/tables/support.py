"""Rows with numbers for offsets, and readers that know nothing of how they were written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from echomesh.spark.tables import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("delta", "iceberg", "parquet")
EPOCH_ROWS = 60


def numbered(spark: SparkSession, first: int, until: int, *more: str, parts: int = 2) -> DataFrame:
    """Rows as a topic has them, an hour apart: about 24 a day."""
    return spark.range(first, until, 1, parts).selectExpr(
        "concat('t/', id % 3) as topic",
        "id as offset",
        "timestamp_micros(1790000000000000 + id * 3600000000) as timestamp",
        "cast(id as string) as id",
        "cast(concat('data ', id) as binary) as data",
        "map('a', cast(id as string)) as attributes",
        *more,
    )


def epoch_rows(spark: SparkSession, epoch: int) -> DataFrame:
    """The rows of one epoch, which are never others."""
    return numbered(spark, epoch * EPOCH_ROWS, (epoch + 1) * EPOCH_ROWS)


def epochs(*numbers: int) -> list[int]:
    """The offsets of these epochs."""
    return sorted(offset for epoch in numbers for offset in range(epoch * EPOCH_ROWS, (epoch + 1) * EPOCH_ROWS))


def seen(spark: SparkSession, path: Path, kind: str) -> dict[str, list[int]]:
    """The offsets that each reader finds, sorted."""
    found: dict[str, Any] = {}
    if kind == "delta":
        found["deltalake"] = DeltaTable(path).to_pyarrow_table(columns=["offset"])
        found["pyarrow"] = ds.dataset(DeltaTable(path).file_uris(), format="parquet").to_table(columns=["offset"])
    elif kind == "parquet":
        found["pyarrow"] = ds.dataset(path, partitioning="hive").to_table(columns=["offset"])
        found["spark alone"] = spark.read.parquet(str(path)).select("offset").toArrow()
    else:
        found["pyiceberg"] = iceberg(path)
    found["spark"] = open_table(path, format=kind).read(spark).select("offset").toArrow()  # type: ignore[arg-type]
    return {name: offsets(table) for name, table in found.items()}


def offsets(rows: pa.Table) -> list[int]:
    """The offsets of rows, sorted."""
    found: Any = rows["offset"].to_pylist()
    return sorted(found)


def iceberg(path: Path, **how: Any) -> pa.Table:
    """All rows of an Iceberg table, by a catalogue that is opened for it."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("echomesh", uri=f"sqlite:///{path / 'catalog.db'}", warehouse=f"file://{path}")
    try:
        return catalog.load_table("echomesh.rows").scan(**how).to_arrow()
    finally:
        catalog.close()


def all_see(spark: SparkSession, path: Path, kind: str, expected: list[int]) -> None:
    """Every reader finds exactly these offsets."""
    found = seen(spark, path, kind)
    assert found == dict.fromkeys(found, expected)
