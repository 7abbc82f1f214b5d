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
    "after the cut both servers caught up",
    "each log has each event once",
    "each subscriber got each event once, in order",
    "no file was left behind",
]


@pytest.mark.slow
@pytest.mark.fault
def test_it_keeps_every_promise_of_its_summary(mesh: Mesh, shm_dir: Path) -> None:
    result = mesh.run("demo", "local", "--seconds", "3", "--in", str(shm_dir), COLUMNS="80")
    assert (result.returncode, result.stderr) == (0, "")
    summary, commands = result.stdout.split("▌ Summary\n")[1].split("▌ Go on from here\n")
    assert [claim for claim in CLAIMS if f"✓  {claim}" not in summary] == []
    assert [what for what in ("kill -9", "the link is cut", "the link is healed") if what not in result.stdout] == []
    assert max(len(line) for line in result.stdout.splitlines() if "echomesh-demo-" not in line) <= 80
    assert [line.split()[1] for line in commands.splitlines()] == ["up", "sub", "pub", "ping"]
    assert list(shm_dir.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("owner", ["*/mesh/echo/owner", "*/east/lock"])
def test_a_signal_leaves_no_file_and_no_process(mesh: Mesh, shm_dir: Path, number: int, owner: str) -> None:
    with mesh.popen("demo", "local", "--seconds", "3", "--in", str(shm_dir)) as demo:
        while not (found := list(shm_dir.glob(owner))) or not found[0].read_text():
            time.sleep(0.01)
        process = int(found[0].read_text())
        time.sleep(0.5)
        demo.send_signal(number)
        demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode != 0
    assert list(shm_dir.iterdir()) == []
    assert not Path(f"/proc/{process}").exists()


def test_a_promise_that_was_not_kept_is_told(shm_dir: Path) -> None:
    console = Console(record=True, width=80)
    demo = Demo(console, 1.0, shm_dir, shm_dir)
    demo.check(True, "this is so", "1")
    demo.check(False, "that is so", "0")
    assert not demo.sum_up()
    text = console.export_text()
    assert "✓  this is so" in text
    assert "✗  not so: that is so" in text


@pytest.mark.parametrize("size", [1, 64, 4095, 4096, 65536])
def test_the_bare_ring_gives_every_message_back(shm_dir: Path, size: int) -> None:
    count, seconds = bare_ring(shm_dir / "ring", size, 0.05)
    assert count > 0
    assert seconds >= 0.05
    assert list(shm_dir.iterdir()) == []
