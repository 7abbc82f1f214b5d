"""`echomesh demo`."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from rich.console import Console

from echomesh.cli.demo import Demo, bare_ring
from tests.cli.conftest import PATIENCE_S, Mesh

CLAIMS = [
    "every byte came back as it was sent",
    "streams of the dead echo were reset",
    "traffic went on with a new echo",
    "no file was left behind",
]


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("columns", ["80", "120"])
def test_it_keeps_every_promise_of_its_summary(mesh: Mesh, shm_dir: Path, columns: str) -> None:
    result = mesh.run("demo", "--seconds", "3", "--in", str(shm_dir), COLUMNS=columns)
    assert (result.returncode, result.stderr) == (0, "")
    summary = result.stdout.split("▌ Summary\n")[1]
    assert [claim for claim in CLAIMS if f"✓  {claim}" not in summary] == []
    assert "kill -9" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= int(columns)
    assert list(shm_dir.iterdir()) == []


def test_it_ends_with_three_commands_to_paste(mesh: Mesh, shm_dir: Path) -> None:
    result = mesh.run("demo", "--seconds", "1", "--in", str(shm_dir))
    commands = result.stdout.split("▌ Go on from here\n")[1].splitlines()
    assert len(commands) == 3
    assert commands[0].split("  # ")[0].split()[-2:] == ["ping", "--start"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_file_and_no_process(mesh: Mesh, shm_dir: Path, number: int) -> None:
    with mesh.popen("demo", "--in", str(shm_dir)) as demo:
        while not list(shm_dir.glob("*/mesh/echo/control")):
            time.sleep(0.01)
        time.sleep(0.5)
        owner = next(shm_dir.glob("*/mesh/echo/owner"))
        echo = int(owner.read_text())
        demo.send_signal(number)
        demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode != 0
    assert list(shm_dir.iterdir()) == []
    assert not Path(f"/proc/{echo}").exists()


def test_a_promise_that_was_not_kept_is_told(shm_dir: Path) -> None:
    console = Console(record=True, width=80)
    demo = Demo(console, 1.0, shm_dir)
    demo.check(True, "this is so", "1")
    demo.check(False, "that is so", "0")
    assert not demo._sum_up()
    text = console.export_text()
    assert "✓  this is so" in text
    assert "✗  not so: that is so" in text


@pytest.mark.parametrize("size", [1, 64, 4095, 4096, 65536])
def test_the_bare_ring_gives_every_message_back(shm_dir: Path, size: int) -> None:
    count, seconds = bare_ring(shm_dir / "ring", size, 0.05)
    assert count > 0
    assert seconds >= 0.05
    assert list(shm_dir.iterdir()) == []
