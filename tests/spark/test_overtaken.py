"""A task that is in the middle of its range while the log is tidied up: segments become Parquet, or are removed."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from echomesh.errors import DataLoss
from echomesh.events import Event
from echomesh.log import LogReader
from echomesh.log.parquet import compact
from echomesh.spark import lost_events, options, remote, starts
from echomesh.spark.plan import Part, parts
from echomesh.spark.source import reach, read
from tests.spark.node import NodeProcess
from tests.spark.support import Clock, drain, opened, rows, stream
from tests.support.counts import full_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

NUMBER = 6_000
KEPT = {"segment_bytes": 1 << 20, "duplicate_bytes": 0, "background": False}
PATIENCE_S = 500.0

Tidy = Callable[[Path], int]


@pytest.fixture
def log(data: Path) -> Path:
    """Twelve segments of a topic, each as large as a batch of a task."""
    with opened(data, clock=Clock(), **KEPT) as log:
        for first in range(0, NUMBER, 100):
            events = [Event(type="t", source="/s", id=str(i), data=b"%d " % i * 400) for i in range(first, first + 100)]
            log.append_many("a", events)
    opened(data, **KEPT).close()  # its checkpoint has the segments behind it
    return data


def convert(data: Path) -> int:
    """All sealed segments become Parquet; the earliest offset."""
    with LogReader(data) as reader:
        topic = reader.topic("a")
        assert len(compact(topic, min_age_s=0, clock=lambda: 1 << 62).done) > 5
        return topic.earliest


def remove(data: Path) -> int:
    """All but the last segment go; the earliest offset."""
    with opened(data, clock=Clock(), retention_bytes=1, **KEPT) as log:
        log.core.retain()
        return log.reader().topic("a").earliest


def planned(found: options.SourceOptions) -> list[Part]:
    way = reach(found)
    try:
        return parts(way, found, starts.batch(way, found), {"offset": True})
    finally:
        way.close()


def overtaken(found: options.SourceOptions, tidy: Callable[[], int]) -> tuple[list[int], int]:
    """The offsets that a task reads when this comes after its first batch; and the earliest then."""
    (part,) = planned(found)
    task = read(part)
    batches = [next(task)]
    earliest = tidy()
    batches.extend(task)
    offsets: list[Any] = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    return offsets, earliest


def chosen(data: Path, fail: bool = True) -> options.SourceOptions:
    given = {"subscribe": "a", "path": str(data), "failOnDataLoss": str(fail)}
    return options.parse(given)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One task for all, which gives its rows in many batches, and fetches little ahead."""
    monkeypatch.setattr("echomesh.spark.plan.LEAST_BYTES", 1 << 40)
    monkeypatch.setattr("echomesh.spark.source.BATCH_BYTES", 4096)
    monkeypatch.setattr("echomesh.spark.remote.FETCH_BYTES", 1 << 18)
    yield
    while remote._sessions:
        remote._sessions.popitem()[1].close()


def test_a_task_goes_on_in_the_parquet_of_what_it_was_reading(log: Path) -> None:
    found, _ = overtaken(chosen(log), lambda: convert(log))
    assert found == list(range(NUMBER))


def test_a_task_whose_segments_are_removed_names_them(log: Path) -> None:
    with pytest.raises(DataLoss, match="were removed by retention") as failure:
        overtaken(chosen(log), lambda: remove(log))
    assert 0 < failure.value.first < failure.value.last < NUMBER


def test_a_task_may_go_on_behind_what_was_removed(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="echomesh.spark"):
        found, earliest = overtaken(chosen(log, fail=False), lambda: remove(log))
    check_gap(found, earliest, caplog.text)


def check_gap(found: list[int], earliest: int, said: str) -> None:
    missing = sorted(set(range(NUMBER)) - set(found))
    assert found == sorted(found)
    assert missing == list(range(missing[0], earliest))
    assert f"{len(missing)} events lost: topic 'a', offsets {missing[0]} to {missing[-1]}" in said


def test_a_task_that_fetches_is_overtaken_too(log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with NodeProcess(tmp_path / "node", data=log) as node:

        def removed() -> int:
            node.stop()
            earliest = remove(log)
            node.start()
            return earliest

        given = {"subscribe": "a", **node.options}
        found, _ = overtaken(options.parse(given), lambda: convert(log))
        assert found == list(range(NUMBER))
        with caplog.at_level(logging.WARNING, logger="echomesh.spark"):
            check_gap(*overtaken(options.parse({**given, "failOnDataLoss": "false"}), removed), caplog.text)


def test_a_task_that_fetches_names_what_was_removed(log: Path, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", data=log) as node:

        def removed() -> int:
            node.stop()
            earliest = remove(log)
            node.start()
            return earliest

        with pytest.raises(DataLoss, match="were removed by retention") as failure:
            overtaken(options.parse({"subscribe": "a", **node.options}), removed)
        assert 0 < failure.value.first < failure.value.last < NUMBER


class Gate:
    """Lets a query come to the middle of a batch, and waits there."""

    def __init__(self, place: Path) -> None:
        self.reached = place / "reached"
        self.opened = place / "opened"

    def inside(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """What the rows go through."""
        reached, opened = str(self.reached), str(self.opened)

        def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                Path(reached).touch()
                while not Path(opened).exists():
                    time.sleep(0.01)
                yield batch

        return through

    def wait(self) -> None:
        """Until the query is there."""
        until = time.monotonic() + PATIENCE_S
        while not self.reached.exists():
            assert time.monotonic() < until
            time.sleep(0.01)


def gated(spark: SparkSession, log: Path, place: Path, tidy: Tidy, **given: Any) -> tuple[StreamingQuery, int]:
    """Drains the topic; this is done to the log while the first rows are held up, and with them the last tasks."""
    gate, ended = Gate(place), []
    frame = stream(spark, log, "a", minPartitions=2 * len(os.sched_getaffinity(0)), **given)
    frame = frame.mapInArrow(gate.inside(), frame.schema)
    query = threading.Thread(target=lambda: ended.append(_drained(frame, place)))
    query.start()
    try:
        gate.wait()
        earliest = tidy(log)
    finally:
        gate.opened.touch()
        query.join()
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0], earliest


def _drained(frame: Any, place: Path) -> Any:
    try:
        return drain(frame, place)
    except Exception as error:
        return error


@full_only
def test_a_query_notices_nothing_when_its_segments_become_parquet(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    query, _ = gated(spark, log, tmp_path, convert)
    assert [offset for (offset,) in rows(spark, tmp_path, "offset")] == list(range(NUMBER))
    assert lost_events(query.lastProgress or {}) == 0


def test_a_query_fails_or_counts_what_its_tasks_do_not_find(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(log, copy)
    for place in ("fails", "counts"):
        (tmp_path / place).mkdir()
    with pytest.raises(Exception, match=r"(?s)DataLoss.*offsets \d+ to \d+.*were removed by retention"):
        gated(spark, log, tmp_path / "fails", remove)
    query, earliest = gated(spark, copy, tmp_path / "counts", remove, failOnDataLoss="false")
    found = [offset for (offset,) in rows(spark, tmp_path / "counts", "offset")]
    missing = sorted(set(range(NUMBER)) - set(found))
    assert found == sorted(set(found))
    assert found[-1] == NUMBER - 1
    assert missing
    assert missing[-1] == earliest - 1
    assert lost_events(query.lastProgress or {}) == len(missing)
