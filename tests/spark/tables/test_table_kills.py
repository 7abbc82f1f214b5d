"""Each row once for every reader, wherever the driver that writes is killed."""

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

from echomesh.spark.tables import open_table
from tests.spark.tables.driver import POINTS
from tests.spark.tables.support import EPOCH_ROWS, FORMATS, all_see, epoch_rows, epochs, seen
from tests.support.counts import count, full_only
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [full_only, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

PATIENCE_S = 180.0


class Drivers:
    """Drivers that write one table, one after the other."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind
        self.place = path.with_name("place")
        self.place.mkdir()

    def start(self, kill: str = "", until: int = 1000) -> subprocess.Popen[bytes]:
        """A driver that runs, to write all epochs below this one."""
        (self.place / "pids").unlink(missing_ok=True)
        wanted = {"path": str(self.path), "format": self.kind, "place": str(self.place), "kill": kill, "epochs": until}
        with (self.place / "errors").open("w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.tables.driver", json.dumps(wanted)],
                env=dict(os.environ, PYTHONPATH=os.pathsep.join((str(ROOT / "src"), str(ROOT)))),
                stdout=errors, stderr=errors, cwd=ROOT,
            )  # fmt: skip

    def run(self, kill: str, until: int) -> int:
        """A driver from its start to its end; its code."""
        driver = self.start(kill, until)
        try:
            return driver.wait(timeout=PATIENCE_S)
        finally:
            self.end(driver)

    def end(self, driver: subprocess.Popen[bytes]) -> None:
        """Kills it, and its JVM."""
        if (self.place / "pids").exists():
            for pid in json.loads((self.place / "pids").read_text()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        driver.kill()
        driver.wait()

    @property
    def done(self) -> int:
        """How many epochs it knows to be written."""
        return int((self.place / "done").read_text()) + 1 if (self.place / "done").exists() else 0

    @property
    def said(self) -> str:
        """What the last one had to say."""
        return (self.place / "errors").read_text()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_driver_that_is_killed_at_any_point_of_a_write_leaves_each_row_once(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    drivers = Drivers(tmp_path / "table", kind)
    points = POINTS[-count(2 if kind == "delta" else 1, len(POINTS)) :]
    table = open_table(tmp_path / "table", format=kind)  # type: ignore[arg-type]
    table.write(epoch_rows(spark, 0), "query", 0)
    (drivers.place / "done").write_text("0")
    for epoch, point in enumerate(points, 1):
        assert drivers.run(point, epoch + 1) == -signal.SIGKILL, drivers.said
        assert table.exists  # it looks again
        # All rows of the epoch, or none of them.
        last = epoch if point == "after-commit" else epoch - 1
        assert table.last_epoch("query") == last, point
        all_see(spark, tmp_path / "table", kind, epochs(*range(last + 1)))
        table.write(epoch_rows(spark, epoch), "query", epoch)
        (drivers.place / "done").write_text(str(epoch))
        all_see(spark, tmp_path / "table", kind, epochs(*range(epoch + 1)))
    # What they have left goes, and nothing else does.
    assert table.vacuum(0) > 0
    all_see(spark, tmp_path / "table", kind, epochs(*range(len(points) + 1)))
    assert list((tmp_path / "table" / "_new").iterdir()) == []


def test_drivers_that_are_killed_at_random_leave_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    drivers, chosen = Drivers(tmp_path / "table", "delta"), random.Random(11)
    for _ in range(count(1, 20)):
        driver, until = drivers.start(), time.monotonic() + PATIENCE_S
        goal = drivers.done + chosen.randrange(1, 4)
        while drivers.done < goal:
            assert driver.poll() is None, drivers.said
            assert time.monotonic() < until, drivers.said
            time.sleep(0.01)
        time.sleep(chosen.uniform(0.0, 0.5))  # so that kills come anywhere in a write
        drivers.end(driver)
        found = seen(spark, tmp_path / "table", "delta")
        whole = len(found["deltalake"]) // EPOCH_ROWS
        assert whole in (drivers.done, drivers.done + 1)
        assert found == dict.fromkeys(found, epochs(*range(whole)))
    table = open_table(tmp_path / "table")
    done = drivers.done
    for epoch in (done, done + 1):
        table.write(epoch_rows(spark, epoch), "query", epoch)
    table.vacuum(0)
    all_see(spark, tmp_path / "table", "delta", epochs(*range(done + 2)))
