"""Events of a log or an archive once more: all of a range, with new ids, at the pace that was asked for."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echomesh.errors import BadTable, UsageError
from echomesh.events import Event
from echomesh.log import TopicLog
from echomesh.spark.pipelines.replay import archive_rows, log_rows, replay
from echomesh.spark.tables import open_table
from tests.spark.node import events_of
from tests.spark.support import START_NS, Clock, made, opened, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

START_MS = START_NS // 1_000_000


@pytest.fixture
def log(data: Path) -> Path:
    """A log of three topics with events a second apart, 30 of them."""
    clock = Clock()
    with opened(data, clock=clock) as log:
        for at in range(30):
            clock.to(at)
            log.append(f"shop/{'ab'[at % 2]}", made(1, at, subject=f"s{at}", extensions={"region": "eu"})[0])
        clock.to(30)
        log.append("other", made(1, 99)[0])
    return data


def test_a_range_of_a_log_is_published_at_once_with_new_ids(spark: SparkSession, log: Path) -> None:
    rows = log_rows(spark, "shop/**", start_ms=START_MS + 10_000, end_ms=START_MS + 20_000, path=log)
    assert replay(rows, {"path": str(log)}, topic="again", speed=0, run="first") == 10
    found = events_of(log, "again")
    assert sorted(int(event.data or b"") for event in found) == list(range(10, 20))
    for event in found:
        at = int(event.data or b"")
        assert event.extensions == {"region": "eu", "replayof": str(at)}
        assert event.id == f"first-shop/{'ab'[at % 2]}-{at // 2}"
        assert (event.subject, event.source, event.type) == (f"s{at}", "/tests", "made")
    # A second replay of the same is another one, and a replay of a replay names what came before it.
    again = log_rows(spark, "again", path=log)
    assert replay(again, {"path": str(log)}, topic="third", speed=0) == 10
    assert {event.extensions["replayof"] for event in events_of(log, "third")} == {event.id for event in found}


def test_a_range_of_an_archive_is_published_to_the_old_topics(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    open_table(tmp_path / "archive").write(read(spark, log), "query", 0)
    target = tmp_path / "target"
    rows = archive_rows(spark, tmp_path / "archive", "shop/a,other", start_ms=START_MS + 20_000)
    TopicLog(target).close()
    assert replay(rows, {"path": str(target)}, speed=0) == 6
    assert [event.data for event in events_of(target, "shop/a")] == [b"%d" % at for at in range(20, 30, 2)]
    assert [event.data for event in events_of(target, "other")] == [b"99"]
    assert archive_rows(spark, tmp_path / "archive", end_ms=START_MS).count() == 0
    assert archive_rows(spark, tmp_path / "archive").count() == 31


def test_events_come_in_their_order_and_no_faster_than_asked(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    TopicLog(target).close()
    rows = log_rows(spark, "shop/**", path=log)
    before = datetime.now(UTC)
    assert replay(rows, {"path": str(target)}, topic="all", speed=20) == 30
    found = read(spark, target, "all").orderBy("offset").collect()
    assert [int(row.data) for row in found] == list(range(30))
    times = [row.timestamp.replace(tzinfo=UTC) for row in found]
    # They were 29 s apart: at this speed at least 1.45 s, whatever the machine does.
    assert (times[-1] - times[0]).total_seconds() > 1.3
    assert times[0] > before


def test_a_replay_can_be_stopped(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    target, stop = tmp_path / "target", threading.Event()
    TopicLog(target).close()
    stop.set()
    assert replay(log_rows(spark, "shop/**", path=log), {"path": str(target)}, topic="all", stop=stop) == 0


def test_what_can_not_be_replayed_is_said(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="speed is -1"):
        replay(log_rows(spark, "**", path=log), {"path": str(log)}, speed=-1)
    with pytest.raises(BadTable, match="holds no table"):
        archive_rows(spark, tmp_path / "nothing")
    open_table(tmp_path / "other").write(spark.sql("select 1 as a"), "query", 0)
    with pytest.raises(BadTable, match="no archive of topics: it has no column 'topic'"):
        archive_rows(spark, tmp_path / "other")


def test_huge_events_are_replayed(spark: SparkSession, data: Path) -> None:
    with TopicLog(data) as log:
        log.append("big", Event(type="t", source="/s", data=b"x" * 5_000_000))
    for speed in (0, 1):
        assert replay(log_rows(spark, "big", path=data), {"path": str(data)}, topic=f"to/{speed}", speed=speed) == 1
        assert len(events_of(data, f"to/{speed}")[0].data or b"") == 5_000_000
