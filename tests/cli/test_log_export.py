"""`echomesh log export`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from echomesh.log import TopicLog, arrow
from tests.cli.log_support import Log, event, filled


def read(path: Path) -> pa.Table:
    return pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(str(path)).read_all()


@pytest.mark.parametrize("name", ["all.parquet", "all.arrow"])
def test_topics_are_exported_with_the_columns_of_the_spark_source(log: Log, tmp_path: Path, name: str) -> None:
    filled(log.data, {"orders": 300, "sensors/a": 20, "sensors/b": 30})
    result = log.run("export", "orders", "sensors/*", "-o", str(tmp_path / name))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{tmp_path / name}: 350 events of 3 topics, ")
    table = read(tmp_path / name)
    assert table.schema.equals(arrow.SCHEMA)
    assert table.column("topic").to_pylist() == ["orders"] * 300 + ["sensors/a"] * 20 + ["sensors/b"] * 30
    assert table.column("offset").to_pylist() == [*range(300), *range(20), *range(30)]
    assert json.loads(table.column("data")[7].as_py())["number"] == 7
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_ranges_columns_and_format_can_be_chosen(log: Log, tmp_path: Path) -> None:
    filled(log.data, {"orders": 100})
    path = tmp_path / "some.arrow"
    options = ["--from", "10", "--to", "30", "--limit", "5", "--columns", "offset, type", "--json"]
    assert log.json("export", "orders", *options, "-o", str(path)) == {
        "file": str(path),
        "format": "arrow",
        "events": 5,
        "bytes": path.stat().st_size,
    }
    assert read(path).to_pydict() == {"offset": [10, 11, 12, 13, 14], "type": ["test"] * 5}
    plain = tmp_path / "plain"
    assert log.run("export", "orders", "--format", "parquet", "-o", str(plain)).returncode == 0
    assert pq.read_table(plain).num_rows == 100


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["orders", "-o", "x"], "does not say what to write"),
        (["orders", "-o", "nowhere/x.arrow"], "no directory nowhere"),
        (["orders", "-o", "x.arrow", "--columns", "offset,nope"], "no columns 'nope'"),
        (["orders"], "--output"),
    ],
)
def test_what_can_not_be_used_is_refused(log: Log, options: list[str], complaint: str) -> None:
    filled(log.data, {"orders": 1})
    result = log.run("export", *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_a_file_that_is_there_is_replaced_only_if_asked(log: Log, tmp_path: Path) -> None:
    filled(log.data, {"orders": 3})
    path = tmp_path / "x.parquet"
    path.write_text("precious")
    refused = log.run("export", "orders", "-o", str(path))
    assert (refused.returncode, path.read_text()) == (2, "precious")
    assert log.run("export", "orders", "-o", str(path), "--force").returncode == 0
    assert read(path).num_rows == 3


def test_a_record_that_is_no_event_stops_the_export_unless_it_is_skipped(log: Log, tmp_path: Path) -> None:
    with TopicLog(log.data) as writer:
        for body in (event(0), b"\xc1", event(2)):
            writer.append("orders", body)
    path = tmp_path / "x.parquet"
    failed = log.run("export", "orders", "-o", str(path))
    assert failed.returncode == 1
    assert "offset 1 is no event" in failed.stderr
    assert list(tmp_path.iterdir()) == []
    skipped = log.run("export", "orders", "-o", str(path), "--skip")
    assert skipped.returncode == 0
    assert skipped.stderr.startswith("left out: topic 'orders': offset 1 is no event")
    assert read(path).column("offset").to_pylist() == [0, 2]
