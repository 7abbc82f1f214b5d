"""How far each batch of a stream goes: asked of the reader itself, on real logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from echomesh.errors import BadOption, DataLoss
from echomesh.events import Event
from echomesh.spark.columns import SOURCE_SCHEMA
from echomesh.spark.stream import StreamReader
from tests.spark.support import START_NS, Clock, made, opened

START_MS = START_NS // 1_000_000


def reader(directory: Path, subscribe: str = "**", **options: object) -> StreamReader:
    texts = {key: str(value) for key, value in options.items()}
    return StreamReader({"subscribe": subscribe, "path": str(directory), **texts}, SOURCE_SCHEMA)


def steps(stream: StreamReader, start: dict[str, Any] | None = None) -> list[dict[str, int]]:
    """How many events each batch has of each topic, from the beginning up to the end."""
    found = []
    start = start or stream.initialOffset()
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        before, after = start["topics"], end["topics"]
        found.append({name: after[name] - before.get(name, 0) for name in after if after[name] > before.get(name, 0)})
        planned = sum(r.until - r.start for part in stream.partitions(start, end) for r in part.ranges)
        assert planned == sum(found[-1].values())
        start = end
    return found


@pytest.mark.parametrize(
    ("options", "a", "b"),
    [
        ({}, 15, 3),
        ({"startingOffsets": "latest"}, 15, 3),
        ({"startingOffsets": "Earliest"}, 0, 0),
        ({"startingOffsets": json.dumps({"a": 7, "b": "latest"})}, 7, 3),
        ({"startingOffsets": json.dumps({"a": 7})}, 7, 0),
        ({"startingTimestamp": START_MS + 4000}, 8, 3),
        ({"startingTimestamp": START_MS + 4001}, 10, 3),
        ({"startingTimestamp": "2100-01-01"}, 15, 3),
    ],
)
def test_a_stream_begins_where_the_options_say(data: Path, options: dict[str, Any], a: int, b: int) -> None:
    clock = Clock()
    with opened(data, clock=clock) as log:
        log.append_many("b", made(3))
        for second in range(10):
            clock.to(second)
            log.append_many("a", made(2 if second < 5 else 1, 2 * second))
    assert reader(data, **options).initialOffset()["topics"] == {"a": a, "b": b}


def test_asking_again_while_nothing_is_new_measures_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
        stream = reader(data, startingOffsets="earliest")
        start, measured, real = stream.initialOffset(), list[int](), StreamReader._latest

        def latest(self: StreamReader, *arguments: Any) -> Any:
            measured.append(1)
            return real(self, *arguments)

        monkeypatch.setattr(StreamReader, "_latest", latest)
        ends = [stream.latestOffset(json.loads(json.dumps(start)), ReadMaxBytes(1000)) for _ in range(3)]
        assert ends == [ends[0]] * 3
        assert ends[0]["topics"] != start["topics"]
        assert len(measured) == 1
        stream.latestOffset(start, ReadMaxRows(3))  # which may change the answer
        limit = ReadAllAvailable()
        end = stream.latestOffset(start, limit)
        assert (end["topics"], len(measured)) == ({"a": 10}, 3)
        assert stream.latestOffset(end, limit) == stream.latestOffset(end, limit) == end
        log.append_many("b", made(1))
        assert stream.latestOffset(end, limit)["topics"] == {"a": 10, "b": 1}
        stream.prepareForTriggerAvailableNow()
        log.append_many("a", made(1, 10))
        assert stream.latestOffset(end, limit)["topics"] == {"a": 10, "b": 1}
        stream.stop()


def test_a_topic_that_comes_later_is_read_from_its_first_event(data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
        stream = reader(data)
        start = stream.initialOffset()
        log.create("b")
        assert stream.latestOffset(start, ReadAllAvailable()) == start  # nothing to read there yet
        log.append_many("b", made(4))
        assert steps(stream, start) == [{"b": 4}]
        stream.stop()


def test_limits_bound_rows_and_bytes_and_let_one_event_pass(data: Path) -> None:
    with opened(data) as log:
        for i in range(100):
            log.append("a", Event(type="t", source="/s", id=str(i), data=bytes(10_000)))
    start = {"startingOffsets": "earliest"}
    by_bytes = steps(reader(data, maxBytesPerTrigger="300k", **start))
    assert all(25 <= step["a"] <= 30 for step in by_bytes[:-1])
    both = steps(reader(data, maxBytesPerTrigger="300k", maxOffsetsPerTrigger=7, **start))
    assert max(step["a"] for step in both) == 7
    assert steps(reader(data, maxBytesPerTrigger=1, **start)) == [{"a": 1}] * 100


def test_spark_may_ask_for_all_or_for_less(data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(100))
    stream = reader(data, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable())["topics"] == {"a": 100}
    assert stream.latestOffset(start, ReadMaxRows(3))["topics"] == {"a": 3}
    assert 0 < stream.latestOffset(start, ReadMaxBytes(2000))["topics"]["a"] <= 10
    assert stream.getDefaultReadLimit() == ReadMaxRows(10)
    assert reader(data).getDefaultReadLimit() == ReadMaxBytes(1 << 30)


def test_all_topics_are_cut_at_one_append_time(data: Path) -> None:
    clock = Clock()
    with opened(data, clock=clock) as log:
        for second in range(100):
            clock.to(second)
            log.append_many("busy", made(9, 9 * second))
            log.append_many("calm", made(1, second))
    found = steps(reader(data, startingOffsets="earliest", maxOffsetsPerTrigger=50))
    assert all(step == {"busy": 45, "calm": 5} for step in found)
    assert len(found) == 20


def test_events_of_one_moment_are_shared_out_over_the_batches(data: Path) -> None:
    with opened(data, clock=Clock()) as log:
        log.append_many("busy", made(900))
        log.append_many("calm", made(100))
    found = steps(reader(data, startingOffsets="earliest", maxOffsetsPerTrigger=100))
    assert found == [{"busy": 90, "calm": 10}] * 10


def test_a_query_that_takes_what_there_is_now_ends_there(data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
        stream = reader(data, startingOffsets="earliest")
        start = stream.initialOffset()
        stream.prepareForTriggerAvailableNow()
        log.append_many("a", made(10, 10))
        log.append_many("b", made(10))
        assert steps(stream, start) == [{"a": 10}]
        assert stream.reportLatestOffset()["topics"] == {"a": 20, "b": 10}
        stream.stop()


def test_a_topic_that_is_no_longer_subscribed_keeps_its_place(data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
        log.append_many("b", made(10))
        both = reader(data, "a,b").initialOffset()
        log.append_many("a", made(1, 10))
        log.append_many("b", made(2, 10))
        only = reader(data, "a").latestOffset(both, ReadAllAvailable())
        assert only["topics"] == {"a": 11, "b": 10}
        assert steps(reader(data, "a,b"), only) == [{"b": 2}]


def test_a_checkpoint_of_something_else_is_refused(data: Path) -> None:
    opened(data).close()
    with pytest.raises(DataLoss, match="no offsets of echomesh"):
        reader(data).latestOffset({"orders": {"0": 12}}, ReadAllAvailable())
    with pytest.raises(BadOption, match="a stream has no end"):
        reader(data, endingOffsets="latest")


def test_a_topic_that_is_gone_is_loss(data: Path, tmp_path: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
        start = {"log": log.log_id.hex(), "topics": {"a": 10, "z": 5}}
    with pytest.raises(DataLoss, match="offsets 0 to 5: the topic is gone"):
        reader(data).latestOffset(start, ReadAllAvailable())
    stream = reader(data, failOnDataLoss=False)
    assert stream.latestOffset(start, ReadAllAvailable())["topics"] == {"a": 10}
    assert stream.partitions(start, {**start, "log": "0" * 32}) == []


def test_tasks_are_planned_from_what_was_measured_or_anew_and_both_are_the_same(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(data) as log:
        log.append_many("a", made(50))
        log.append_many("b", made(20))
        stream = reader(data, startingOffsets="earliest", maxOffsetsPerTrigger=30)
        start = stream.initialOffset()
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        again = reader(data, startingOffsets="earliest")  # as after a restart, from the checkpoint
        assert [part.ranges for part in again.partitions(start, end)] == [
            part.ranges for part in stream.partitions(start, end)
        ]
        monkeypatch.setattr(stream, "_bounds", lambda: pytest.fail("it looked again"))
        assert sum(one.until - one.start for part in stream.partitions(start, end) for one in part.ranges) == 30
