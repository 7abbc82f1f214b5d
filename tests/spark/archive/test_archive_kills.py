"""An archive holds each event once, however often the process that runs it is killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from deltalake import DeltaTable

from echomesh.events import Event
from echomesh.log import TopicLog
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.ready.archive import Options, make
from echomesh.spark.pipelines.runner import RunOptions, run
from echomesh.spark.tables import open_table
from tests.support.counts import count, full_only
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [full_only, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(1800)]

PATIENCE_S = 180.0
ORDER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills it, and all that it has started."""
    own = psutil.Process(process.pid)
    for one in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


def batch(first: int) -> list[Event]:
    """Fifty events: every tenth does not fit, and every fifth comes a second time."""
    events = []
    for at in range(first, first + 50):
        data = b"broken" if at % 10 == 9 else json.dumps({"number": at}).encode()
        events.append(Event(type="made", source="/shop", id=str(at), data=data))
    return events + events[::5]


def commits(path: Path) -> int:
    return len(list((path / "_delta_log").glob("*.json")))


def test_an_archive_that_is_killed_at_random_holds_each_event_once(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    typed, chosen, published = str(tmp_path / "order.json"), random.Random(2), 0
    table, quarantine = data / "tables" / "archive", data / "tables" / "archive-quarantine"
    command = [sys.executable, "-m", "echomesh", "pipeline", "run", "archive", "--data", str(data), "--typed", typed,
               "--distinct", "1 hour", "--every", "100 milliseconds", "--master", "local[2]", "--json"]  # fmt: skip
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
    with TopicLog(data) as log:
        for _ in range(count(1, 20)):
            before = max(1, commits(table))  # the first one makes the table
            with (tmp_path / "said").open("wb") as said:
                process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd=tmp_path)
            until = time.monotonic() + PATIENCE_S
            for step in range(1, chosen.randrange(2, 5)):
                log.append_many(f"shop/{chosen.choice('abc')}", batch(published))
                published += 50
                while commits(table) < before + step:
                    assert process.poll() is None, (tmp_path / "said").read_text()
                    assert time.monotonic() < until, (tmp_path / "said").read_text()
                    time.sleep(0.02)
            log.append_many("shop/d", batch(published))
            published += 50
            time.sleep(chosen.uniform(0.0, 1.0))  # so that kills come anywhere in a batch
            kill(process)
            found = Counter(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())
            assert max(found.values(), default=1) == 1
    run(make(Options(typed=typed, distinct="1 hour")), Place(data=str(data)), RunOptions(once=True))
    good = [str(at) for at in range(published) if at % 10 != 9]
    bad = [str(at) for at in range(published) if at % 10 == 9]
    stored, wrong = DeltaTable(table).to_pyarrow_table(), DeltaTable(quarantine).to_pyarrow_table()
    assert Counter(stored["id"].to_pylist()) == Counter(good)
    assert Counter(wrong["id"].to_pylist()) == Counter(bad)
    assert sorted(row.id for row in open_table(table).read(spark).select("id").collect()) == sorted(good)
