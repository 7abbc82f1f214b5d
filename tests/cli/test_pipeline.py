"""`echomesh pipeline`: what it lists, says and refuses. Pipelines that run are in tests/spark/pipelines."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

import echomesh
from echomesh.spark.pipelines.registry import Entry, Figures, Registry
from tests.cli.quick import Quick
from tests.cli.test_commands import loaded

FLOW = """\
from echomesh.spark import pipeline, topic

@pipeline(inputs={"orders": "orders/**"}, output=topic("alerts"))
def big(orders):
    return orders
"""


def entry(name: str, **changes: object) -> Entry:
    figures = Figures(
        output="out", target="topic alerts", batch=7, rows=12_000, rows_per_s=1500.0, lag=40, batch_ms=250,
        state_rows=3, state_bytes=2048, late=2, topics=[("orders/eu", 30), ("orders/us", 10)],
        watermark="2026-07-01T12:00:00.000Z",
    )  # fmt: skip
    given = {
        "name": name, "file": "flow.py", "state": "finished", "pid": os.getpid(), "host": socket.gethostname(),
        "started": "2026-07-01T12:00:00.000Z", "updated": "2026-07-01T12:00:00.000Z", "master": "local[2]",
        "checkpoint": "/c", "queries": [figures], **changes,
    }  # fmt: skip
    return Entry(**given)  # type: ignore[arg-type]


@pytest.fixture
def home(shm_dir: Path) -> Path:
    """Two pipelines: one that has failed, and one whose process was killed."""
    registry = Registry(shm_dir / "home")
    for each in (entry("late", state="failed", why="nobody there"), entry("big", state="running")):
        with registry.hold(each.name):
            registry.write(each)
    return registry.home


def test_ls_shows_every_pipeline_with_its_state(quick: Quick, home: Path) -> None:
    lines = quick("pipeline", "ls", "--home", str(home)).stdout.splitlines()
    assert lines[0].split() == [
        "pipeline",
        "state",
        "process",
        "read",
        "this",
        "run",
        "rate",
        "lag",
        "restarts",
        "last",
    ]
    assert lines[1].split()[:4] == ["big", "died", "12,000", "40"]
    assert lines[2].split()[:2] == ["late", "failed"]
    assert lines[3:] == ["big: its process was killed", "late: nobody there"]


def test_ls_can_be_read_by_programs(quick: Quick, home: Path) -> None:
    found = json.loads(quick("pipeline", "ls", "--home", str(home), "--json").stdout)
    assert [(each["name"], each["state"]) for each in found["pipelines"]] == [("big", "died"), ("late", "failed")]


def test_without_pipelines_ls_says_how_to_start_one(quick: Quick, shm_dir: Path) -> None:
    said = quick("pipeline", "ls", ECHOMESH_DATA=str(shm_dir)).stdout.replace("\n", " ")
    assert said.startswith(f"No pipelines in {shm_dir}/pipelines.")
    assert "echomesh pipeline run" in said


def test_status_shows_one_of_them(quick: Quick, home: Path) -> None:
    said = quick("pipeline", "status", "late", "--home", str(home)).stdout
    for part in ("late  failed", "nobody there", "topic alerts", "12,000", "1.5 k/s", "250 ms", "3 rows, 2 KiB",
                 "orders/eu", "checkpoint", "watermark"):  # fmt: skip
        assert part in said
    assert (
        json.loads(quick("pipeline", "status", "late", "--home", str(home), "--json").stdout)["why"] == "nobody there"
    )


def test_what_does_not_run_is_not_stopped(quick: Quick, home: Path) -> None:
    assert quick("pipeline", "stop", "late", "--home", str(home)).stdout == "late does not run: it is failed.\n"
    assert quick("pipeline", "stop", "big", "--home", str(home)).stdout == "big does not run: it is died.\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["status", "huge"], "no pipeline huge in {home}: there is big, late"),
        (["run", "huge", "--data", "{home}"], "huge is neither a file nor a ready pipeline"),
        (["run", "huge.py", "--data", "{home}"], "huge.py: there is no such file"),
        (["run", "{flow}"], "give the data directory of a log (--data)"),
        (["run", "{flow}:small", "--data", "{home}"], "has no pipeline small: there is big"),
        (["run", "{flow}", "--data", "{home}", "--conf", "x"], "--conf x: write KEY=VALUE"),
        (
            ["run", "{flow}", "--data", "{home}", "--master", "yarn"],
            "the checkpoint {home}/pipelines/big/checkpoint is on",
        ),
        (["run", "{flow}", "--data", "{home}", "--metrics", "x"], "--metrics x: give HOST:PORT"),
    ],
    ids=["status", "name", "file", "where", "several", "conf", "cluster", "metrics"],
)
def test_what_cant_be_done_is_told_in_a_sentence(quick: Quick, home: Path, arguments: list[str], why: str) -> None:
    flow = home / "flow.py"
    flow.write_text(FLOW)
    names = {"home": str(home), "flow": str(flow)}
    more = ["--home", str(home)] if arguments[0] == "status" else []
    done = quick("pipeline", *(word.format(**names) for word in arguments), *more)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert why.format(**names) in done.stderr


def test_the_help_of_a_run_has_all_its_options(quick: Quick, shm_dir: Path) -> None:
    said = quick("pipeline", "run", "flow.py", "--help").stdout
    for option in (
        "--data",
        "--server",
        "--master",
        "--once",
        "--from",
        "--new-checkpoint",
        "--metrics",
        "--print-submit",
    ):
        assert option in said
    assert "FILE:NAME" in quick("pipeline", "run", "--help").stdout


def test_commands_for_other_clusters_are_printed(quick: Quick, home: Path) -> None:
    flow = home / "flow.py"
    flow.write_text(FLOW)
    said = quick(
        "pipeline", "run", str(flow), "--server", "mesh:4889", "--once", "--from", "15m", "--print-submit"
    ).stdout
    assert "spark-submit --master yarn --deploy-mode client --archives" in said
    assert "spark-submit --master k8s://https://CLUSTER:6443 --deploy-mode cluster" in said
    assert said.count(f"pipeline run {flow} --master") == 2
    assert said.count("--server mesh:4889 --once --from 15m") == 2
    assert str(Path(echomesh.__file__).parent) in said.partition("Kubernetes")[0]
    assert str(Path(echomesh.__file__).parent) not in said.partition("Kubernetes")[2], "it is elsewhere in an image"


@pytest.mark.parametrize(("master", "other"), [("k8s://https://here:6443", "yarn"), ("yarn", "k8s://")])
def test_commands_are_for_the_cluster_that_was_named(quick: Quick, home: Path, master: str, other: str) -> None:
    said = quick("pipeline", "run", "archive", "--server", "mesh:4889", "--master", master, "--print-submit").stdout
    assert f"spark-submit --master {master} --deploy-mode" in said
    assert f"pipeline run archive --master {master} --server mesh:4889" in said
    assert other not in said


def test_pipelines_are_listed_without_loading_spark() -> None:
    modules = loaded("pipeline", "ls", "--help")
    assert "echomesh.spark.pipelines.registry" in modules
    assert not {name for name in modules if name.startswith(("pyspark", "pyarrow"))}
