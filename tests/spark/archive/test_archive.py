"""An archive holds every event once, in columns, and what does not fit lies beside it with its reason."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from echomesh.errors import PipelineFailed, SchemaChanged, StaleWriter, UsageError
from echomesh.events import Event
from echomesh.log import TopicLog
from echomesh.spark.pipelines.define import Pipeline
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.ready.archive import Archived, Options, Tables, archive_batch, make
from echomesh.spark.pipelines.runner import RunOptions, run
from echomesh.spark.pipelines.typed import Typed, schemas_of
from echomesh.spark.tables import open_table
from tests.spark.support import read
from tests.spark.tables.support import FORMATS, iceberg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": "number", "minimum": 0},
        "at": {"type": "string", "format": "date-time"},
        "note": {"type": "string"},
        "to": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
    "required": ["id", "amount"],
}
READING = {"type": "object", "properties": {"celsius": {"type": "number"}, "note": {"type": "string"}}}
TOML = (
    '[order]\ntopics = "shop/**"\nfile = "order.json"\n\n[reading]\ndataschema = "urn:reading"\nfile = "reading.json"\n'
)


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    """A file of schemas."""
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    (tmp_path / "reading.json").write_text(json.dumps(READING))
    (tmp_path / "schemas.toml").write_text(TOML)
    return tmp_path / "schemas.toml"


def finish(pipeline: Pipeline, data: Path, **options: Any) -> None:
    """Runs it over what there is."""
    run(pipeline, Place(data=str(data)), RunOptions(once=True, restarts=0, **options))


def city(number: int) -> Iterator[tuple[str, Event, str | None]]:
    """Events of a city with their topics, and why one does not fit."""
    chance, start = random.Random(3), datetime(2026, 11, 15, 20, tzinfo=UTC)
    for at in range(number):
        when = start + timedelta(minutes=at)
        if chance.random() < 0.1:
            when -= timedelta(hours=chance.randrange(1, 48))  # late
        shop = f"shop/{chance.choice('abc')}/orders"
        kind = chance.random()
        order: dict[str, Any] = {"id": at, "amount": at / 4, "at": when.isoformat(), "to": {"city": f"Köln {at}"}}
        if kind < 0.5:
            yield shop, event(at, when, order), None
        elif kind < 0.55:
            yield shop, event(at, when, order | {"amount": -1}), "field amount is below 0"
        elif kind < 0.6:
            yield shop, event(at, when, {"id": at}), "field amount is missing"
        elif kind < 0.65:
            yield shop, event(at, when, None, data=b"no json"), "json"
        elif kind < 0.67:
            yield shop, event(at, when, order | {"note": "x" * 2_000_000}), None  # huge
        elif kind < 0.9:
            yield "sensors/temperature", event(at, when, {"celsius": at / 8}, dataschema="urn:reading"), None
        else:
            yield "logs", event(at, when, None, data=b"\xff any bytes"), None


def event(at: int, when: datetime, value: Any, data: bytes | None = None, **more: Any) -> Event:
    body = json.dumps(value).encode() if data is None else data
    return Event(type="made", source="/city", id=str(at), time=when, data=body, **more)


def delta(path: Path) -> list[dict[str, Any]]:
    """All rows, read without Spark."""
    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows


def test_every_event_is_stored_or_quarantined_once_with_its_columns(
    spark: SparkSession, data: Path, schemas: Path
) -> None:
    made = list(city(160))
    archive = make(Options(typed=str(schemas), every="1 second"))
    with TopicLog(data) as log:
        for topic, one, _ in made[:100]:
            log.append(topic, one)
    finish(archive, data)
    with TopicLog(data) as log:
        for topic, one, _ in made[100:]:
            log.append(topic, one)
    finish(make(Options(typed=str(schemas))), data)
    finish(make(Options(typed=str(schemas))), data)  # there is nothing new
    stored, bad = delta(data / "tables" / "archive"), delta(data / "tables" / "archive-quarantine")
    good = {one.id: (topic, one) for topic, one, why in made if why is None}
    assert Counter(row["id"] for row in stored) == Counter(list(good))
    for row in stored:
        topic, one = good[row["id"]]
        assert (row["topic"], row["data"], row["time"]) == (topic, one.data, one.time)
        assert row["date"] == row["timestamp"].date()
        if topic.startswith("shop/"):
            value = json.loads(one.data)
            assert (row["payload_id"], row["amount"], row["to"]) == (value["id"], value["amount"], value["to"])
            assert row["at"] == datetime.fromisoformat(value["at"])
            assert (row["note"], row["celsius"]) == (value.get("note"), None)
        elif topic == "logs":
            assert (row["payload_id"], row["celsius"], row["amount"]) == (None, None, None)
        else:
            assert row["celsius"] == json.loads(one.data)["celsius"]
    wrong = {one.id: (topic, one, why) for topic, one, why in made if why is not None}
    assert Counter(row["id"] for row in bad) == Counter(list(wrong))
    for row in bad:
        topic, one, why = wrong[row["id"]]
        assert (row["topic"], row["data"]) == (topic, one.data)
        assert why is not None
        assert why.lower() in row["reason"].lower()
    offsets = {(row["topic"], row["offset"]) for row in stored} | {(row["topic"], row["offset"]) for row in bad}
    assert len(offsets) == len(made)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_archive_is_a_table_of_the_wanted_format(spark: SparkSession, data: Path, kind: str) -> None:
    with TopicLog(data) as log:
        log.append_many("a/b", [Event(type="t", source="/s", id=str(at), data=b"x") for at in range(20)])
        log.append_many("c", [Event(type="t", source="/s", id=str(at), data=b"x") for at in range(20)])
    finish(make(Options(topics="a/**", format=kind, table=str(data / "x"))), data)
    finish(make(Options(topics="c", format=kind, table=str(data / "x"), name="second")), data)
    table = open_table(data / "x", format=kind)  # type: ignore[arg-type]
    found = sorted((row.topic, int(row.id)) for row in table.read(spark).collect())
    assert found == sorted([("a/b", at) for at in range(20)] + [("c", at) for at in range(20)])
    if kind == "iceberg":
        assert iceberg(data / "x").num_rows == 40


def test_duplicates_within_the_time_are_left_out(spark: SparkSession, data: Path) -> None:
    chance = random.Random(5)
    with TopicLog(data) as log:
        for part in range(3):
            events = [
                Event(type="t", source=f"/{at % 2}", id=str(at), data=b"%d" % part)
                for at in chance.choices(range(100), k=150)
            ]
            log.append_many(f"topic/{part}", events)
    archive = Options(distinct="1 hour", every="1 second")
    finish(make(archive), data)
    with TopicLog(data) as log:  # and again in a later run
        log.append_many("topic/9", [Event(type="t", source=f"/{at % 2}", id=str(at), data=b"9") for at in range(100)])
    finish(make(archive), data)
    found = Counter((row["source"], row["id"]) for row in delta(data / "tables" / "archive"))
    assert found == Counter({(f"/{at % 2}", str(at)): 1 for at in range(100)})


def test_a_batch_again_is_stored_once_wherever_the_first_was_interrupted(
    spark: SparkSession, data: Path, schemas: Path
) -> None:
    with TopicLog(data) as log:
        for topic, one, _ in city(100):
            log.append(topic, one)
    rows, typed = read(spark, data), Typed(schemas_of(schemas))
    good = sum(why is None for _, _, why in city(100))
    tables = Tables(open_table(data / "rows"), open_table(data / "bad"))
    # As if it had been killed between the two tables.
    assert archive_batch(rows.limit(0), 0, "query", tables, typed) == Archived(0, 0)
    judged = typed.judged(rows)
    tables.archive.write(judged.where("_reason is null").drop("_reason"), "query", 1)
    assert archive_batch(rows, 1, "query", tables, typed) == Archived(0, 100 - good)
    assert archive_batch(rows, 1, "query", tables, typed) == Archived(0, 0)
    assert (len(delta(data / "rows")), len(delta(data / "bad"))) == (good, 100 - good)
    with pytest.raises(StaleWriter):
        archive_batch(rows, 0, "query", tables, typed)


def test_a_grown_schema_adds_columns_and_a_changed_one_is_named(spark: SparkSession, data: Path, schemas: Path) -> None:
    def one_more(at: int) -> None:
        with TopicLog(data) as log:
            log.append("shop/a", event(at, datetime.now(UTC), {"id": at, "amount": 1.0, "paid": True}))
        finish(make(Options(typed=str(schemas))), data)

    one_more(0)
    wider = ORDER | {"properties": {**ORDER["properties"], "paid": {"type": "boolean"}}}  # type: ignore[dict-item]
    (schemas.parent / "order.json").write_text(json.dumps(wider))
    one_more(1)
    assert {row["id"]: row["paid"] for row in delta(data / "tables" / "archive")} == {"0": None, "1": True}
    changed = ORDER | {"properties": {**ORDER["properties"], "amount": {"type": "string"}}}  # type: ignore[dict-item]
    (schemas.parent / "order.json").write_text(json.dumps(changed))
    with pytest.raises(PipelineFailed, match="'amount'"):
        one_more(2)
    assert len(delta(data / "tables" / "archive")) == 2


def test_two_schemas_that_disagree_on_a_field_are_refused(schemas: Path) -> None:
    (schemas.parent / "reading.json").write_text(
        json.dumps({"type": "object", "properties": {"amount": {"type": "string"}}})
    )
    with pytest.raises(SchemaChanged, match=r"'amount' is double .* string by the schema reading"):
        Typed(schemas_of(schemas))


def test_one_json_schema_serves_all_topics(schemas: Path) -> None:
    typed = Typed(schemas_of(schemas.parent / "order.json"))
    assert list(typed.fields) == ["payload_id", "amount", "at", "note", "to"]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="there are delta, iceberg, parquet"):
        make(Options(format="orc"))
