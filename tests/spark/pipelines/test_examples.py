"""The examples that are pipelines do what their tests say."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from echomesh.events import Event
from echomesh.log import LogReader, TopicLog
from tests.log.support import events_of
from tests.support.counts import full_only
from tests.support.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("test_*.py")), ids=lambda path: path.stem)
def test_an_example_passes_its_own_test(file: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    found = [value for name, value in runpy.run_path(str(file)).items() if name.startswith("test_")]
    assert found
    for test in found:
        test()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Orders of two shops over two minutes, and payments of some."""
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    with TopicLog(tmp_path / "data") as log:
        for number in range(40):
            time = noon + timedelta(seconds=3 * number)
            order = Event(type="o", source="/s", time=time, data={"id": number, "amount": 50.0 * number})
            log.append(f"orders/{'eu' if number % 2 else 'us'}", order.encode())
        for number in range(0, 40, 4):
            paid = Event(type="p", source="/s", data={"id": number, "amount": 50.0 * number})
            log.append("payments", paid.encode())
    return tmp_path / "data"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_topics_are_read(data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    run("read_topic.py", monkeypatch, str(data))
    shown = capfd.readouterr().out
    assert [name for name in ("orders/eu", "orders/us", "payments") if name not in shown] == []


def test_streams_are_joined(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run("join.py", monkeypatch, str(data))
    shown = capfd.readouterr().out
    assert sum(line.count("|") == 6 for line in shown.splitlines()) == 11, shown


def test_windows_are_published(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("window.py", monkeypatch, str(data))
    with LogReader(data) as log:
        found = [Event.decode(raw) for raw in events_of(log.topic("takings"))]
    amounts = {"eu": 0.0, "us": 0.0}
    for number in range(20):  # the first minute
        amounts["eu" if number % 2 else "us"] += 50.0 * number
    told = {event.data["topic"]: event.data["amount"] for event in found}
    assert told == {f"orders/{shop}": amount for shop, amount in amounts.items()}


def test_a_table_is_written_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        run("write_table.py", monkeypatch, str(data), str(tmp_path / "orders"))
        assert "40 orders in" in capfd.readouterr().out


@full_only
def test_declarative_pipelines_read_and_write_topics(data: Path, tmp_path: Path) -> None:
    directory = tmp_path / "declarative"
    directory.mkdir()
    for path in (EXAMPLES / "declarative").iterdir():
        (directory / path.name).write_bytes(path.read_bytes() if path.is_file() else b"")
    environment = {
        **os.environ,
        "ECHOMESH_DATA": str(data),
        "PYTHONPATH": str(ROOT / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    spec = directory / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("storage: storage", f"storage: {(tmp_path / 'storage').as_uri()}"))
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", str(spec)]
    result = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    with LogReader(data) as log:
        found = [Event.decode(raw) for raw in events_of(log.topic("alerts/large"))]
    assert sorted(event.data["id"] for event in found) == list(range(21, 40))
