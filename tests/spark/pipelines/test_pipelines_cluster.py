"""Pipelines on a standalone cluster, whose executors have nothing installed and reach the log over TCP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.cluster import BARE, Cluster
from tests.spark.node import NodeProcess, events_of
from tests.spark.ready import expected, test_alerts
from tests.spark.ready.city import City, micros
from tests.spark.ready.running import ALERTS, WATERMARK_S, WINDOW_S
from tests.support.counts import full_only
from tests.support.repository import ROOT

pytestmark = [full_only, pytest.mark.spark, pytest.mark.timeout(1800)]

FLOW = """\
from echomesh.spark import pipeline, topic

@pipeline(inputs={"orders": "shops/orders"}, output=topic("copies"))
def copies(orders):
    return orders.select("data", "id")
"""
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Commands:
    """`echomesh pipeline run` for a cluster."""

    def __init__(self, cluster: Cluster, node: NodeProcess, place: Path) -> None:
        self.place = place
        settings = {
            "spark.driver.extraJavaOptions": QUICK,
            "spark.executor.extraJavaOptions": QUICK,
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        }
        self.words = ["--once", "--master", cluster.master, "--server", node.address, "--client", "spark"]
        self.words += ["--password-file", str(node.password_file), "--home", str(place / "home")]
        self.words += ["--tables", str(place / "tables")]
        self.words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]

    def run(self, *words: str, shared: bool = True) -> str:
        """What it says, once it has ended well."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "PYSPARK_PYTHON": str(BARE)}
        command = [sys.executable, "-m", "echomesh", "pipeline", "run", *words, *self.words]
        done = subprocess.run(
            [*command, *(["--shared"] if shared else [])],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=self.place,
        )  # fmt: skip
        assert (done.returncode == 0) == shared, done.stdout[-5000:]
        return done.stdout

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table, for another reader than Spark."""
        return expected.table(self.place / "tables" / name)


def test_every_ready_pipeline_and_a_users_own_do_on_a_cluster_what_they_do_here(
    cluster: Cluster, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    city = City(tmp_path / "data")
    city.live()
    with NodeProcess(tmp_path / "node", data=city.data) as node:
        commands = Commands(cluster, node, place)
        said = commands.run("archive", shared=False)
        assert "--shared" in said, "paths of this machine are refused"

        commands.run("archive", "--topics", "shops/**,sensors/**")
        stored = commands.table("archive")
        wanted = {(one.topic, one.event.source, one.event.id) for one in city.seen if not one.topic.startswith("city/")}
        assert sorted((row["topic"], row["source"], row["id"]) for row in stored) == sorted(wanted)

        spans = ["--window", f"{WINDOW_S} seconds", "--watermark", f"{WATERMARK_S} seconds"]
        commands.run("windows", *spans, "--topics", "shops/**,sensors/**,city/**")
        figures = expected.windows(city.seen, WINDOW_S * 1_000_000, WATERMARK_S * 1_000_000)
        rows = {(row["topic"], micros(row["window_start"])): row for row in commands.table("windows")}
        assert rows.keys() == figures.keys()
        for key, row in rows.items():
            expected.same_figures(row, figures[key])

        commands.run("latest", "--topics", "sensors/**")
        newest = expected.latest(
            (one for one in city.seen if one.topic.startswith("sensors/")), lambda one: one.event.subject
        )
        assert {(row["topic"], row["key"]) for row in commands.table("latest")} == newest.keys()

        commands.run("alerts", *(word for rule in ALERTS for word in ("--rule", rule)))
        test_alerts.check(city)

        (place / "flow.py").write_text(FLOW)
        commands.run("flow.py")
        orders = [one.event.id for one in city.seen if one.topic == "shops/orders"]
        assert sorted(event.id for event in events_of(city.data, "copies")) == sorted(orders)
