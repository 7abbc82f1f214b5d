"""Payloads as columns: by Spark's schemas and by JSON Schema, and the reason of each that does not fit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import UsageError
from echomesh.spark import parse_json, read_schemas
from echomesh.spark.pipelines.json_schema import parse_schema
from echomesh.spark.pipelines.schemas_file import pattern
from echomesh.topics import matches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDER: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": 1e6},
        "kind": {"enum": ["web", "shop"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "who": {"$ref": "#/$defs/person"},
        "at": {"type": "string", "format": "date-time"},
        "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
        "code": {"anyOf": [{"type": "string", "pattern": "^[A-Z]+$"}, {"type": "null"}]},
    },
    "required": ["id", "amount"],
    "additionalProperties": False,
    "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                         "required": ["name"]}},
}  # fmt: skip
FITS = [
    {"id": 1, "amount": 2},
    {"id": 2, "amount": None, "kind": "web", "tags": ["a", "b"], "who": {"name": "Ann"}, "extra": {"x": 1}},
    {"id": 3, "amount": 0.5, "at": "2026-07-01T12:00:00Z", "code": None, "who": None},
]
REASONS = {
    '{"id": 1': "the data is no JSON",
    "": "the data is no JSON",
    "[1]": "the data is an array, not an object",
    '"text"': "the data is text, not an object",
    '{"id": "x", "amount": 1}': "field id is text, not a whole number",
    '{"id": 1.5, "amount": 1}': "field id is a number, not a whole number",
    '{"amount": 1}': "field id is missing",
    '{"id": null, "amount": 1}': "field id is missing",
    '{"id": 1, "amount": "1"}': "field amount is text, not a number",
    '{"id": 1, "amount": -1}': "field amount is below 0",
    '{"id": 1, "amount": 1000000}': "field amount is not below 1000000.0",
    '{"id": 1, "amount": 1, "kind": "x"}': 'field kind is not one of ["web", "shop"]',
    '{"id": 1, "amount": 1, "tags": "a"}': "field tags is text, not an array",
    '{"id": 1, "amount": 1, "tags": ["long"]}': "field tags[] is longer than 3",
    '{"id": 1, "amount": 1, "tags": ["a", "b", "c"]}': "field tags has more items than 2",
    '{"id": 1, "amount": 1, "who": {"age": 3}}': "field who.name is missing",
    '{"id": 1, "amount": 1, "who": {"name": "A", "age": "3"}}': "field who.age is text, not a whole number",
    '{"id": 1, "amount": 1, "who": 7}': "field who is a whole number, not an object",
    '{"id": 1, "amount": 1, "at": "soon"}': "field at can't be read as timestamp",
    '{"id": 1, "amount": 1, "code": "a"}': 'field code does not match "^[A-Z]+$"',
    '{"id": 1, "amount": 1, "more": 1}': "unknown field more",
}


def events(
    spark: SparkSession, payloads: list[str | None], topic: str = "orders", dataschema: str | None = None
) -> DataFrame:
    rows = [
        (topic, i, None if text is None else text.encode(), f"id-{i}", dataschema, {"k": "v"})
        for i, text in enumerate(payloads)
    ]
    return spark.createDataFrame(
        rows, "topic string, offset long, data binary, id string, dataschema string, attributes map<string,string>"
    )


def test_each_payload_that_does_not_fit_has_its_reason(spark: SparkSession) -> None:
    texts = [*map(json.dumps, FITS), *REASONS, None]
    found = parse_json(events(spark, texts), ORDER)
    good = {row.id: row for row in found.good.collect()}
    assert sorted(good) == [1, 2, 3]
    assert (good[2].tags, good[2].who.name, good[2].extra) == (["a", "b"], "Ann", {"x": 1})
    assert (good[3].amount, good[3]["at"].year) == (0.5, 2026)
    bad = {None if row.data is None else row.data.decode(): row for row in found.bad.collect()}
    assert {text: row.reason for text, row in bad.items()} == REASONS | {None: "there is no data"}
    assert found.bad.columns == ["data", "topic", "offset", "reason", "id", "dataschema", "attributes"]
    assert (bad["[1]"].topic, bad["[1]"].id, bad["[1]"].attributes) == (
        "orders",
        f"id-{texts.index('[1]')}",
        {"k": "v"},
    )


def test_fields_of_the_payload_take_the_place_of_the_data(spark: SparkSession) -> None:
    found = parse_json(events(spark, ['{"id": 7, "amount": 1.5}']), "id long not null, amount double")
    assert found.good.columns == ["topic", "offset", "event_id", "attributes", "id", "amount"]
    (row,) = found.good.collect()
    assert (row.event_id, row.id, row.amount) == ("id-0", 7, 1.5)
    lacking = parse_json(events(spark, ['{"amount": 1}']), "id long not null, amount double")
    assert [row.reason for row in lacking.bad.collect()] == ["field id is missing"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("id lonk", "'id lonk' is no schema: write 'id long"),
        ("{", "the JSON Schema is no JSON"),
        ("nowhere.json", "the schema nowhere.json can't be read: No such file"),
        ({"type": "string"}, "payloads have to be objects"),
        ({"properties": {"a": {"type": "text"}}}, "a has the type 'text'"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "a is of 2 types"),
        ({"properties": {"a": {}}}, "a has no type"),
        ({"properties": {"a": {"type": "string", "not": {}}}}, "a has 'not', which is not checked here"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "a refers to #/\\$defs/b, which is not there"),
        ({"properties": {"a": {"$ref": "http://x"}}}, "only places in the same file"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, "a may be of several kinds"),
        ({"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}, "nested too deeply"),
    ],
    ids=range(12),
)
def test_a_schema_that_cant_become_columns_is_told(spark: SparkSession, schema: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_json(events(spark, ["{}"]), schema)


def test_parse_json_wants_the_data(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="reads the column 'data', and there is id"):
        parse_json(spark.createDataFrame([(1,)], "id int"), "a int")


def test_types_come_from_a_json_schema() -> None:
    kinds = {field.name: field.dataType.simpleString() for field in parse_schema(ORDER).type.fields}
    assert kinds == {
        "id": "bigint", "amount": "double", "kind": "string", "tags": "array<string>", "extra": "map<string,bigint>",
        "who": "struct<name:string,age:bigint>", "at": "timestamp", "code": "string",
    }  # fmt: skip


@pytest.fixture
def schemas_file(tmp_path: Path) -> Path:
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    (tmp_path / "tick.json").write_text(json.dumps({"properties": {"n": {"type": "integer"}}, "required": ["n"]}))
    file = tmp_path / "schemas.toml"
    file.write_text(
        '[order]\ntopics = "orders/**, */orders"\nfile = "order.json"\n\n'
        '[tick]\ndataschema = "urn:tick"\ntopics = "ticks"\nfile = "tick.json"\n'
    )
    return file


def test_events_are_judged_by_the_schema_of_their_topic_or_their_own(spark: SparkSession, schemas_file: Path) -> None:
    schemas = read_schemas(schemas_file)
    rows = (
        events(spark, ['{"id": 1, "amount": 1}', '{"id": 1}'], "orders/eu")
        .union(events(spark, ['{"n": 1}', '{"n": "x"}'], "ticks"))
        .union(events(spark, ['{"n": 5}', '{"id": 1, "amount": 1}'], "orders", "urn:tick"))
        .union(events(spark, ["anything at all"], "else"))
    )
    found = schemas.validate(rows)
    assert sorted((row.topic, row.offset) for row in found.good.collect()) == [
        ("else", 0), ("orders", 0), ("orders/eu", 0), ("orders/eu", 1), ("ticks", 0),
    ]  # fmt: skip
    assert sorted((row.topic, row.offset, row.reason) for row in found.bad.collect()) == [
        ("orders", 1, "field n is missing"),
        ("ticks", 1, "field n is text, not a whole number"),
    ]
    assert found.good.columns == rows.columns
    ticks = schemas.parse(rows, "tick")
    assert sorted(row.n for row in ticks.good.collect()) == [1, 5]
    assert ticks.bad.count() == 2
    with pytest.raises(UsageError, match="has no schema tock: there is order, tick"):
        schemas.parse(rows, "tock")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no schema: write"),
        ("[a", "is no TOML"),
        ("a = 1", r"\[a\] is no table"),
        ('[a]\nfile = "tick.json"', "and topics or dataschema"),
        ('[a]\ntopics = "x"', "needs file"),
        ('[a]\ntopic = "x"\nfile = "tick.json"', "has 'topic': there are topics, dataschema, file"),
        ('[a]\ntopics = "x//y"\nfile = "tick.json"', "empty segment"),
        ('[a]\ntopics = 7\nfile = "tick.json"', "topics has to be text"),
        ('[a]\ntopics = "x"\nfile = "gone.json"', "gone.json can't be read"),
    ],
    ids=range(9),
)
def test_a_mistake_in_schemas_toml_is_told(schemas_file: Path, text: str, why: str) -> None:
    schemas_file.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_schemas(schemas_file)


SEGMENT = st.text("ab.(+é", min_size=1, max_size=3)


@given(
    st.lists(st.one_of(SEGMENT, st.sampled_from(["*", "**"])), min_size=1, max_size=4).map("/".join),
    st.lists(SEGMENT, min_size=1, max_size=4).map("/".join),
)
def test_the_pattern_of_a_filter_finds_what_it_matches(filter: str, topic: str) -> None:
    assert (re.search(pattern(filter), f"/{topic}") is not None) == matches(filter, topic)
