"""`windows`: the figures of every window, beside those that plain Python finds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from echomesh.errors import UsageError
from echomesh.events import Event
from echomesh.log import TopicLog
from echomesh.spark.pipelines.ready import windows
from tests.spark.ready import expected
from tests.spark.ready.city import City, events_in, micros
from tests.spark.ready.running import WATERMARK_S, WINDOW_S, finish, in_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def published(data: Path) -> dict[expected.Key, dict[str, Any]]:
    """What is in mesh/stats/**, by topic and window."""
    found: dict[expected.Key, dict[str, Any]] = {}
    for name, events in events_in(data, "mesh/stats/").items():
        for event in events:
            assert name == f"mesh/stats/{event.subject}"
            start = int(event.id.split("/")[0]) * 1000
            assert (event.subject, start) not in found
            found[str(event.subject), start] = event.data
    return found


def test_windows_have_the_figures_of_every_event_and_each_late_one(spark: SparkSession, city: City) -> None:
    finish(in_batches(windows.make(windows.Options(window="10 seconds", watermark="10 seconds"))), city.data)

    wanted = expected.windows(city.seen, WINDOW_S * 1_000_000, WATERMARK_S * 1_000_000)
    rows = {
        (row["topic"], micros(row["window_start"])): row for row in expected.table(city.data / "tables" / "windows")
    }
    assert rows.keys() == wanted.keys()
    told = published(city.data)
    assert told.keys() == wanted.keys()
    for key, figures in wanted.items():
        expected.same_figures(rows[key], figures)
        expected.same_figures(told[key], figures)
        assert rows[key]["events_per_s"] == figures["events"] / WINDOW_S
    assert sum(figures["late"] for figures in wanted.values()) > 50
    counted = sum(row["events"] + row["late"] for row in rows.values())
    assert counted == len(city.seen) - 1  # the window of the last event is still open


def test_windows_do_not_count_what_they_publish(spark: SparkSession, city: City) -> None:
    pipeline = windows.make(windows.Options())
    finish(pipeline, city.data)
    first = published(city.data)
    with TopicLog(city.data) as log:
        log.append_many("city/clock", [Event(type="tick", source="/city", id="later")])
    finish(pipeline, city.data)
    finish(pipeline, city.data)

    again = published(city.data)
    assert first.items() <= again.items()
    assert {topic for topic, _ in again} == {"sensors/north", "sensors/south", "shops/orders", "city/clock"}


def test_windows_of_a_table_alone_publish_nothing(spark: SparkSession, city: City) -> None:
    finish(windows.make(windows.Options(topics="shops/**", publish=False, table="shops")), city.data)
    assert {row["topic"] for row in expected.table(city.data / "tables" / "shops")} == {"shops/orders"}
    assert not events_in(city.data, "mesh/")


@pytest.mark.parametrize(("option", "value"), [("window", "soon"), ("watermark", "0 seconds")])
def test_windows_refuse_a_span_that_is_none(option: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"--{option}"):
        windows.make(windows.Options(**{option: value}))  # type: ignore[arg-type]
