"""Small files become large ones beside a writer, and what nobody needs goes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from echomesh.spark.tables import Compacted, open_table
from echomesh.spark.tables.staging import Fresh
from tests.spark.tables.support import FORMATS, all_see, epoch_rows, epochs, numbered, offsets, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", FORMATS)
def test_small_files_become_one_a_partition_and_epochs_are_remembered(
    spark: SparkSession, tmp_path: Path, kind: Any
) -> None:
    path = tmp_path / "table"
    table = open_table(path, format=kind)
    for epoch in range(3):
        table.write(numbered(spark, 0, 40), "query", epoch)
    before = len(table.paths())
    done = table.compact()
    assert (done.before, done.rows) == (before, 120)
    assert done.after == len(table.paths()) == 3  # days
    assert table.compact() == Compacted()
    all_see(spark, path, kind, sorted([*range(40)] * 3))
    for file in table.paths():
        rows = pq.read_table(file, columns=["topic", "offset"], partitioning=None)
        assert rows.to_pylist() == rows.sort_by([("topic", "ascending"), ("offset", "ascending")]).to_pylist()
    fresh = open_table(path, format=kind)
    assert fresh.last_epoch("query") == 2
    assert fresh.write(numbered(spark, 0, 40), "query", 2).repeated
    fresh.write(epoch_rows(spark, 9), "query", 3)
    all_see(spark, path, kind, sorted([*range(40)] * 3 + epochs(9)))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_writer_goes_on_while_files_are_compacted(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    path, ended = tmp_path / "table", threading.Event()
    failed: list[BaseException] = []
    table = open_table(path, format=kind)
    table.write(epoch_rows(spark, 0), "query", 0)
    total = Compacted()

    def compact() -> None:
        nonlocal total
        other = open_table(path, format=kind)
        try:
            while not ended.is_set():
                total += other.compact()
                other.vacuum(60)
        except BaseException as error:
            failed.append(error)

    helper = threading.Thread(target=compact)
    helper.start()
    try:
        for epoch in range(1, 6):
            table.write(epoch_rows(spark, epoch % 3), "query", epoch)
    finally:
        ended.set()
        helper.join()
    assert failed == []
    assert total.before > total.after > 0
    all_see(spark, path, kind, sorted(epochs(0, 1, 2) * 2))


def test_compaction_changes_no_data_for_those_who_follow_the_log(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table", partition_by=())
    for epoch in range(2):
        table.write(epoch_rows(spark, epoch), "query", epoch)
    version = DeltaTable(tmp_path / "table").version()
    old = DeltaTable(tmp_path / "table")
    table.compact()
    last = (tmp_path / "table" / "_delta_log" / f"{version + 1:020d}.json").read_text()
    assert '"dataChange":false' in last
    assert '"dataChange":true' not in last
    # Who has begun to read reads on: the files are there until a vacuum.
    assert offsets(old.to_pyarrow_table()) == epochs(0, 1)
    assert table.vacuum(3600) == 0
    assert offsets(old.to_pyarrow_table()) == epochs(0, 1)
    assert table.vacuum(0) > 0
    all_see(spark, tmp_path / "table", "delta", epochs(0, 1))


@pytest.mark.parametrize("kind", FORMATS)
def test_what_killed_writes_have_left_is_removed_and_a_write_that_goes_on_is_not(
    spark: SparkSession, tmp_path: Path, kind: Any
) -> None:
    path = tmp_path / "table"
    table = open_table(path, format=kind)
    table.write(epoch_rows(spark, 0), "query", 0)
    with Fresh(path) as fresh:
        table._spark_write(fresh, table._dated(epoch_rows(spark, 1)), table.partitions(), [])
        table._place(fresh, fresh.files())
        assert table.vacuum(0) == 0
        assert fresh.path.exists()
        left = path / "_new" / "left"
        left.mkdir()
        (left / "lock").touch()
        assert table.vacuum(3600) == 0
        assert table.vacuum(0) == 1
        assert not left.exists()
        os.close(os.dup(fresh._lock))
    # Its lock has gone, as that of a killed one does; what had its place already stays behind.
    all_see(spark, path, kind, epochs(0))
    assert table.vacuum(3600) == 0
    gone = table.vacuum(0)
    assert gone > 0 or kind == "parquet"
    all_see(spark, path, kind, epochs(0))


def test_a_file_that_deltalake_has_replaced_stays_as_long_as_delta_says(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table", partition_by=())
    for epoch in range(2):
        table.write(epoch_rows(spark, epoch), "query", epoch)
    for path in table.paths():
        os.utime(path, (time.time() - 86_400, time.time() - 86_400))
    DeltaTable(tmp_path / "table").optimize.compact()
    assert table.vacuum(7200) == 0
    assert table.vacuum(0) > 0
    assert seen(spark, tmp_path / "table", "delta")["deltalake"] == epochs(0, 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_files_that_are_large_already_are_left_alone(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    table = open_table(tmp_path / "table", format=kind, partition_by=())
    for epoch in range(2):
        table.write(epoch_rows(spark, epoch), "query", epoch)
    assert table.compact(target_bytes=100) == Compacted()
    smallest = min(path.stat().st_size for path in table.paths())
    done = table.compact(target_bytes=smallest * 3)
    assert done.before > 1
    all_see(spark, tmp_path / "table", kind, epochs(0, 1))
