"""A few events of many topics travel with a batch's plan, which is made while Spark writes where the batch ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from echomesh.log import LogReader, TopicLog
from echomesh.log.parquet import compact
from echomesh.spark import lost_events
from echomesh.spark.plan import Part
from echomesh.spark.stream import StreamReader
from pyspark_echomesh import DefaultSource
from tests.log.arrow_support import packed
from tests.log.event_forms import forms
from tests.spark.support import catch_up, expected, made, opened, read, rows, stream
from tests.support.counts import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

MANY = {f"n{k}": k for k in range(40)}  # extensions: more than the reader in the JVM takes


@contextmanager
def running(frame: DataFrame, place: Path) -> Iterator[StreamingQuery]:
    """The stream into Parquet files, as `rows` reads them."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    query = writer.start(str(place / "rows"))
    try:
        yield query
    finally:
        query.stop()


def segment_of(directory: Path, topic: int) -> Path:
    """The only segment of a topic, by its number."""
    (found,) = (directory / "topics" / f"{topic:08d}").glob("*.seg")
    return found


def test_what_is_carried_is_what_python_reads(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    chosen, all_forms = random.Random(5), list(forms())
    columns = ["topic", "offset", "id", "subject", "time", "data", "attributes"]
    with opened(data, duplicate_bytes=0) as log:
        frame = stream(spark, data, "t/*", failOnDataLoss="false").selectExpr(*columns[:-1], "to_json(attributes) as a")
        with running(frame, tmp_path) as query:
            for batch in range(count(8, 60)):
                for topic in chosen.sample(range(150), 90):
                    some = [packed(id=f"{batch}.{i}", data=chosen.randbytes(30)) for i in range(chosen.randint(1, 3))]
                    if chosen.random() < 0.1:
                        some.append(packed(id="odd", **MANY))
                    if chosen.random() < 0.1:
                        some.append(packed(id="large", data=chosen.randbytes(chosen.randint(3000, 30_000))))
                    if chosen.random() < 0.2:
                        some.append(chosen.choice(all_forms))
                    chosen.shuffle(some)
                    log.append_many(f"t/{topic}", some)
                catch_up(query)
    plain = read(spark, data, "t/*", reader="python", failOnDataLoss="false")
    wanted = plain.selectExpr(*columns[:-1], "to_json(attributes) as a").collect()
    assert rows(spark, tmp_path, *columns[:-1], "a") == sorted(map(tuple, wanted), key=lambda row: row[:2])


def carried(partitions: list[Part], ranges: int) -> int:
    """How many of the partition's ranges have their events with them."""
    # Without a path there is nothing else to read.
    return ranges - sum(partition.places.count(b"/topics/") for partition in partitions)


def test_batches_after_the_first_bring_their_events_with_them(data: Path) -> None:
    with opened(data) as log:
        source = DefaultSource({"subscribe": "t/*", "path": str(data), "startingOffsets": "earliest"})
        reader = StreamReader(source.options, source.schema())
        start: dict[str, Any] = reader.initialOffset()
        found = []
        for batch in range(4):
            for topic in range(30):
                log.append_many(f"t/{topic}", made(2, 2 * batch))
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            found.append(carried(reader.partitions(start, end), 30))
            start = end
        reader.stop()
    assert found == [0, 30, 30, 30]


def test_new_segments_are_found_at_once(data: Path) -> None:
    with opened(data, segment_bytes=1 << 12, duplicate_bytes=0) as log:
        source = DefaultSource({"subscribe": "t/*", "path": str(data), "startingOffsets": "earliest"})
        reader = StreamReader(source.options, source.schema())
        start: dict[str, Any] = reader.initialOffset()
        for batch in range(60):
            log.append_many("t/a", made(3, 3 * batch))
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            (part,) = reader.partitions(start, end)
            # Its file is the last one, or the one before when that was begun in the middle of the batch.
            assert carried([part], 1) or any(
                str(path).encode() in part.places for path in sorted((data / "topics").rglob("*.seg"))[-2:]
            )
            start = end
        reader.stop()
        assert len(list((data / "topics").rglob("*.seg"))) > 3


def damage(segment: Path, text: bytes) -> None:
    """Flips a bit of the event that has this text."""
    content = bytearray(segment.read_bytes())
    content[content.index(text)] ^= 4
    segment.write_bytes(content)


def fill(log: TopicLog, batch: int) -> None:
    for topic in range(40):
        log.append_many(f"t/{topic:02d}", [packed(id=f"event {batch} of {topic:02d}", data=b"%d" % batch)])


class Held(StreamReader):
    """Sees nothing new while there is a file `hold` in the data directory."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """As ever, or nothing new."""
        return start if Path(self.options.path or "", "hold").exists() else super().latestOffset(start, limit)


class Holding(DefaultSource):
    """A source whose streams can be held."""

    def streamReader(self, schema: StructType) -> StreamReader:
        """One of these."""
        return Held(self.options, schema)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_damaged_event_among_them_is_reported_with_its_offset(
    spark: SparkSession, data: Path, tmp_path: Path, fails: str
) -> None:
    other = spark.newSession()
    other.dataSource.register(Holding)
    frame = stream(other, data, "t/*", failOnDataLoss=fails).select("topic", "offset", "data")
    with opened(data, duplicate_bytes=0) as log:
        fill(log, 0)
        with running(frame, tmp_path) as query:
            catch_up(query)
            (data / "hold").touch()
            fill(log, 1)
            damage(segment_of(data, 23), b"event 1 of 23")
            (data / "hold").unlink()
            if fails == "true":
                with pytest.raises(Exception, match=r"topic 't/23', offsets 1 to 1"):
                    catch_up(query)
                return
            catch_up(query)
            lost = [lost_events(batch) for batch in query.recentProgress if batch["numInputRows"]]
    assert lost == [0, 1]
    wanted = {(f"t/{topic:02d}", offset, b"%d" % offset) for topic in range(40) for offset in range(2)}
    assert rows(spark, tmp_path) == sorted(wanted - {("t/23", 1, b"1")})


def test_a_batch_that_python_has_to_read_gives_the_columns_that_spark_expects(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    other = spark.newSession()
    other.dataSource.register(Holding)
    frame = stream(other, data).selectExpr("topic", "offset", "data", "to_json(attributes) as a")
    small = {"segment_bytes": 1 << 12, "duplicate_bytes": 0}
    with opened(data, **small) as log:
        log.append_many("a", made(10))
    with running(frame, tmp_path) as query:
        catch_up(query)
        (data / "hold").touch()
        with opened(data, **small) as log:
            for first in range(10, 600, 10):
                log.append_many("a", made(10, first, extensions={"n": first}))
        with LogReader(data) as reader:
            assert compact(reader.topic("a"), min_age_s=0).done
        (data / "hold").unlink()
        catch_up(query)
        with opened(data, **small) as log:
            log.append_many("a", made(10, 600))
            catch_up(query)
    found = rows(spark, tmp_path, "topic", "offset", "data", "a")
    assert [row[:3] for row in found] == sorted(expected("a", range(610)), key=lambda row: row[1])
    assert [row[3] for row in found] == [f'{{"n":"{i - i % 10}"}}' if 10 <= i < 600 else "{}" for i in range(610)]


class Unplanned(StreamReader):
    """Can't plan what has more than ten events."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        """As ever, or an error."""
        if self.answers.hear(end).topics["a"] > 10:
            raise ValueError("more than ten")
        return super().partitions(start, end)


class Refusing(DefaultSource):
    """A source whose plans fail now and then."""

    def streamReader(self, schema: StructType) -> StreamReader:
        """One of these."""
        return Unplanned(self.options, schema)


def test_a_plan_that_fails_while_spark_writes_fails_the_query(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    other = spark.newSession()
    other.dataSource.register(Refusing)
    with opened(data) as log:
        log.append_many("a", made(10))
        with running(stream(other, data), tmp_path) as query:
            catch_up(query)
            log.append_many("a", made(10, 10))
            with pytest.raises(Exception, match="more than ten"):
                catch_up(query)
        with running(stream(spark, data), tmp_path) as query:
            catch_up(query)
    assert rows(spark, tmp_path) == expected("a", range(20))


def test_a_query_is_stopped_while_its_plan_is_made(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    # At any moment: none hangs, and the next one goes on.
    chosen, written = random.Random(3), 0
    with opened(data) as log:
        for _ in range(count(6, 40)):
            with running(stream(spark, data), tmp_path) as query:
                for _ in range(chosen.randint(1, 3)):
                    log.append_many("a", made(5, written))
                    written += 5
                    query.awaitTermination(chosen.uniform(0.02, 0.8))  # type: ignore[arg-type]
        with running(stream(spark, data), tmp_path) as query:
            catch_up(query)
    assert rows(spark, tmp_path) == expected("a", range(written))


def test_a_task_of_this_process_is_a_number_and_not_megabytes(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    # Written and read as Spark does it for a task. It had been megabytes: Java looks for a method by its name, and
    # Janino gives private ones another.
    with opened(data) as log, running(stream(spark, data), tmp_path) as query:
        for batch in range(3):
            for topic in range(50):
                log.append_many(f"t/{topic}", made(10, 10 * batch))
            catch_up(query)
        planned: Any = query._jsq.streamingQuery().lastExecution().executedPlan().collectLeaves().head()
        split = planned.inputPartitions().head()
        utils: Any = spark._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]
        written = utils.serialize(split)
        assert len(written) < 200
        assert utils.deserialize(written, split.getClass().getClassLoader()) == split
