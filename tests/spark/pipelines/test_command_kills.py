"""`echomesh pipeline run` as a process: killed at random it loses and doubles nothing; stopped, it ends well."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.node import NodeProcess, numbers_of
from tests.support.counts import count, full_only
from tests.support.repository import ROOT

pytestmark = [full_only, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(3600)]

PATIENCE_S = 240.0
ROUND = 200
FLOW = """\
from echomesh.spark import pipeline, topic

@pipeline(inputs={"rows": "in"}, output=topic("out"), trigger="50 ms", options={"maxOffsetsPerTrigger": 20})
def copy(rows):
    return rows.select("data", "id")
"""


class Command:
    """The command line of one pipeline."""

    def __init__(self, node: NodeProcess, place: Path) -> None:
        self.place = place
        self.node = node
        (place / "flow.py").write_text(FLOW)
        self.home = place / "home"
        self.where = ["--data", str(node.data), "--server", node.address, "--client", "spark",
                      "--password-file", str(node.password_file), "--home", str(self.home)]  # fmt: skip
        quick = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        self.how = ["--master", "local[2]", "--conf", quick, "--conf", "spark.sql.shuffle.partitions=2"]

    def start(self) -> subprocess.Popen[str]:
        """Runs it, and goes on."""
        return self.popen("pipeline", "run", str(self.place / "flow.py"), *self.where, *self.how)

    def popen(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "echomesh", *words],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def said(self, process: subprocess.Popen[str]) -> str:
        """All that it says, up to its end."""
        text, _ = process.communicate(timeout=PATIENCE_S)
        return text

    def asked(self, *words: str) -> Any:
        """What another command answers of it."""
        process = self.popen("pipeline", *words, "--home", str(self.home), "--json")
        return json.loads(self.said(process))


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    with NodeProcess(tmp_path / "node") as node:
        yield Command(node, tmp_path)


def until(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(process.communicate()[0])
        time.sleep(0.02)


def test_killed_at_random_it_writes_each_row_once(command: Command) -> None:
    node = command.node
    randomly = random.Random(7)
    published = 0
    for _ in range(count(1, 20)):
        node.publish("in", range(published, published + ROUND))
        published += ROUND
        there = len(node.events("out"))
        enough = there + randomly.randrange(1, ROUND)
        process = command.start()
        until(lambda enough=enough: len(node.events("out")) >= enough, process)  # type: ignore[misc]
        process.kill()
        command.said(process)
    assert command.asked("status", "copy")["state"] == "died"
    process = command.start()
    until(lambda: len(node.events("out")) >= published, process)

    second = command.start()
    assert f"pipeline copy runs already: process {process.pid} on" in command.said(second)
    assert second.returncode == 1
    entry = command.asked("status", "copy")
    assert (entry["state"], entry["pid"]) == ("running", process.pid)
    assert command.asked("stop", "copy")["state"] == "stopped"
    assert "copy stopped" in command.said(process)
    assert process.returncode == 0
    assert numbers_of(node.events("out")) == list(range(published))


def test_ctrl_c_stops_it_and_its_spark(command: Command) -> None:
    command.node.publish("in", range(10))
    process = command.start()
    until(lambda: len(command.node.events("out")) == 10, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGINT)
    assert "copy stopped" in command.said(process)
    assert process.returncode == 0
    deadline = time.monotonic() + PATIENCE_S
    while [pid for pid in children if Path(f"/proc/{pid}/exe").exists()]:  # the JVM tidies up when Python is gone
        assert time.monotonic() < deadline
        time.sleep(0.02)
