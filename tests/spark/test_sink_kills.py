"""Each row exactly once, whatever is killed: drivers, workers, the node; and whoever comes late."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from echomesh.errors import FencedWriter, StageMissing
from echomesh.mesh.bodies import Commit, CommittedStages, Stage, Staged
from echomesh.mesh.codes import Command
from echomesh.mesh.direct import Direct
from echomesh.native.log_record import encode
from tests.mesh.support import an_event
from tests.spark.node import PASSWORD, NodeProcess, numbers_of
from tests.spark.support import stream
from tests.support.counts import count, full_only
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(3600)]

PATIENCE_S = 500.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A server."""
    with NodeProcess(tmp_path / "node") as started:
        yield started


class Drivers:
    """Drivers of one query, one after the other or at the same time."""

    def __init__(self, node: NodeProcess, place: Path) -> None:
        self.node = node
        self.place = place
        self.place.mkdir()
        self.number = 0

    def start(self, kill: str = "", **wanted: Any) -> subprocess.Popen[bytes]:
        """A driver that runs."""
        self.number += 1
        own = self.place / str(self.number)
        own.mkdir()
        source = {"subscribe": "in", "path": str(self.node.data), "maxOffsetsPerTrigger": "100"}
        asked = {
            "source": source,
            "sink": {"topic": "out", **self.node.options},
            "checkpoint": str(self.place / "checkpoint"),
            "place": str(own),
            "kill": kill,
            **wanted,
        }
        paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        with (own / "errors").open("w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", json.dumps(asked)],
                env=dict(os.environ, PYTHONPATH=paths), stdout=errors, stderr=errors, cwd=ROOT,
            )  # fmt: skip

    def finish(self, driver: subprocess.Popen[bytes]) -> int:
        """Waits for its end; its code."""
        try:
            return driver.wait(timeout=PATIENCE_S)
        finally:
            driver.kill()
            driver.wait()

    def run(self, kill: str = "", **wanted: Any) -> int:
        """A driver from its start to its end."""
        return self.finish(self.start(kill, **wanted))

    def finish_here(self, spark: SparkSession) -> None:
        """Writes the rest, by a driver that lives."""
        rows = stream(spark, self.node.data, "in").selectExpr("data", "id")
        writer = rows.writeStream.format("echomesh").options(topic="out", **self.node.options)
        writer = writer.option("checkpointLocation", str(self.place / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def kill(self, driver: subprocess.Popen[bytes], *, may_have_ended: bool = False) -> None:
        """Kills it, and its JVM."""
        for pid in json.loads((self.place / str(self.number) / "pids").read_text()):
            with suppress(*([ProcessLookupError] if may_have_ended else [])):
                os.kill(pid, signal.SIGKILL)
        driver.wait()

    def started(self, driver: subprocess.Popen[bytes]) -> None:
        """Waits until the query of the last one runs."""
        until = time.monotonic() + PATIENCE_S
        while not (self.place / str(self.number) / "started").exists():
            assert driver.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.05)

    @property
    def said(self) -> str:
        """What the last one had to say."""
        return (self.place / str(self.number) / "errors").read_text()


@full_only
def test_a_driver_that_is_killed_at_any_point_of_a_commit_leaves_each_row_once(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    drivers, written = Drivers(node, tmp_path / "drivers"), 0
    points = ("before-record", "before-reply", "after-stage", "after-reply")
    for point in points[: count(1, len(points))]:
        node.publish("in", range(written, written + 100))
        written += 100
        before = len(node.events("out"))
        # Before that, a worker is killed in the middle of its rows, and a task fails when all its rows are staged.
        for _ in range(5):  # on a busy machine Spark may give a worker up
            if drivers.run(f"worker+retry+{point}") == -signal.SIGKILL:
                break
        assert (drivers.place / str(drivers.number) / f"was-at-{point}").exists(), drivers.said
        after = len(node.events("out"))
        # All rows of the batch, or none of them.
        assert (after > before) == (point in ("before-reply", "after-reply")), point
    drivers.finish_here(spark)
    assert numbers_of(node.events("out")) == list(range(written)), drivers.said
    assert list((node.data / "staging").glob("*.new")) == []


@full_only
def test_drivers_that_are_killed_at_random_leave_each_row_once(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    drivers, chosen, written = Drivers(node, tmp_path / "drivers"), random.Random(7), 0
    for _ in range(count(1, 20)):
        driver = drivers.start(once=False)
        drivers.started(driver)
        for _ in range(chosen.randrange(1, 30)):
            node.publish("in", range(written, written + 20))
            written += 20
            time.sleep(chosen.uniform(0.0, 0.4))  # so that kills come anywhere in a batch
        drivers.kill(driver)
        found = numbers_of(node.events("out"))
        assert len(set(found)) == len(found)
    empty = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
    spark.conf.set(empty, "false")
    try:
        drivers.finish_here(spark)
    finally:
        spark.conf.unset(empty)
    assert numbers_of(node.events("out")) == list(range(written))


@full_only
def test_two_drivers_with_one_checkpoint_write_each_row_once(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    drivers = Drivers(node, tmp_path / "drivers")
    rows = stream(spark, node.data, "in", maxOffsetsPerTrigger=20).selectExpr("data", "id")
    writer = rows.writeStream.format("echomesh").options(topic="out", **node.options)
    writer = writer.option("checkpointLocation", str(drivers.place / "checkpoint"))
    other = drivers.start(once=False)
    drivers.started(other)
    query = writer.trigger(processingTime="0 seconds").start()
    for first in range(0, 400, 20):
        node.publish("in", range(first, first + 20))
    with suppress(StreamingQueryException):  # Spark sees now and then that there are two
        query.awaitTermination(5)
    query.stop()
    drivers.kill(other, may_have_ended=True)  # for the same reason
    drivers.finish_here(spark)
    assert numbers_of(node.events("out")) == list(range(400))


def test_the_node_may_be_restarted_in_the_middle(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> None:
    rows = stream(spark, node.data, "in", maxOffsetsPerTrigger=50).selectExpr("data", "id")
    writer = rows.writeStream.format("echomesh").options(topic="out", **node.options)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="0 seconds")
    stop, chosen = threading.Event(), random.Random(1)
    query: list[StreamingQuery] = [writer.start()]
    written = 0
    for _ in range(count(2, 10)):
        for _ in range(chosen.randrange(2, 10)):
            node.publish("in", range(written, written + 50))
            written += 50
            time.sleep(chosen.uniform(0.0, 0.4))
        node.stop(signal.SIGKILL)
        node.start()
        if not query[0].isActive:
            query[0] = writer.start()
    deadline = time.monotonic() + PATIENCE_S
    while len(node.events("out")) < written and time.monotonic() < deadline:
        if not query[0].isActive:
            query[0] = writer.start()
        stop.wait(0.2)
    query[0].stop()
    assert numbers_of(node.events("out")) == list(range(written))


def test_a_task_that_comes_after_the_commit_changes_nothing(node: NodeProcess) -> None:
    session = Direct(node.address, "spark", password=PASSWORD)
    try:

        def stage(epoch: int, run: str, *numbers: int) -> Staged:
            rows = b"".join(encode(at, 0, None, an_event(number).encode()) for at, number in enumerate(numbers, 1))
            body = Stage("", "", "query", epoch, run, 0, records=rows, topics=["out"], done=True)
            staged: Staged = session.ask(Command.STAGE_REQUEST, body)
            return staged

        def commit(epoch: int, run: str, *stages: Staged) -> CommittedStages:
            names, rows = [one.stage for one in stages], [one.rows for one in stages]
            body = Commit("", "", "query", epoch, run, names, rows, [one.checksum or 0 for one in stages])
            done: CommittedStages = session.ask(Command.COMMIT_REQUEST, body)
            return done

        winner, loser = stage(4, "run", 1, 2), stage(4, "run", 1, 2)
        commit(4, "run", winner)
        zombie = stage(4, "run", 1, 2)
        assert commit(4, "run", loser, zombie).repeated
        with pytest.raises(StageMissing):
            commit(5, "run", zombie)
        late = stage(5, "run", 3)
        commit(5, "newer", stage(5, "newer", 3))
        with pytest.raises(FencedWriter):
            commit(6, "run", stage(6, "run", 4))
        assert commit(5, "run", late).repeated
        assert len(node.events("out")) == 3
    finally:
        session.close()
