"""Batch reads through real Spark."""

from __future__ import annotations

import json
import random
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from echomesh.events import Event
from tests.spark.support import START_NS, Clock, expected, made, opened, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAMES = [
    "topic", "offset", "timestamp", "time", "id", "source", "type", "subject", "datacontenttype", "dataschema", "data",
    "attributes",
]  # fmt: skip


def seen(frame: DataFrame) -> list[tuple[str, int, bytes]]:
    return sorted((row.topic, row.offset, bytes(row.data)) for row in frame.select("topic", "offset", "data").collect())


def test_an_event_comes_with_all_its_columns(spark: SparkSession, data: Path) -> None:
    clock = Clock()
    with opened(data, clock=clock) as log:
        log.append("plain", Event(type="t", source="/s", id="1", time=None))
        log.append(
            "full",
            Event(
                type="order.created", source="/shop", id="7", subject="x", time=datetime(2026, 1, 2, tzinfo=UTC),
                datacontenttype="text/plain", dataschema="https://example.org/schema", data="grüße",
                extensions={"flag": True, "count": 3, "name": "n"},
            ),
        )  # fmt: skip
    frame = read(spark, data)
    assert frame.columns == NAMES
    full, plain = (row.asDict() for row in frame.orderBy("topic").collect())
    at = datetime(1970, 1, 1) + timedelta(microseconds=START_NS // 1000)
    assert full == {
        "topic": "full", "offset": 0, "timestamp": at, "time": datetime(2026, 1, 2), "id": "7", "source": "/shop",
        "type": "order.created", "subject": "x", "datacontenttype": "text/plain",
        "dataschema": "https://example.org/schema", "data": "grüße".encode(),
        "attributes": {"flag": "true", "count": "3", "name": "n"},
    }  # fmt: skip
    assert [plain[name] for name in ("time", "subject", "datacontenttype", "dataschema", "data")] == [None] * 5
    assert plain["attributes"] == {}


def test_only_the_columns_of_a_given_schema_are_read(spark: SparkSession, data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
    reader = spark.read.format("echomesh").options(subscribe="a", path=str(data))
    assert reader.schema("id string, offset long").load().filter("offset = 7").collect() == [("7", 7)]
    assert reader.schema("offset long").load().count() == 10
    whole = spark.read.format("echomesh").options(subscribe="a", path=str(data)).load()
    assert [field.name for field in whole.schema if not field.nullable] == [
        "topic", "offset", "timestamp", "id", "source", "type", "attributes",
    ]  # fmt: skip
    assert whole.select("id", "attributes").filter("offset = 7").collect() == [("7", {})]
    never_null = StructType([StructField("data", BinaryType(), nullable=False)])
    with pytest.raises(Exception, match="can't be declared as never null"):
        reader.schema(never_null).load().count()
    with pytest.raises(Exception, match="no column 'price'"):
        reader.schema("price long").load().count()
    with pytest.raises(Exception, match="column 'offset' is bigint, not string"):
        reader.schema("offset string").load().count()


def test_the_size_of_data_is_there_for_who_asks(spark: SparkSession, data: Path) -> None:
    sizes = [0, 1, 300, None, 70_000]
    with opened(data) as log:
        for size in sizes:
            log.append("a", Event(type="t", source="/s", data=None if size is None else b"x" * size))
    reader = spark.read.format("echomesh").options(subscribe="a", path=str(data))
    assert "size" not in reader.load().columns
    assert sorted(reader.schema("offset long, size long").load().collect()) == list(enumerate(sizes))
    both = reader.schema("size long, data binary, id string").load()
    assert both.where("size <=> octet_length(data)").count() == len(sizes)
    with pytest.raises(Exception, match="column 'size' is bigint, not int"):
        reader.schema("size int").load().count()


def test_filters_choose_topics_and_environments_keep_them_apart(spark: SparkSession, data: Path) -> None:
    with opened(data) as log:
        for name in ("orders/eu", "orders/us", "other"):
            log.append_many(name, made(3))
        log.append_many("orders/eu", made(2, 50), environment="PRD")
    assert seen(read(spark, data, "orders/*")) == expected("orders/eu", range(3)) + expected("orders/us", range(3))
    assert read(spark, data, "other, orders/us,").count() == 6
    assert read(spark, data, "nothing/**").count() == 0
    assert [row[2] for row in seen(read(spark, data, "**", environment="PRD"))] == [b"50", b"51"]


def test_begin_and_end_are_words_offsets_or_times(spark: SparkSession, data: Path) -> None:
    clock = Clock()
    with opened(data, clock=clock) as log:
        for second in range(10):
            clock.to(second)
            log.append_many("a", made(10, second * 10))
            log.append_many("b", made(1, second))

    def offsets(**options: Any) -> tuple[set[int], set[int]]:
        found = seen(read(spark, data, **options))
        return {at for topic, at, _ in found if topic == "a"}, {at for topic, at, _ in found if topic == "b"}

    start_ms = START_NS // 1_000_000
    iso = (datetime(1970, 1, 1) + timedelta(milliseconds=start_ms + 8000)).isoformat() + "Z"
    assert offsets(startingOffsets="latest") == (set(), set())
    assert offsets(startingOffsets=json.dumps({"a": 95})) == (set(range(95, 100)), set(range(10)))
    assert offsets(endingOffsets=json.dumps({"a": 3, "b": "latest"})) == (set(range(3)), set(range(10)))
    assert offsets(startingTimestamp=start_ms + 7001, endingTimestamp=iso) == (set(), set())
    assert offsets(startingTimestamp=start_ms + 7000, endingTimestamp=iso) == (set(range(70, 80)), {7})


def test_a_log_that_is_written_to_is_read_up_to_its_end(spark: SparkSession, data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(100))
        assert seen(read(spark, data)) == expected("a", range(100))
        log.append_many("a", made(100, 100))
        assert seen(read(spark, data)) == expected("a", range(200))


def test_events_of_every_size_come_whole(spark: SparkSession, data: Path) -> None:
    random.seed(5)
    sizes = [0, 1, 300, 4096, 1 << 20, (4 << 20) + 1, 17 << 20, (64 << 20) - 200, 0, 5]
    bodies = [random.randbytes(size) for size in sizes]
    with opened(data) as log:
        for i, body in enumerate(bodies):
            log.append("a", Event(type="t", source="/s", id=str(i), data=body))
    found = read(spark, data).selectExpr("offset", "length(data) as size", "crc32(data) as sum").orderBy("offset")
    assert [tuple(row) for row in found.collect()] == [
        (i, len(body), zlib.crc32(body)) for i, body in enumerate(bodies)
    ]


def test_each_row_is_in_exactly_one_of_many_partitions(spark: SparkSession, data: Path) -> None:
    with opened(data) as log:
        for name in ("a", "b", "c"):
            log.append_many(name, made(1000))
    frame = read(spark, data, minPartitions=7)
    assert frame.rdd.getNumPartitions() == 7
    assert seen(frame) == [row for name in ("a", "b", "c") for row in expected(name, range(1000))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a", "startOffsets": "1"}, "option 'startoffsets' is unknown. Options are: subscribe, path"),
        ({"subscribe": "a//b"}, "option 'subscribe'"),
        ({"subscribePattern": "a.*"}, "subscribe takes filters"),
        ({}, "option 'subscribe' is missing"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "10"}, "is for streams"),
        ({"subscribe": "a", "startingOffsets": '{"z": 1}'}, "not there or not subscribed: z"),
    ],
)
def test_a_bad_option_fails_with_what_is_wrong(
    spark: SparkSession, data: Path, options: dict[str, str], message: str
) -> None:
    opened(data).close()
    with pytest.raises(Exception, match="echomesh") as failure:
        spark.read.format("echomesh").options(path=str(data), **options).load().count()
    assert message in str(failure.value)


def test_a_directory_without_a_log_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no log in this directory"):
        read(spark, tmp_path).count()
