"""Tables take each epoch of a writer once, and every reader sees that."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructField, StructType

from echomesh.errors import BadTable, StaleWriter, UsageError
from echomesh.spark.tables import Written, open_table
from echomesh.spark.tables.iceberg import Iceberg
from echomesh.spark.tables.table import Conflict
from tests.spark.tables.support import EPOCH_ROWS, FORMATS, all_see, epoch_rows, epochs, iceberg, numbered, offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", FORMATS)
def test_an_epoch_is_written_once_and_an_older_one_is_refused(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "table"
    table = open_table(path, format=kind)
    assert not table.exists
    first = table.write(epoch_rows(spark, 0), "query", 0)
    assert (first.rows, first.repeated) == (EPOCH_ROWS, False)
    assert first.bytes == sum(file.stat().st_size for file in table.paths())
    assert first.files == len(table.paths()) > 1  # rows of several days
    table.write(epoch_rows(spark, 7), "query", 7)
    # Neither the same object nor another one takes it again.
    for again in (table, open_table(path, format=kind)):
        assert again.write(epoch_rows(spark, 7), "query", 7) == Written(repeated=True)
        with pytest.raises(StaleWriter, match="'query': epoch 0 is older than its last one, 7") as stale:
            again.write(epoch_rows(spark, 0), "query", 0)
        assert (stale.value.epoch, stale.value.last_epoch) == (0, 7)
    assert (table.last_epoch("query"), table.last_epoch("other")) == (7, None)
    table.write(epoch_rows(spark, 1), "other", 3)
    all_see(spark, path, kind, epochs(0, 1, 7))
    assert not list((path / "_new").iterdir())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_without_rows_makes_the_table_and_nothing_more(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    table = open_table(tmp_path / "table", format=kind)
    assert table.write(numbered(spark, 0, 0), "query", 0) == Written()
    assert table.exists
    assert table.schema().names == ["topic", "offset", "timestamp", "id", "data", "attributes", "date"]
    assert table.read(spark).count() == 0
    assert table.last_epoch("query") is None
    assert table.write(epoch_rows(spark, 0), "query", 0).rows == EPOCH_ROWS


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_come_back_as_they_were(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "a table"
    table = open_table(path, format=kind)
    table.write(epoch_rows(spark, 0), "query", 0)
    start = datetime.fromtimestamp(1790000000, UTC)
    expected = [
        {
            "topic": f"t/{at % 3}",
            "offset": at,
            "timestamp": start + timedelta(hours=at),
            "id": str(at),
            "data": b"data %d" % at,
            "attributes": [("a", str(at))],
            "date": (start + timedelta(hours=at)).date(),
        }
        for at in range(EPOCH_ROWS)
    ]
    readers: list[pa.Table] = [table.read(spark).toArrow()]
    if kind == "delta":
        readers.append(DeltaTable(path).to_pyarrow_table())
    if kind == "iceberg":
        readers.append(iceberg(path))
    for rows in readers:
        assert sorted(rows.to_pylist(), key=lambda row: row["offset"]) == expected
    for file in table.paths():
        rows = pq.read_table(file, columns=["topic", "offset"], partitioning=None)
        assert rows.to_pylist() == rows.sort_by([("topic", "ascending"), ("offset", "ascending")]).to_pylist()


def test_delta_skips_files_by_what_their_footers_say(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table")
    table.write(numbered(spark, 0, 20, "if(id < 5, null, 1.5D) as price", parts=1), "query", 0)
    actions = pa.table(DeltaTable(tmp_path / "table").get_add_actions(flatten=True)).to_pylist()
    assert sum(action["num_records"] for action in actions) == 20
    assert min(action["min.offset"] for action in actions) == 0
    assert max(action["max.offset"] for action in actions) == 19
    assert sum(action["null_count.price"] for action in actions) == 5
    assert {action["partition.date"] for action in actions} == {date(2026, 9, 21), date(2026, 9, 22)}
    day = [action for action in actions if action["partition.date"] == date(2026, 9, 21)]
    first = datetime.fromtimestamp(1790000000, UTC)
    assert day[0]["min.timestamp"] == first
    found = DeltaTable(tmp_path / "table").to_pyarrow_table(filters=[("offset", ">=", 18)])
    assert offsets(found) == [18, 19]


@pytest.mark.parametrize("kind", FORMATS)
def test_any_text_may_be_a_partition(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    names = ["a/b", "50 % = é", "x:y?*[1]{2}", "#'\"\\", None]
    rows = spark.createDataFrame([(name, at) for at, name in enumerate(names)], "shop string, offset long")
    path = tmp_path / "table"
    table = open_table(path, format=kind, partition_by=("shop",))
    table.write(rows, "query", 0)
    table.write(rows.selectExpr("shop", "offset + 5 as offset"), "query", 1)
    expected = sorted(((name or "", at) for at, name in enumerate(names * 2)), key=str)
    for _ in range(2):
        found = [table.read(spark).toArrow()]
        if kind == "delta":
            found.append(DeltaTable(path).to_pyarrow_table())
        if kind == "iceberg":
            found.append(iceberg(path))
        for read in found:
            rows_read = zip(read["shop"].to_pylist(), read["offset"].to_pylist(), strict=True)
            assert sorted(((name or "", at) for name, at in rows_read), key=str) == expected
        table.compact()
        table.vacuum(0)


def test_huge_rows_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table")
    rows = spark.range(0, 3, 1, 1).selectExpr("id as offset", "cast(repeat('x', 20000000 + id) as binary) as data")
    assert table.write(rows, "query", 0).rows == 3
    assert table.write(rows, "query", 1).rows == 3
    table.compact()
    found = DeltaTable(tmp_path / "table").to_pyarrow_table()
    sizes = pc.binary_length(found["data"]).to_pylist()
    assert sorted(sizes, key=str) == [20_000_000, 20_000_000, 20_000_001, 20_000_001, 20_000_002, 20_000_002]


@pytest.mark.parametrize("kind", FORMATS)
def test_two_runs_of_one_writer_at_once_write_each_epoch_once(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "table"
    done: dict[str, list[Written]] = {"one": [], "two": []}
    failed: list[BaseException] = []

    def run(name: str) -> None:
        table = open_table(path, format=kind)
        try:
            for epoch in range(4):
                done[name].append(table.write(epoch_rows(spark, epoch), "query", epoch))
        except StaleWriter:
            pass  # the other one was faster by more than an epoch
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in done]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    all_see(spark, path, kind, epochs(0, 1, 2, 3))
    assert sum(written.rows for one in done.values() for written in one) == 4 * EPOCH_ROWS
    # Nothing is left of what lost.
    assert open_table(path, format=kind).vacuum(0) == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_two_writers_at_once_lose_nothing(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "table"
    failed: list[BaseException] = []

    def run(writer: int) -> None:
        table = open_table(path, format=kind)
        try:
            for epoch in range(3):
                table.write(epoch_rows(spark, writer * 3 + epoch), f"query {writer}", epoch)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    all_see(spark, path, kind, epochs(*range(6)))


def test_a_writer_has_a_name_and_epochs_count_from_0(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table")
    for writer, epoch in (("", 0), ("query", -1)):
        with pytest.raises(UsageError, match="a writer has a name, and epochs count from 0"):
            table.write(epoch_rows(spark, 0), writer, epoch)


def test_of_those_who_make_an_iceberg_table_at_once_one_does_and_the_others_are_told(tmp_path: Path) -> None:
    for attempt in range(10):
        path = tmp_path / str(attempt)
        begin = threading.Barrier(4)

        def make(path: Path = path, begin: threading.Barrier = begin) -> str:
            table = Iceberg(path, (), ())
            begin.wait()
            try:
                table._create(StructType([StructField("number", LongType())]), [])
            except Conflict:
                return "told"
            return "made"

        with ThreadPoolExecutor(4) as pool:
            found = sorted(each.result() for each in [pool.submit(make) for _ in range(4)])
        assert found == ["made", "told", "told", "told"]
        assert Iceberg(path, (), ()).schema().names == ["number"]


def test_a_path_that_holds_another_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    open_table(f"file://{tmp_path}/table").write(epoch_rows(spark, 0), "query", 0)
    with pytest.raises(BadTable, match="is a table of the format 'delta', not 'parquet'"):
        open_table(tmp_path / "table", format="parquet")
    with pytest.raises(BadTable, match="is on s3"):
        open_table("s3://bucket/table")
    with pytest.raises(BadTable, match="there are delta, iceberg, parquet"):
        open_table(tmp_path / "other", format="orc")  # type: ignore[arg-type]
    with pytest.raises(BadTable, match="there is no table in"):
        open_table(tmp_path / "other").schema()


def test_checkpoints_of_the_log_keep_rows_and_epochs(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table", partition_by=())
    table.write(numbered(spark, 0, 1, parts=1), "query", 0)
    DeltaTable(tmp_path / "table").alter.set_table_properties({"delta.checkpointInterval": "5"})
    for epoch in range(1, 12):
        table.write(numbered(spark, epoch, epoch + 1, parts=1), "query", epoch)
    assert list((tmp_path / "table" / "_delta_log").glob("*.checkpoint.parquet"))
    all_see(spark, tmp_path / "table", "delta", list(range(12)))
    assert open_table(tmp_path / "table").write(numbered(spark, 0, 1), "query", 11).repeated
    log = (tmp_path / "table" / "_delta_log" / "00000000000000000013.json").read_text()
    assert {"appId": "query", "version": 11} in [json.loads(line).get("txn") for line in log.splitlines()]
