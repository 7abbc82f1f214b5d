"""`latest`: one row a key, the last one by event time, for every reader."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from echomesh.errors import UsageError
from echomesh.events import Event
from echomesh.log import TopicLog
from echomesh.spark.pipelines.ready import latest
from echomesh.spark.tables import open_table
from tests.spark.ready import expected
from tests.spark.ready.city import City, Seen, events_in
from tests.spark.ready.running import finish, in_batches
from tests.support.counts import full_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Rows = dict[tuple[str, str], tuple[int, bytes]]


def of_readers(spark: SparkSession, path: Path) -> list[Rows]:
    """Topic and key with offset and data: as Spark, deltalake and pyarrow read the table."""
    files = DeltaTable(str(path)).file_uris()
    columns = ["topic", "key", "offset", "data"]
    found = [
        [row.asDict() for row in open_table(path).read(spark).select(*columns).collect()],
        expected.table(path),
        ds.dataset(files, format="parquet").to_table(columns=columns).to_pylist(),
    ]
    for rows in found:
        assert len({(row["topic"], row["key"]) for row in rows}) == len(rows)  # no key twice
    return [{(row["topic"], row["key"]): (row["offset"], bytes(row["data"] or b"")) for row in rows} for rows in found]


def wanted(seen: dict[tuple[str, str], Seen]) -> Rows:
    """The same of what plain Python finds."""
    return {key: (one.offset, one.data) for key, one in seen.items()}


def test_latest_has_the_last_event_of_each_subject_for_every_reader(spark: SparkSession, city: City) -> None:
    finish(in_batches(latest.make(latest.Options())), city.data)

    last = expected.latest(city.seen, lambda one: one.event.subject)
    for rows in of_readers(spark, city.data / "tables" / "latest"):
        assert rows == wanted(last)
    told = events_in(city.data, "latest/")
    assert {
        (name.removeprefix("latest/"), str(event.subject)): event.id
        for name, events in told.items()
        for event in events
    } == {key: one.event.id for key, one in last.items()}
    for events in told.values():
        assert len({event.id for event in events}) == len(events)


@full_only
def test_latest_by_a_place_in_the_payload_goes_on_from_its_table(spark: SparkSession, city: City) -> None:
    pipeline = in_batches(latest.make(latest.Options(topics="shops/**", key="$.customer", table="customers")))
    finish(pipeline, city.data)
    order = Event(type="order", source="/city", id="new", data={"customer": "c1", "amount": 7})
    old = Event(type="order", source="/city", id="old", data={"customer": "c2"}, time=datetime(2020, 1, 1, tzinfo=UTC))
    with TopicLog(city.data) as log:
        log.append_many("shops/orders", [order, old])
    finish(pipeline, city.data)

    last = wanted(expected.latest(city.seen, lambda one: _customer(one.data)))
    first = city.offsets["shops/orders"]
    last["shops/orders", "c1"] = (first, json.dumps(order.data, separators=(",", ":")).encode())
    for rows in of_readers(spark, city.data / "tables" / "customers"):
        assert rows == last
    assert [event.id for event in events_in(city.data, "latest/")["latest/shops/orders"]][-1] == "new"


def _customer(data: bytes) -> str | None:
    try:
        found: str = json.loads(data)["customer"]
        return found
    except (ValueError, KeyError):
        return None


def test_latest_refuses_a_key_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"--key: 'sensor' is no place in a payload: write it as \$.sensor.id"):
        latest.make(latest.Options(key="sensor"))
