"""Writes to topics: batches, streams and what is refused, over a server and into a data directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, MapType, StringType, StructField, StructType

from echomesh.errors import BadOption, UsageError
from echomesh.spark import sink_options
from tests.spark.checkpoint_files import MANAGER, OURS
from tests.spark.node import NodeProcess, events_of, numbers_of
from tests.spark.support import stream
from tests.support.processes import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A server for all tests of this file; each has topics of its own."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as started:
        yield started


def numbers(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr("cast(cast(id as string) as binary) as data")


def append(frame: DataFrame, **options: str) -> None:
    frame.write.format("echomesh").mode("append").options(**options).save()


def drain(frame: DataFrame, checkpoint: Path, **options: str) -> Any:
    """Writes all that a stream has now."""
    writer = frame.writeStream.format("echomesh").options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


# Large writes


@pytest.mark.parametrize("way", ["path", "server"])
def test_the_files_of_a_large_write_become_segments_with_each_row_once(
    spark: SparkSession, node: NodeProcess, tmp_path: Path, way: str
) -> None:
    # Two tasks, each of which needs a second stage.
    text = "cast(concat(cast(id as string), repeat(' ', 1000)) as binary) as data"
    frame = spark.range(0, 70_000, 1, 2).selectExpr(text)
    data = tmp_path / "log" if way == "path" else node.data
    options = {"path": str(data)} if way == "path" else node.options
    for round in range(2):
        append(frame, topic="large", **options)
        assert [int(event.data.strip()) for event in events_of(data, "large")] == [*range(70_000)] * (round + 1)
    sizes = [path.stat().st_size for path in data.rglob("*.rows")]
    assert len(sizes) == 8
    assert max(sizes) < 64 << 20
    read = spark.read.format("echomesh").options(subscribe="large", **options).load()
    found = read.selectExpr("count(*)", "count(distinct offset)", "max(offset)").first()
    assert found is not None
    assert tuple(found) == (140_000, 140_000, 139_999)


# Options and columns


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "or path is missing"),
        ({"server": "a:1", "path": "/x"}, "exclude each other"),
        ({"server": "a:1"}, "'clientId' is missing"),
        ({"server": "a:1", "passwordFile": "p"}, "'clientId' is missing"),
        ({"path": "/x", "clientId": "c"}, "of no use without server"),
        ({"path": "/x", "tls": "true"}, "'tls' is of no use without server"),
        ({"path": "/x", "topics": "t"}, "'topics' is unknown. Options are: topic, path"),
        ({"path": "/x", "topic": "a//b"}, "'topic' = 'a//b' can't be used"),
        ({"path": "/x", "topic": ""}, "'topic' is empty"),
        ({"path": "/x", "environment": "DEV"}, "not one of TST, VAL, PRD"),
        ({"path": "/x", "onStaleCheckpoint": "republish"}, "is for streams"),
        ({"path": "/x", "txnAppId": "a"}, "go together"),
        ({"path": "/x", "txnAppId": "a", "txnVersion": "-1"}, "whole number"),
    ],
)
def test_an_option_that_cant_be_used_is_named(options: dict[str, str], why: str, monkeypatch: Any) -> None:
    monkeypatch.delenv("ECHOMESH_DATA", raising=False)
    with pytest.raises(BadOption, match=why):
        sink_options.parse(options, streaming=False)


def test_options_of_streams_are_not_those_of_batches() -> None:
    with pytest.raises(BadOption, match="is for batch writes"):
        sink_options.parse({"path": "/x", "txnAppId": "a", "txnVersion": "1"}, streaming=True)
    with pytest.raises(BadOption, match="give fail or republish"):
        sink_options.parse({"path": "/x", "onStaleCheckpoint": "drop"}, streaming=True)
    chosen = sink_options.parse({"PATH": "/x", "checkpointLocation": "/c", "onstalecheckpoint": "fail"}, streaming=True)
    assert (chosen.path, chosen.republish) == ("/x", False)


@pytest.mark.parametrize(
    ("columns", "topic", "why"),
    [
        ({"topic": StringType()}, None, "no column 'data'"),
        ({"data": LongType()}, "t", "cast it to binary or string"),
        ({"data": BinaryType(), "offset": LongType()}, "t", "given by the log: drop it"),
        ({"data": BinaryType(), "key": StringType()}, "t", "no column 'key': a write may have topic"),
        ({"data": BinaryType()}, None, "no topic"),
        ({"data": BinaryType(), "time": StringType()}, "t", "cast it to timestamp"),
        ({"data": StringType(), "attributes": MapType(StringType(), LongType())}, "t", "cast it to map<string,string>"),
    ],
)
def test_columns_that_cant_be_written_are_named(columns: dict[str, DataType], topic: str | None, why: str) -> None:
    options = {"path": "/x"} if topic is None else {"path": "/x", "topic": topic}
    chosen = sink_options.parse(options, streaming=False)
    with pytest.raises(UsageError, match=why):
        sink_options.check_columns(StructType([StructField(name, kind) for name, kind in columns.items()]), chosen)


# Batches


def test_a_batch_is_written_with_all_its_columns(spark: SparkSession, node: NodeProcess) -> None:
    frame = spark.createDataFrame(
        [("all/1", "i1", "/s", "t", "sub", "text/plain", "urn:x", b"one", {"k": "v"})],
        "topic string, id string, source string, type string, subject string, datacontenttype string, "
        "dataschema string, data binary, attributes map<string,string>",
    ).selectExpr("*", "timestamp'2026-01-02 03:04:05.678Z' as time")
    append(frame, **node.options)
    [event] = node.events("all/1")
    assert (event.id, event.source, event.type, event.subject) == ("i1", "/s", "t", "sub")
    assert (event.datacontenttype, event.dataschema, event.data) == ("text/plain", "urn:x", b"one")
    assert event.time is not None
    assert (event.time.isoformat(), dict(event.extensions)) == ("2026-01-02T03:04:05.678000+00:00", {"k": "v"})


def test_a_transaction_that_was_done_is_not_done_again(
    spark: SparkSession, node: NodeProcess, recwarn: pytest.WarningsRecorder
) -> None:
    transaction = {"txnAppId": "nightly", "txnVersion": "1"}
    for _ in range(2):
        append(numbers(spark, 10), topic="txn/a", **transaction, **node.options)
    append(numbers(spark, 10), topic="txn/b", **transaction, **node.options)  # counts for each topic
    append(numbers(spark, 5), topic="txn/a", **{**transaction, "txnVersion": "2"}, **node.options)
    assert numbers_of(node.events("txn/a")) == sorted([*range(10), *range(5)])
    assert numbers_of(node.events("txn/b")) == list(range(10))
    with pytest.raises(Exception, match=r"(?s)StaleWriter.*epoch 1 is older than its last one, 2"):
        append(numbers(spark, 10), topic="txn/a", **transaction, **node.options)
    append(numbers(spark, 9), topic="txn/a", **{**transaction, "txnVersion": "2"}, **node.options)
    assert "was committed with 5 rows, and came again with another number" in node.log.read_text()
    assert len(node.events("txn/a")) == 15


def test_a_batch_that_fails_leaves_nothing(spark: SparkSession, node: NodeProcess) -> None:
    frame = numbers(spark, 1000, 4).selectExpr("data", "if(data = '900', 'not a uri', '/s') as source")
    with pytest.raises(Exception, match="must be a URI-reference"):
        append(frame, topic="failing", **node.options)
    assert node.events("failing") == []
    # Spark does not wait for the tasks that it kills: what they stage goes when their connections end.
    until(lambda: not list((node.data / "staging").glob("*")), "a stage is left")


def test_a_directory_is_written_to_where_nobody_serves_it(spark: SparkSession, tmp_path: Path) -> None:
    append(numbers(spark, 100), path=str(tmp_path / "log"), topic="made")
    append(numbers(spark, 100), path=str(tmp_path / "log"), topic="made")
    assert numbers_of(events_of(tmp_path / "log", "made")) == sorted([*range(100)] * 2)


def test_a_directory_that_a_node_serves_is_written_to_over_the_node(
    spark: SparkSession, node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match="write through it: option server instead of path"):
        append(numbers(spark, 1), path=str(node.data), topic="made")
    assert node.events("made") == []


# Streams


def test_each_row_is_written_once_over_restarts_and_none_before_its_commit(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    rows = stream(spark, node.data, "restarts/in").selectExpr("data", "id")
    for first in (0, 100, 200):
        node.publish("restarts/in", range(first, first + 100))
        query = drain(rows, tmp_path / "checkpoint", topic="restarts/out", **node.options)
        assert query.lastProgress["numInputRows"] == 100
    drain(rows, tmp_path / "checkpoint", topic="restarts/out", **node.options)
    assert numbers_of(node.events("restarts/out")) == list(range(300))


def test_a_restored_checkpoint_is_refused_or_published_again_and_never_dropped(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    rows = stream(spark, node.data, "stale/in", maxOffsetsPerTrigger=10).selectExpr("data")
    checkpoint, kept = tmp_path / "checkpoint", tmp_path / "kept"
    options = {"topic": "stale/out", **node.options}
    node.publish("stale/in", range(10))
    drain(rows, checkpoint, **options)
    shutil.copytree(checkpoint, kept)
    node.publish("stale/in", range(10, 40))
    drain(rows, checkpoint, **options)
    assert numbers_of(node.events("stale/out")) == list(range(40))

    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    node.publish("stale/in", range(40, 50))
    with pytest.raises(Exception, match=r"(?s)StaleWriter.*epoch \d+ is older than its last one, \d+"):
        drain(rows, checkpoint, **options)
    assert numbers_of(node.events("stale/out")) == list(range(40))

    again = {**options, "onStaleCheckpoint": "republish"}
    drain(rows, checkpoint, **again)
    assert numbers_of(node.events("stale/out")) == sorted([*range(40), *range(10, 50)])
    node.publish("stale/in", range(50, 60))
    drain(rows, checkpoint, **again)
    assert numbers_of(node.events("stale/out")) == sorted([*range(40), *range(10, 60)])


def test_a_copied_checkpoint_goes_on_and_a_new_one_begins_again(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    rows = stream(spark, node.data, "copied/in").selectExpr("data")
    options = {"topic": "copied/out", **node.options}
    node.publish("copied/in", range(10))
    drain(rows, tmp_path / "one", **options)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    node.publish("copied/in", range(10, 20))
    drain(rows, tmp_path / "two", **options)
    assert numbers_of(node.events("copied/out")) == list(range(20))
    # The first one goes on with a batch that was done meanwhile: nothing is written twice.
    drain(rows, tmp_path / "one", **options)
    assert numbers_of(node.events("copied/out")) == list(range(20))
    drain(rows, tmp_path / "three", **options)
    assert numbers_of(node.events("copied/out")) == sorted([*range(20)] * 2)


def test_a_checkpoint_of_a_driver_that_died_before_its_first_batch_can_be_used_by_spark_alone(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    rows = stream(spark, node.data, "early/in").selectExpr("data")
    node.publish("early/in", range(10))
    # What is left of a driver that was killed while Spark wrote down what the first batch is to have.
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.5c0c8d4e-4d6b-4d55-a5b2-9c1f1f2f6f0e.tmp").write_text("v1")
    check = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
    spark.conf.unset(MANAGER)  # our class does not show it the file
    try:
        if spark.version >= "4.3":
            with pytest.raises(Exception, match="should be empty on batch 0"):
                drain(rows, tmp_path / "checkpoint", topic="early/out", **node.options)
        spark.conf.set(check, "false")
        drain(rows, tmp_path / "checkpoint", topic="early/out", **node.options)
    finally:
        spark.conf.unset(check)
        spark.conf.set(MANAGER, OURS)
    drain(rows, tmp_path / "checkpoint", topic="early/out", **node.options)
    assert numbers_of(node.events("early/out")) == list(range(10))


def test_two_writes_of_one_foreach_batch_are_both_done_once(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    def both(frame: DataFrame, batch: int) -> None:
        transaction = {"txnAppId": "both", "txnVersion": str(batch)}
        append(frame, topic="both/a", **transaction, **node.options)
        append(frame.where("cast(cast(data as string) as int) % 2 = 0"), topic="both/b", **transaction, **node.options)
        if batch == 1 and not failed:
            failed.append(batch)
            raise RuntimeError("after both writes")

    failed: list[int] = []
    rows = stream(spark, node.data, "both/in", maxOffsetsPerTrigger=10).selectExpr("data")
    node.publish("both/in", range(30))
    writer = rows.writeStream.foreachBatch(both).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="after both writes"):
        writer.trigger(availableNow=True).start().awaitTermination()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert numbers_of(node.events("both/a")) == list(range(30))
    assert numbers_of(node.events("both/b")) == list(range(0, 30, 2))


def test_many_topics_in_one_batch_come_all_at_once(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> None:
    node.publish("many/in", range(2_000))
    rows = stream(spark, node.data, "many/in").selectExpr(
        "data", "concat('many/out/', cast(cast(data as string) as int) % 1000) as topic"
    )
    drain(rows, tmp_path / "checkpoint", **node.options)
    found = [numbers_of(node.events(f"many/out/{number}")) for number in range(1_000)]
    assert found == [[number, number + 1000] for number in range(1_000)]


def test_a_stream_is_written_to_a_directory_too(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    append(numbers(spark, 50), path=str(log), topic="in")
    rows = stream(spark, log, "in", maxOffsetsPerTrigger=20).selectExpr("data", "id")
    for _ in range(2):
        drain(rows, tmp_path / "checkpoint", path=str(log), topic="out")
    assert numbers_of(events_of(log, "out")) == list(range(50))
