"""New columns make a table wider; changed ones are refused by name, before a row is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from echomesh.errors import BadTable, SchemaChanged
from echomesh.spark.tables import open_table
from tests.spark.tables.support import FORMATS, iceberg, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", FORMATS)
def test_new_columns_are_added_and_are_null_before(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "table"
    table = open_table(path, format=kind)
    table.write(numbered(spark, 0, 10), "query", 0)
    table.write(numbered(spark, 10, 20, "id * 2 as twice", "struct(id as a) as deep"), "query", 1)
    table.write(numbered(spark, 20, 30, "struct(id as a, 'b' as b) as deep"), "query", 2)
    table.write(numbered(spark, 30, 40), "query", 3)
    for _ in range(2):
        found = [table.read(spark).toArrow()]
        if kind == "delta":
            found.append(DeltaTable(path).to_pyarrow_table())
        if kind == "iceberg":
            found.append(iceberg(path))
        for rows in found:
            by_offset = {row["offset"]: (row["twice"], row["deep"]) for row in rows.to_pylist()}
            assert len(by_offset) == rows.num_rows == 40
            assert by_offset[5] == (None, None)
            assert by_offset[15] == (30, {"a": 15, "b": None})
            assert by_offset[25] == (None, {"a": 25, "b": "b"})
            assert by_offset[35] == (None, None)
        table.compact()


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("column", "field", "was", "now"),
    [
        ("cast(id as int) as number", "number", "bigint", "int"),
        ("cast(id as string) as number", "number", "bigint", "string"),
        ("id as NUMBER", "number", "spelled number", "spelled NUMBER"),
        ("struct(struct(id as b) as a) as deep", "deep.a.b", "string", "bigint"),
        ("array(id) as list", "list", "array<string>", "array<bigint>"),
    ],
    ids=["narrower", "text", "case", "nested", "elements"],
)
def test_a_changed_column_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, kind: Any, column: str, field: str, was: str, now: str
) -> None:
    table = open_table(tmp_path / "table", format=kind)
    columns = ("id as number", "struct(struct('x' as b) as a) as deep", "array('x') as list")
    table.write(numbered(spark, 0, 1, *columns, parts=1), "query", 0)
    with pytest.raises(SchemaChanged, match="cast it, give it another name, or write to another table") as refused:
        table.write(numbered(spark, 1, 2, column, "1 as fine"), "query", 1)
    assert (refused.value.field, refused.value.was, refused.value.now) == (field, was, now)
    assert "fine" not in table.schema().names
    assert table.read(spark).count() == 1


def test_what_no_table_takes_is_named(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table")
    with pytest.raises(BadTable, match=r"column 'deep.when' is interval.*cast it"):
        table.write(spark.sql("select struct(interval 1 day as when) as deep"), "query", 0)
    with pytest.raises(BadTable, match="columns a stand twice"):
        table.write(spark.sql("select 1 as a, 2 as A"), "query", 0)
    with pytest.raises(BadTable, match="can't be partitioned by 'price', which is double"):
        open_table(tmp_path / "table", partition_by=("price",)).write(spark.sql("select 1D as price"), "query", 0)
    with pytest.raises(BadTable, match="needs a column beside"):
        open_table(tmp_path / "table", partition_by=("a",)).write(spark.sql("select 1 as a"), "query", 0)
    table.write(spark.sql("select 1 as a, date'2026-01-01' as date"), "query", 0)
    with pytest.raises(BadTable, match="no column 'date', by which"):
        table.write(spark.sql("select 1 as a"), "query", 1)


def test_a_table_is_partitioned_by_what_its_first_rows_have(spark: SparkSession, tmp_path: Path) -> None:
    plain = open_table(tmp_path / "plain")
    plain.write(spark.sql("select 1 as a"), "query", 0)
    assert plain.partitions() == []
    assert DeltaTable(tmp_path / "plain").to_pyarrow_table().to_pylist() == [{"a": 1}]
    dated = open_table(tmp_path / "dated")
    dated.write(numbered(spark, 0, 3), "query", 0)
    assert dated.partitions() == ["date"]
    # It stays as it is, whatever the next one asks for.
    other = open_table(tmp_path / "dated", partition_by=("topic",))
    other.write(numbered(spark, 3, 6), "query", 1)
    assert DeltaTable(tmp_path / "dated").metadata().partition_columns == ["date"]


def test_days_are_those_of_utc_whatever_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = spark.sql("select timestamp_seconds(1790000000) as timestamp, 0L as offset")
        open_table(tmp_path / "table").write(rows, "query", 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    assert [str(day) for day in DeltaTable(tmp_path / "table").to_pyarrow_table()["date"].to_pylist()] == ["2026-09-21"]
