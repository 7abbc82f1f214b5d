"""Record batches become events as they are stored: the compiled encoder and the Event class agree on each."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from echomesh.errors import BadEvent, UsageError
from echomesh.events import Event
from echomesh.native.log_record import scan
from echomesh.native.log_stage import check_rows, count_rows
from echomesh.spark import rows as rows_of_spark
from echomesh.spark.rows import Block, Rows, judge
from tests.support.counts import count

FIELDS: list[tuple[str, pa.DataType]] = [
    ("topic", pa.string()),
    ("id", pa.string()),
    ("source", pa.string()),
    ("type", pa.string()),
    ("subject", pa.string()),
    ("datacontenttype", pa.string()),
    ("dataschema", pa.string()),
    ("time", pa.timestamp("us", "UTC")),
    ("data", pa.binary()),
    ("attributes", pa.map_(pa.string(), pa.string())),
]
SCHEMA = pa.schema(FIELDS)


def batch(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema)


def encoded(batches: list[pa.RecordBatch], topic: str | None = None) -> list[Block]:
    return list(Rows(topic, "w", "w-3-1").blocks(batches))


def events(blocks: list[Block]) -> list[tuple[str, Event]]:
    found: list[tuple[str, Event]] = []
    topics: list[str] = []
    for data, number, fresh in blocks:
        assert count_rows(data) == number
        topics += fresh
        assert check_rows(data, len(found) + 1, len(topics), judge) == number
        for _, topic, _, event in scan(data, 0, len(found) + 1):
            found.append((topics[topic], Event.decode(event)))
    return found


def random_row(chosen: random.Random, number: int) -> dict[str, Any]:
    def text() -> str:
        return chosen.choice(["a", "é" * 20, "x" * 40, "y" * 300, "z" * 70_000 if number % 50 == 0 else "z"])

    row: dict[str, Any] = {"topic": f"t/{chosen.randrange(5)}", "source": "/" + chosen.choice("abc"), "type": text()}
    row["data"] = chosen.choice([None, b"", b"q" * chosen.choice([1, 31, 255, 256, 70_000])])
    if chosen.random() < 0.7:
        row["id"] = text() + str(number)
    if chosen.random() < 0.5:
        row["subject"] = text()
    if chosen.random() < 0.3:
        row["datacontenttype"] = "image/png"
    if chosen.random() < 0.3:
        row["dataschema"] = "https://example.com/a.json"
    if chosen.random() < 0.7:
        row["time"] = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=chosen.randrange(-(10**15), 10**17))
    if chosen.random() < 0.5:
        row["attributes"] = [(f"k{i}", text()) for i in range(chosen.choice([0, 1, 3, 20]))]
    return row


def test_each_row_is_the_event_that_its_columns_say() -> None:
    chosen = random.Random(5)
    given = [random_row(chosen, number) for number in range(count(400, 5_000))]
    cuts = [0, 1, 1, 7, 150, len(given)]
    whole = batch(given)
    found = events(encoded([whole.slice(a, b - a) for a, b in pairwise(cuts)]))
    assert len(found) == len(given)
    for number, (row, (topic, event)) in enumerate(zip(given, found, strict=True)):
        assert topic == row["topic"]
        assert event.id == (row.get("id") or f"w-3-1-{number}")
        assert (event.source, event.type) == (row["source"], row["type"])
        assert (event.subject, event.datacontenttype) == (row.get("subject"), row.get("datacontenttype"))
        assert (event.dataschema, event.time) == (row.get("dataschema"), row.get("time"))
        assert event.data == row["data"]
        assert dict(event.extensions) == dict(row.get("attributes") or [])


def test_what_is_not_given_is_made_up_and_different_for_each_row() -> None:
    found = events(encoded([pa.RecordBatch.from_pydict({"data": ["one", "two"]})], "orders"))
    assert [topic for topic, _ in found] == ["orders", "orders"]
    assert [event.id for _, event in found] == ["w-3-1-0", "w-3-1-1"]
    assert {(event.source, event.type, event.time) for _, event in found} == {("/spark/w", "row", None)}
    assert [event.data for _, event in found] == ["one", "two"]


def test_the_topic_of_the_option_overrides_the_column() -> None:
    one = pa.RecordBatch.from_pydict({"data": [b"1"], "topic": ["other"]})
    assert [topic for topic, _ in events(encoded([one], "orders"))] == ["orders"]
    spelled = pa.RecordBatch.from_pydict({"data": [b"1", b"2"], "topic": ["/a/b", "a/b"]})
    assert [topic for topic, _ in events(encoded([spelled]))] == ["a/b", "a/b"]


def test_blocks_are_bounded_and_number_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_of_spark, "BLOCK_BYTES", 2000)
    blocks = encoded([pa.RecordBatch.from_pydict({"data": [b"x" * 300] * 50})] * 3, "orders")
    assert len(events(blocks)) == 150
    assert len(blocks) > 20
    assert max(len(block[0]) for block in blocks) < 3000


def test_large_types_and_other_units_are_taken_as_well() -> None:
    one = pa.RecordBatch.from_arrays(
        [
            pa.array([b"1"], pa.large_binary()),
            pa.array(["t"], pa.large_string()),
            pa.array([7], pa.timestamp("ms", "UTC")),
        ],
        names=["data", "topic", "time"],
    )
    [(topic, event)] = events(encoded([one]))
    assert (topic, event.data, event.time) == ("t", b"1", datetime(1970, 1, 1, 0, 0, 0, 7000, tzinfo=UTC))


@pytest.mark.parametrize(
    ("row", "error", "why"),
    [
        ({"topic": None}, ValueError, "no topic"),
        ({"topic": "a//b"}, UsageError, "row 0"),
        ({"id": ""}, BadEvent, "id"),
        ({"source": "not a uri"}, BadEvent, "source"),
        ({"type": "a\x00b"}, BadEvent, "type"),
        ({"datacontenttype": "json"}, BadEvent, "datacontenttype"),
        ({"attributes": [("Not-A-Name", "x")]}, BadEvent, "bad name"),
        ({"attributes": [("id", "x")]}, BadEvent, "twice"),
    ],
)
def test_a_row_that_is_no_event_is_refused(row: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        events(encoded([batch([{"topic": "t", "data": b"1", "source": "/s", "type": "t"} | row])]))
