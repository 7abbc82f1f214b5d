"""`read_topic`: Parquet files by Spark's own reader, the rest by the source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echomesh.errors import BadOption, UsageError
from echomesh.log import LogReader
from echomesh.log.parquet import compact
from echomesh.spark import read_topic, stream_topic
from tests.spark.support import Clock, expected, made, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def converted(data: Path) -> Path:
    """A log whose older segments are Parquet files: those of `a`, not of `b`."""
    with opened(data, segment_bytes=4096, background=False, duplicate_bytes=0, clock=Clock()) as log:
        for first in range(0, 300, 10):
            log.append_many("a", made(10, first))
            log.append_many("b", made(10, first))
    opened(data, background=False).close()  # its checkpoint has the segments behind it
    with LogReader(data) as reader:
        assert len(compact(reader.topic("a"), min_age_s=0, clock=lambda: 1 << 62).done) > 5
    return data


def seen(frame: DataFrame) -> list[tuple[str, int, bytes]]:
    return sorted((row.topic, row.offset, bytes(row.data)) for row in frame.select("topic", "offset", "data").collect())


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())


def test_both_halves_make_the_whole(spark: SparkSession, converted: Path) -> None:
    frame = read_topic(spark, "*", path=converted)
    assert "FileScan parquet" in plan(frame)
    assert "PythonDataSource" in plan(frame) or "BatchScan" in plan(frame)
    assert seen(frame) == expected("a", range(300)) + expected("b", range(300))
    source = spark.read.format("echomesh").options(subscribe="*", path=str(converted)).load()
    assert frame.schema.names == source.schema.names
    assert sorted(frame.drop("attributes").collect()) == sorted(source.drop("attributes").collect())


def test_offsets_within_a_file_are_kept_to(spark: SparkSession, converted: Path) -> None:
    frame = read_topic(spark, "a,b", path=converted, startingOffsets={"a": 5, "b": 290}, endingOffsets={"a": 33})
    assert seen(frame) == expected("a", range(5, 33)) + expected("b", range(290, 300))
    assert read_topic(spark, "a", path=converted, startingOffsets="latest").count() == 0


def test_columns_that_are_not_wanted_are_not_read(spark: SparkSession, converted: Path) -> None:
    frame = read_topic(spark, "a", path=converted, columns=["offset", "id"])
    assert frame.columns == ["offset", "id"]
    assert frame.where("offset = 17").collect() == [(17, "17")]
    assert "ReadSchema: struct<offset:bigint,id:string>" in plan(frame)


def test_the_size_of_data_can_be_had_without_it(spark: SparkSession, converted: Path) -> None:
    frame = read_topic(spark, "a", path=converted, columns=["size", "offset"])
    assert frame.columns == ["size", "offset"]
    assert "FileScan parquet" in plan(frame)
    assert "BatchScan" in plan(frame)
    assert sorted(row["offset"] for row in frame.collect() if row["size"] == len(str(row["offset"]))) == list(
        range(300)
    )


def test_wrong_arguments_are_told_at_once(spark: SparkSession, converted: Path) -> None:
    with pytest.raises(UsageError, match="no column 'price'"):
        read_topic(spark, "a", path=converted, columns=["price"])
    with pytest.raises(UsageError, match="a list of names"):
        stream_topic(spark, "a", path=converted, columns="offset")
    with pytest.raises(BadOption, match="'pathh' is unknown"):
        read_topic(spark, "a", pathh=converted)


def test_a_stream_in_one_call(spark: SparkSession, converted: Path, tmp_path: Path) -> None:
    frame = stream_topic(spark, "b", path=converted, startingOffsets="earliest", columns=["id"])
    query = frame.writeStream.format("memory").queryName("ids").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("ids").count() == 300
