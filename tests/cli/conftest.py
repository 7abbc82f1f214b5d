"""The command line as its users run it: real processes, in a directory of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.log_support import PATIENCE_S as PATIENCE_S
from tests.cli.log_support import Log
from tests.cli.quick import Forker, Quick
from tests.support.repository import ROOT


class Mesh:
    """A directory for nuklei, and a way to run commands in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {
            **os.environ,
            "ECHOMESH_DIR": str(root),
            "PYTHONPATH": str(ROOT / "src"),
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        self.environment.pop("ECHOMESH_DEBUG", None)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "echomesh", *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """The one JSON value that a command prints."""
        return json.loads(self.run(*arguments).stdout)

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Starts a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "echomesh", *arguments],
            env=self.environment,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
        )

    @contextlib.contextmanager
    def echo(self, name: str = "echo", *options: str) -> Iterator[subprocess.Popen[str]]:
        """An echo that is ready; it is killed at the end unless it has stopped."""
        with self.popen("echo", "--name", name, *options) as process:
            try:
                assert process.stdout is not None
                ready = process.stdout.readline()
                assert ready.startswith(f"{name} is ready in {self.root}"), ready
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()

    def kill(self, process: subprocess.Popen[str]) -> None:
        """kill -9, and the end of it."""
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)

    def stop(self, process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
        """Sends a signal and gives what the process said from then on."""
        process.send_signal(number)
        said, complaint = process.communicate(timeout=PATIENCE_S)
        assert complaint == ""
        return said

    def files(self) -> list[Path]:
        """Everything that is there."""
        return sorted(self.root.rglob("*"))


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    with Forker() as forker:
        yield forker


@pytest.fixture
def quick(mesh: Mesh, forker: Forker) -> Quick:
    """As `mesh.run`, in a tenth of the time."""

    def run(*arguments: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return forker.run(*arguments, environment={**mesh.environment, **environment}, given=given)

    return run


@pytest.fixture
def mesh(shm_dir: Path) -> Mesh:
    return Mesh(shm_dir / "mesh")


@pytest.fixture
def log(mesh: Mesh, shm_dir: Path) -> Log:
    # In memory: on a disk each opening waits for what everybody else has to sync.
    return Log(mesh.environment, shm_dir / "data")
