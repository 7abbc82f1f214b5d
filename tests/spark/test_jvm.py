"""Tasks read segments inside the JVM, and find there what Python would find."""

from __future__ import annotations

import random
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]
import pytest

from echomesh.errors import BadEvent
from echomesh.events import Event
from echomesh.log import LogReader
from echomesh.log.parquet import compact
from tests.log.arrow_support import packed, row
from tests.log.event_forms import UNDAMAGED, alike, damaged, forms
from tests.spark.support import catch_up, drain, expected, inside, made, opened, read, rows, stream
from tests.support.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MANY = 40  # extensions: more than the reader in the JVM takes


def written(directory: Path, events: Iterable[bytes]) -> None:
    """A log with these bytes in the place of events."""
    with opened(directory, duplicate_bytes=0) as log:
        log.append_many("t/1", list(events))


def found(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows in order, but for when they were appended."""
    return sorted(frame.drop("timestamp").toArrow().to_pylist(), key=lambda one: int(one["offset"]))


def judged(events: list[bytes]) -> list[dict[str, Any]]:
    """The same by a plain model, of those that are events."""
    wanted = []
    for offset, data in enumerate(events):
        try:
            wanted.append(
                {name: value for name, value in row(Event.decode(data), offset).items() if name != "timestamp"}
            )
        except BadEvent:
            continue
    return wanted


def test_a_local_log_is_read_inside_the_jvm_unless_python_is_asked_for(spark: SparkSession, data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(100))
        frame, other = read(spark, data), read(spark, data, reader="python")
        assert (inside(frame), inside(other)) == (True, False)
        assert frame.collect() == other.collect()
        with pytest.raises(Exception, match="give auto or python"):
            read(spark, data, reader="java")


def test_all_forms_of_events_are_judged_as_by_the_decoder(spark: SparkSession, data: Path) -> None:
    events = [*forms(), *alike(count(2000, 100_000), random.Random(11))]
    events += [data for each in damaged(count(2000, 100_000)) for data in (each, UNDAMAGED)]
    written(data, events)
    frame = read(spark, data, failOnDataLoss="false")
    assert inside(frame)
    wanted = judged(events)
    assert len(wanted) < len(events)
    assert found(frame) == wanted


def test_events_that_are_parsed_when_they_are_asked_for_are_the_same(spark: SparkSession, data: Path) -> None:
    events = []
    for event in [*forms(), *damaged(count(1000, 50_000)), *alike(count(1000, 50_000), random.Random(11))]:
        try:
            Event.decode(event)
        except BadEvent:
            continue
        events.append(event)
    written(data, events)
    frame = read(spark, data)
    assert inside(frame)
    assert found(frame) == judged(events)
    some = ["offset", "type", "time", "size"]
    pruned = spark.read.format("echomesh").options(subscribe="**", path=str(data))
    table = pruned.schema("offset long, type string, time timestamp, size long").load().toArrow().sort_by("offset")
    assert table.column_names == some
    sizes = [None if one["data"] is None else len(one["data"]) for one in judged(events)]
    assert table.column("size").to_pylist() == sizes
    assert table.column("time").to_pylist() == [one["time"] for one in judged(events)]


def test_times_with_zones_are_those_of_the_decoder(spark: SparkSession, data: Path) -> None:
    chosen, events = random.Random(9), []
    for _ in range(count(500, 20_000)):
        zone = timezone(timedelta(minutes=chosen.randint(-1439, 1439)))
        time = datetime(chosen.randint(2, 9998), 1, 1, tzinfo=zone) + timedelta(
            seconds=chosen.randrange(366 * 86400), microseconds=chosen.randrange(10**6)
        )
        events.append(packed(time=time.isoformat(), ext=msgpack.Timestamp.from_datetime(time)))
    written(data, events)
    assert found(read(spark, data)) == judged(events)


def test_a_record_that_is_no_event_fails_who_asks_for_it(spark: SparkSession, data: Path) -> None:
    events = [packed(id=str(i)) for i in range(3000)]
    events[2000] = b"no event"
    written(data, events)
    frame = read(spark, data)
    assert frame.count() == 3000
    assert frame.where("offset > 1999").select("topic").count() == 1000
    with pytest.raises(Exception, match=r"offset.* 2000"):
        frame.select("id").collect()
    left_out = read(spark, data, failOnDataLoss="false").select("id").collect()
    assert [one.id for one in left_out] == [str(i) for i in range(3000) if i != 2000]


def test_a_topic_whose_events_are_all_odd_is_read_by_python_after_a_first_look(spark: SparkSession, data: Path) -> None:
    names = {f"n{i}": i for i in range(MANY)}
    events = [packed(id=str(i), data=b"x" * 400, **names) for i in range(6000)]
    written(data, events)
    assert found(read(spark, data)) == judged(events)


def test_a_query_that_holds_on_to_strings_gets_the_right_ones(spark: SparkSession, data: Path) -> None:
    # Over many chunks of memory that are used again and again.
    with opened(data) as log:
        log.append_many(
            "a", [Event(type=f"type {i * 7919 % 50_000:05d}", source="/s", id=f"{i:06d}") for i in range(50_000)]
        )
    frame = read(spark, data)
    (ends,) = frame.selectExpr("max(type)", "min(type)", "max_by(id, type)", "min(id)").collect()
    assert tuple(ends) == (
        "type 49999",
        "type 00000",
        f"{next(i for i in range(50_000) if i * 7919 % 50_000 == 49_999):06d}",
        "000000",
    )
    assert frame.selectExpr("count(distinct type)").collect()[0][0] == 50_000
    joined = frame.alias("a").join(frame.alias("b"), "type").where("a.id = b.id").count()
    assert joined == 50_000
    assert [one.id for one in frame.orderBy("type").limit(3).collect()] == [
        f"{i:06d}" for i in sorted(range(50_000), key=lambda i: i * 7919 % 50_000)[:3]
    ]
    cached = frame.select("id", "type").cache()
    assert cached.where("type = 'type 00007'").count() == 1
    cached.unpersist()


def test_a_segment_that_was_converted_behind_the_plan_is_read_by_python(spark: SparkSession, data: Path) -> None:
    with opened(data, segment_bytes=4096, duplicate_bytes=0) as log:
        for first in range(0, 400, 10):
            log.append_many("a", made(10, first))
    frame = read(spark, data)
    assert inside(frame)  # so its partitions are planned, with the places of segments
    with LogReader(data) as reader:
        assert compact(reader.topic("a"), min_age_s=0).done
    assert sorted(int(one.id) for one in frame.collect()) == [*range(400)]


def test_a_file_that_is_another_one_by_now_is_not_believed(spark: SparkSession, data: Path) -> None:
    written(data, [packed(id=str(i)) for i in range(100)])
    frame = read(spark, data)
    assert inside(frame)
    (segment,) = (data / "topics").rglob("*.seg")
    content = bytearray(segment.read_bytes())
    content[8] ^= 1  # the log's id
    segment.write_bytes(content)
    with pytest.raises(Exception, match="offsets 0 to 99"):
        frame.collect()


def test_damage_in_the_middle_is_found(spark: SparkSession, data: Path) -> None:
    written(data, [packed(id=str(i), data=b"x" * 300) for i in range(10_000)])
    (segment,) = (data / "topics").rglob("*.seg")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 4
    segment.write_bytes(content)
    with pytest.raises(Exception, match=r"is damaged|corrupt"):
        read(spark, data).count()
    assert read(spark, data, failOnDataLoss="false").count() == 9999


def test_stages_that_are_segments_are_read_too(spark: SparkSession, data: Path) -> None:
    with opened(data, adopt_bytes=1, duplicate_bytes=0) as log:
        log.append_many("a", made(10))
        stage = log.stage("w", epoch=0, run="r")
        for event in made(5000, 10):
            stage.add("a", event.encode())
        log.commit("w", 0, "r", [stage.close().stage])
        log.append_many("a", made(10, 5010))
        assert list((data / "topics").rglob("*.rows"))
        frame, other = read(spark, data, minPartitions=3), read(spark, data, reader="python")
        assert inside(frame)
        assert sorted(frame.collect()) == sorted(other.collect())
        assert frame.count() == 5020


def test_tasks_that_run_at_once_leave_their_own_offsets_to_python(spark: SparkSession, data: Path) -> None:
    odd = {f"n{k}": k for k in range(MANY)}
    written(data, [packed(id=str(i), **(odd if i % 50 == 0 else {})) for i in range(20_000)])
    for fails in ("true", "false"):
        frame = read(spark, data, minPartitions=8, failOnDataLoss=fails)
        assert inside(frame)
        assert sorted(int(one.id) for one in frame.select("id").collect()) == [*range(20_000)]


def test_one_task_may_read_several_partitions_with_odd_events(spark: SparkSession, tmp_path: Path) -> None:
    odd = [packed(id=str(i), **({f"n{k}": k for k in range(MANY)} if i % 7 == 0 else {})) for i in range(1000)]
    first, second = tmp_path / "first", tmp_path / "second"
    written(first, odd)
    written(second, reversed(odd))
    both = read(spark, first, minPartitions=2).union(read(spark, second, reader="python")).union(read(spark, second))
    assert sorted(int(one.id) for one in both.coalesce(1).collect()) == sorted([*range(1000)] * 3)


def test_a_stream_goes_on_where_the_last_batch_ended(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    with opened(data, segment_bytes=1 << 16) as log:
        for batch in range(3):
            log.append_many("a", made(300, 300 * batch))
            log.append_many("b", made(7, 7 * batch))
            drain(stream(spark, data), tmp_path)
    assert rows(spark, tmp_path) == expected("a", range(900)) + expected("b", range(21))


def test_a_log_that_was_made_anew_is_read_inside_the_jvm_as_well(spark: SparkSession, data: Path) -> None:
    # What was remembered of the old file does not fit the new one, which is read from its index on.
    for size in (10, 200):
        with opened(data, duplicate_bytes=0) as log:
            log.append_many("t/1", [packed(id=str(i), data=bytes(size)) for i in range(50)])
            assert read(spark, data, endingOffsets='{"t/1": 20}').count() == 20
            frame = read(spark, data, startingOffsets='{"t/1": 30}')
            assert inside(frame)
            assert [one.id for one in frame.orderBy("offset").collect()] == [str(i) for i in range(30, 50)]
        shutil.rmtree(data)


def test_segments_that_are_begun_while_a_stream_runs_are_found(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    with opened(data, segment_bytes=1 << 13) as log:
        log.append_many("a", made(40))
        frame = stream(spark, data).select("topic", "offset", "data")
        writer = frame.writeStream.format("memory").queryName("rolled")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        for first in range(40, 400, 40):
            catch_up(query)
            log.append_many("a", made(40, first))
            log.append_many(f"new/{first}", made(3))
        catch_up(query)
        query.stop()
    assert len(list((data / "topics").rglob("*.seg"))) > 12
    wanted = [*expected("a", range(400))]
    for first in range(40, 400, 40):
        wanted += expected(f"new/{first}", range(3))
    assert sorted(tuple(row) for row in spark.table("rolled").collect()) == sorted(wanted)
