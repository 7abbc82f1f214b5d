"""Streams through real Spark: offsets, resumption, limits, new topics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from echomesh.events import Event
from echomesh.log import LogReader
from tests.spark.support import START_NS, Clock, catch_up, counts, drain, expected, made, opened, rows, source, stream
from tests.support.counts import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(100))
        drain(stream(spark, data), tmp_path)
        log.append_many("a", made(50, 100))
        query = drain(stream(spark, data), tmp_path)
        assert counts(query) == [50]
        assert rows(spark, tmp_path) == expected("a", range(150))
        assert source(query)["endOffset"] == {"log": log.log_id.hex(), "topics": {"a": 150}, "events": 50}


def test_a_running_query_sees_events_and_topics_as_they_come(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
        writer = stream(spark, data).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.start(str(tmp_path / "rows"))
        try:
            catch_up(query)
            log.append_many("a", made(10, 10))
            log.append_many("b/c", made(5))
            catch_up(query)
            log.append_many("b/c", made(5, 5))
            catch_up(query)
        finally:
            query.stop()
    assert rows(spark, tmp_path) == expected("a", range(20)) + expected("b/c", range(10))


def test_no_batch_has_more_rows_than_were_allowed(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    with opened(data) as log:
        for name in ("a", "b"):
            log.append_many(name, made(500))  # all of them at one time
    query = drain(stream(spark, data, maxOffsetsPerTrigger=300), tmp_path)
    assert all(number <= 300 for number in counts(query))
    assert len(counts(query)) == 4
    assert rows(spark, tmp_path) == expected("a", range(500)) + expected("b", range(500))


def test_catching_up_with_a_watermark_loses_nothing_as_late(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    clock = Clock()
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START_NS // 1000)
    with opened(data, clock=clock) as log:
        for second in range(54):
            clock.to(second * 10)
            time = start + timedelta(seconds=second * 10)
            for topic, each in (("busy", 9), ("calm", 1)):
                log.append_many(
                    topic, [Event(type="t", source="/s", id=f"{second}-{i}", time=time) for i in range(each)]
                )
    windows = (
        stream(spark, data, maxOffsetsPerTrigger=95)
        .withWatermark("time", "30 seconds")
        .groupBy(F.window("time", "1 minute"), "topic")
        .count()
        .select("topic", "count")
    )
    query = drain(windows, tmp_path)
    assert len(counts(query)) > 5
    dropped = sum(
        state["numRowsDroppedByWatermark"] for batch in query.recentProgress for state in batch["stateOperators"]
    )
    assert dropped == 0
    # The windows that the watermark has closed are whole; the last ones are still open.
    found = rows(spark, tmp_path, "topic", "count")
    assert set(found) == {("busy", 54), ("calm", 6)}
    assert len(found) >= 2 * 7


def test_ten_thousand_topics_are_read_by_a_few_tasks(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    topics = count(1000, 10_000)
    with opened(data, background=False, open_segments=64) as log:
        for i in range(topics):
            log.create(f"t/{i:05}", level="os")
            log.append_many(f"t/{i:05}", made(2))
    query = drain(stream(spark, data, "t/*"), tmp_path)
    assert counts(query) == [2 * topics]
    found = rows(spark, tmp_path, "topic", "offset")
    assert found == [(f"t/{i:05}", offset) for i in range(topics) for offset in range(2)]


def test_millions_of_events_come_row_for_row(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    number = count(100_000, 2_000_000)
    with opened(data, segment_bytes=8 << 20) as log:
        log.create("a", level="os")
        for first in range(0, number, 50_000):
            log.append_many("a", made(min(50_000, number - first), first))
    query = drain(stream(spark, data, maxBytesPerTrigger="4m" if number < 200_000 else "64m"), tmp_path)
    assert sum(counts(query)) == number
    assert len(counts(query)) > 2
    found = spark.read.parquet(str(tmp_path / "rows"))
    wrong = found.where("cast(data as string) != cast(offset as string) or id != cast(offset as string)")
    assert wrong.count() == 0
    assert found.selectExpr("count(*)", "count(distinct offset)", "min(offset)", "max(offset)").collect() == [
        (number, number, 0, number - 1)
    ]
    with LogReader(data) as reader:
        assert reader.topic("a").end == number


def test_a_stream_refuses_the_options_of_a_batch(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    opened(data).close()
    with pytest.raises(Exception, match="a stream has no end"):
        drain(stream(spark, data, endingOffsets="latest"), tmp_path)
