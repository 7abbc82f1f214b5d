"""Batches have the columns that were asked for, keep their limits and stand on memory of their own."""

from __future__ import annotations

import random

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echomesh.errors import UsageError
from echomesh.events import Event
from echomesh.log.arrow import SCHEMA, Builder, schema
from echomesh.native.log_blocks import kept_memory
from tests.log.arrow_support import EVENTS, all_of, packed, row, rows, values
from tests.log.parquet_support import records_of


@given(st.lists(EVENTS, min_size=1, max_size=4), st.sets(st.sampled_from(SCHEMA.names)).map(sorted), st.randoms())
@example([Event(type="t", source="/s", time=None)], ["topic"], random.Random(1))
def test_only_the_columns_asked_for_are_there_in_the_order_asked(
    events: list[Event], columns: list[str], chosen: random.Random
) -> None:
    chosen.shuffle(columns)
    found = rows([event.encode() for event in events], columns=columns)
    if columns:
        assert found == [{name: row(event, i)[name] for name in columns} for i, event in enumerate(events)]


@pytest.mark.parametrize("column", SCHEMA.names)
def test_each_column_alone_has_the_type_that_spark_takes(column: str) -> None:
    wanted: dict[str, pa.DataType] = {"offset": pa.int64(), "data": pa.binary()}
    wanted["attributes"] = pa.map_(pa.string(), pa.string())
    wanted |= dict.fromkeys(("timestamp", "time"), pa.timestamp("us", "UTC"))
    (batch,) = all_of(Builder("t", [column]), [packed(data=b"x", e=1, time="2020-01-01T00:00:00Z", subject="s")])
    assert batch.schema == pa.schema([(column, wanted.get(column, pa.string()))])
    assert batch.column(0).null_count == (column in ("datacontenttype", "dataschema"))


def test_unknown_and_doubled_columns_are_refused() -> None:
    with pytest.raises(UsageError, match="datacontenttype"):
        schema(["id", "content"])
    with pytest.raises(UsageError, match="twice"):
        schema(["id", "id"])
    with pytest.raises(UsageError):
        Builder("t", max_rows=0)


def test_batches_keep_their_limits_and_a_larger_event_comes_alone() -> None:
    sizes = [10, 100, 5000, 20, 0, 900, 900, 900, 5000, 5000, 1]
    events = [packed(data=bytes(size)) for size in sizes]
    found = all_of(Builder("t", max_bytes=2000), events)
    assert [len(value) for batch in found for value in values(batch, "data")] == sizes
    assert all(batch.nbytes <= 2000 or batch.num_rows == 1 for batch in found)
    assert [batch.num_rows for batch in found if batch.nbytes > 5000] == [1, 1, 1]
    assert [batch.num_rows for batch in all_of(Builder("t", max_rows=4), events)] == [4, 4, 3]
    assert [batch.num_rows for batch in all_of(Builder("t", max_bytes=1), events)] == [1] * 11


def test_batches_keep_their_limits_where_values_become_longer() -> None:
    stamp = msgpack.Timestamp(1_600_000_000)  # six bytes, and twenty in `attributes`
    events = [packed(**dict.fromkeys("abcdefgh", False), **dict.fromkeys("ijklmnop", stamp)) for _ in range(200)]
    found = all_of(Builder("t", max_bytes=5000), events)
    assert sum(batch.num_rows for batch in found) == 200
    assert all(4000 < batch.nbytes <= 5000 + 128 for batch in found[:-1])


def test_a_hundred_thousand_rows_grow_every_column() -> None:
    events = [packed(data=b"%d" % i, subject=f"s{i}", ext=i) for i in range(100_000)]
    (batch,) = all_of(Builder("t", max_bytes=1 << 30), events)
    batch.validate(full=True)
    assert values(batch, "data") == [b"%d" % i for i in range(100_000)]
    assert batch.column("attributes")[77_777].as_py() == [("ext", "77777")]
    assert batch.column("time").null_count == 100_000


def test_batches_stand_on_memory_of_their_own() -> None:
    builder = Builder("t", max_rows=2)
    found = all_of(builder, [packed(data=b"%d" % i * 20_000) for i in range(10)])
    again = all_of(builder, [packed(data=b"%d" % i * 20_000) for i in range(10)])
    for kept in (found, again):
        assert [value for batch in kept for value in values(batch, "data")] == [b"%d" % i * 20_000 for i in range(10)]


def test_memory_of_dropped_batches_is_kept_within_bounds() -> None:
    events = [packed(data=bytes(100_000)) for _ in range(100)]
    for size in (1 << 20, 3 << 20, 5 << 20, 1 << 30):
        all_of(Builder("t", max_bytes=size), events)
    assert 0 < kept_memory() <= 128 << 20


def test_one_builder_takes_records_of_many_topics() -> None:
    names = ["a", "bb/c", "a", "", "ddd"]
    builder = Builder("", max_rows=7)
    found: list[pa.RecordBatch] = []
    expected = []
    for turn, name in enumerate(names):
        builder.turn(name)
        records = records_of([packed(id=f"{turn}-{i}") for i in range(turn * 2)])
        found += builder.add(records)
        expected += [(name, f"{turn}-{i}", records.first + i) for i in range(turn * 2)]
    found += builder.rest()
    assert [batch.num_rows for batch in found] == [7, 7, 6]
    seen = [tuple(one.values()) for batch in found for one in batch.select(["topic", "id", "offset"]).to_pylist()]
    assert seen == expected
    for batch in found:
        batch.validate(full=True)
    builder.turn("a")
    assert list(builder.rest()) == []


@pytest.mark.parametrize("max_bytes", [200, 1000, 5000])
def test_batches_of_many_topics_stay_within_their_bytes(max_bytes: int) -> None:
    builder = Builder("", max_bytes=max_bytes)
    found: list[pa.RecordBatch] = []
    for turn in range(40):
        builder.turn("t" * (turn * 6 % 100 + 1))
        found += builder.add(records_of([packed(id=str(i)) for i in range(5)]))
    found += builder.rest()
    assert sum(batch.num_rows for batch in found) == 200
    assert all(batch.nbytes <= max_bytes + 64 or batch.num_rows == 1 for batch in found)
