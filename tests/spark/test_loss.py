"""What the log has not got any more: the query fails with the exact range, or goes on and says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echomesh.log import LogReader, TopicLog
from echomesh.log.parquet import compact
from echomesh.spark import lost_events
from tests.spark.support import Clock, counts, drain, expected, made, opened, read, rows, source, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def small(directory: Path, clock: Clock, **options: object) -> TopicLog:
    """A log with many small segments, which keeps as little as it may when it is told to."""
    return opened(directory, segment_bytes=2048, background=False, duplicate_bytes=0, clock=clock, **options)


def removed(directory: Path, clock: Clock) -> int:
    """Removes all but the last segment; the first offset that is left."""
    with small(directory, clock, retention_bytes=1) as log:
        log.core.retain()
        return log.reader().topic("a").earliest


def test_retention_that_overtakes_a_query_fails_it_with_the_range(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    clock = Clock()
    with small(data, clock) as log:
        log.append_many("a", made(10))
    drain(stream(spark, data), tmp_path)
    with small(data, clock) as log:
        for first in range(10, 200, 10):
            log.append_many("a", made(10, first))
    earliest = removed(data, clock)
    assert earliest > 10
    with pytest.raises(Exception, match="they were removed before they were read") as failure:
        drain(stream(spark, data), tmp_path)
    assert f"topic 'a', offsets 10 to {earliest - 1}" in str(failure.value)

    query = drain(stream(spark, data, failOnDataLoss="false"), tmp_path)
    assert rows(spark, tmp_path) == expected("a", [*range(10), *range(earliest, 200)])
    assert source(query)["latestOffset"]["lost"] == earliest - 10
    assert lost_events(query.lastProgress or {}) == earliest - 10


def test_segments_that_become_parquet_are_read_as_before(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    clock = Clock()
    with small(data, clock) as log:
        for first in range(0, 100, 10):
            log.append_many("a", made(10, first))
        drain(stream(spark, data, maxOffsetsPerTrigger=35), tmp_path, availableNow=True)
        for first in range(100, 200, 10):
            log.append_many("a", made(10, first))
    opened(data, background=False).close()  # its checkpoint has the segments behind it
    with LogReader(data) as reader:
        assert len(compact(reader.topic("a"), min_age_s=0, clock=lambda: 1 << 62).done) > 5
    drain(stream(spark, data, maxOffsetsPerTrigger=35), tmp_path)
    assert rows(spark, tmp_path) == expected("a", range(200))
    assert [row.offset for row in read(spark, data).orderBy("offset").select("offset").collect()] == list(range(200))


def test_a_log_that_was_made_anew_is_not_mistaken_for_the_old_one(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    with opened(data) as log:
        log.append_many("a", made(100))
        before = log.log_id.hex()
    drain(stream(spark, data), tmp_path)
    shutil.rmtree(data)
    with opened(data) as log:
        log.append_many("a", made(150, 1000))
    with pytest.raises(Exception, match=f"the checkpoint is of the log {before}"):
        drain(stream(spark, data), tmp_path)
    drain(stream(spark, data, failOnDataLoss="false"), tmp_path)
    found = rows(spark, tmp_path)
    assert len(found) == 250
    assert sum(body == b"%d" % (1000 + offset) for _, offset, body in found) == 150


def test_an_end_that_has_gone_back_is_loss(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(50))
    shutil.copytree(data, tmp_path / "copy")
    with opened(data) as log:
        log.append_many("a", made(50, 50))
    drain(stream(spark, data), tmp_path)
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "copy", data)
    with pytest.raises(Exception, match="the topic ends at 50") as failure:
        drain(stream(spark, data), tmp_path)
    assert "offsets 50 to 99" in str(failure.value)


def test_a_corrupt_range_fails_the_query_or_is_left_out(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    clock = Clock()
    with small(data, clock) as log:
        for first in range(0, 200, 10):
            log.append_many("a", made(10, first))
        with log.reader() as reader:
            topic = reader.topic("a")
            damaged = sorted(Path(topic.directory).glob("*.seg"))[2]
    raw = bytearray(damaged.read_bytes())
    raw[700] ^= 0xFF
    damaged.write_bytes(raw)
    with pytest.raises(Exception, match="are corrupt") as failure:
        drain(stream(spark, data), tmp_path)
    assert "topic 'a', offsets" in str(failure.value)
    query = drain(stream(spark, data, failOnDataLoss="false"), tmp_path)
    found = [offset for (offset,) in rows(spark, tmp_path, "offset")]
    missing = sorted(set(range(200)) - set(found))
    assert 1 <= len(missing) < 20
    assert missing == list(range(missing[0], missing[-1] + 1))
    assert f"offsets {missing[0]} to {missing[-1]}" in str(failure.value)
    assert sum(counts(query)) == 200 - len(missing)
    assert [lost_events(batch) for batch in query.recentProgress if batch["numInputRows"]] == [len(missing)]


def test_sources_of_other_kinds_and_batches_without_events_lost_nothing() -> None:
    end = '{"log": "ab", "topics": {"a": 9}, "events": 9}'
    ours = {"startOffset": None, "endOffset": end, "numInputRows": 7}
    none = {"startOffset": end, "endOffset": end, "numInputRows": 0}
    twice = {"startOffset": None, "endOffset": end, "numInputRows": 18}
    rate = {"startOffset": "11", "endOffset": "12", "numInputRows": 5}
    assert lost_events({"sources": [ours, none, twice, rate]}) == 2


def test_a_batch_from_offsets_that_are_gone_says_so(spark: SparkSession, data: Path) -> None:
    clock = Clock()
    with small(data, clock) as log:
        for first in range(0, 100, 10):
            log.append_many("a", made(10, first))
    earliest = removed(data, clock)
    with pytest.raises(Exception, match="they are gone"):
        read(spark, data, startingOffsets='{"a": 1}').count()
    assert read(spark, data, startingOffsets='{"a": 1}', failOnDataLoss="false").count() == 100 - earliest
    with pytest.raises(Exception, match="the topic ends at 100"):
        read(spark, data, endingOffsets='{"a": 101}').count()
