"""Ready pipelines whose driver is killed: what they derive is there exactly once all the same."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.ready import expected
from tests.spark.ready.city import City, events_in, micros
from tests.spark.ready.running import WATERMARK_S, WINDOW_S, all_three, finish
from tests.spark.ready.test_alerts import check as check_alerts
from tests.spark.ready.test_latest import of_readers, wanted
from tests.spark.ready.test_windows import published
from tests.support.counts import count, full_only
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [full_only, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(3600)]

PATIENCE_S = 180.0


def killed(city: City, place: Path, batches: int, later_s: float) -> None:
    """Starts a driver, and kills it so much later than that it has done so many batches more."""
    pids = place / "pids"
    pids.unlink(missing_ok=True)
    before = committed(city.data)
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    with (place / "errors").open("a") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.ready.driver", str(city.data), str(pids)],
            env=dict(os.environ, PYTHONPATH=paths), stdout=errors, stderr=errors, cwd=ROOT,
        )  # fmt: skip
    deadline = time.monotonic() + PATIENCE_S
    while driver.poll() is None and time.monotonic() < deadline:
        if pids.exists() and committed(city.data) >= before + batches:
            time.sleep(later_s)  # anywhere in what comes next
            break
        time.sleep(0.05)
    for pid in json.loads(pids.read_text()) if pids.exists() else [driver.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.wait()


def committed(data: Path) -> int:
    """How many batches all pipelines have done."""
    return len(list(data.glob("pipelines/*/checkpoint/*/commits/[0-9]*")))


def test_what_is_derived_is_there_once_however_often_the_driver_is_killed(
    spark: SparkSession, city: City, tmp_path: Path
) -> None:
    chance = random.Random(6)
    for _ in range(count(1, 20)):
        killed(city, tmp_path, chance.randrange(3), chance.uniform(0.0, 3.0))
    for pipeline in all_three():
        finish(pipeline, city.data)

    figures = expected.windows(city.seen, WINDOW_S * 1_000_000, WATERMARK_S * 1_000_000)
    rows = expected.table(city.data / "tables" / "windows")
    assert sorted((row["topic"], micros(row["window_start"])) for row in rows) == sorted(figures)
    told = published(city.data)
    for row in rows:
        key = row["topic"], micros(row["window_start"])
        expected.same_figures(row, figures[key])
        expected.same_figures(told[key], figures[key])
    last = expected.latest(
        (one for one in city.seen if one.topic.startswith("sensors/")), lambda one: one.event.subject
    )
    for found in of_readers(spark, city.data / "tables" / "latest"):
        assert found == wanted(last)
    for events in events_in(city.data, "latest/").values():
        assert len({event.id for event in events}) == len(events)
    check_alerts(city)
