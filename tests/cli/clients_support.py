"""`echomesh clients` as a user calls it, with a file of its own."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from echomesh.cli import app, common
from echomesh.mesh.access import Access
from tests.cli.conftest import PATIENCE_S, Mesh

ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Result(NamedTuple):
    """What became of a command."""

    returncode: int
    stdout: str
    stderr: str


class Clients:
    """A data directory, and ways to run `echomesh clients` on it."""

    def __init__(
        self, mesh: Mesh, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.data = data
        self.file = data / "access.toml"
        self.environment = {**mesh.environment, "ECHOMESH_DATA": str(data)}
        self.environment.pop("ECHOMESH_ACCESS", None)
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *arguments: str, input: bytes = b"", **environment: str) -> Result:
        """In this process: there are many small cases."""
        self._monkeypatch.setattr(os, "environ", {**self.environment, **environment})
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input)))
        self._monkeypatch.setattr(common.state, "json", False)
        self._monkeypatch.setattr(common.state, "debug", "ECHOMESH_DEBUG" in environment)
        before = signal.getsignal(signal.SIGTERM)
        try:
            code = app.run(["clients", *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            signal.signal(signal.SIGTERM, before)
        shown = self._capsys.readouterr()
        return Result(code, shown.out, shown.err)

    def process(self, *arguments: str, input: bytes) -> Result:
        """In a process of its own."""
        command = [sys.executable, "-m", "echomesh", "clients", *arguments]
        done = subprocess.run(
            command, env=self.environment, input=input, capture_output=True, timeout=PATIENCE_S, check=False
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def typed(self, *arguments: str, answers: list[str]) -> tuple[int, str]:
        """Runs it on a terminal and answers each question; gives the exit code and what the terminal showed."""
        terminal, theirs = pty.openpty()
        command = [sys.executable, "-c", ON_TERMINAL, sys.executable, "-m", "echomesh", "clients", *arguments]
        process = subprocess.Popen(
            command, env=self.environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        shown = b""
        # Reading fails once the process has ended, and the terminal with it.
        with process, contextlib.suppress(OSError):
            for answer in answers:
                while not shown.endswith(b": "):
                    shown += os.read(terminal, 1024)
                os.write(terminal, answer.encode() + b"\n")
                shown += b"|"
            while True:
                shown += os.read(terminal, 1024)
        os.close(terminal)
        return process.returncode, shown.decode()

    def access(self) -> Access:
        return Access.parse(self.file.read_text())

    def password_is(self, client_id: str, password: str) -> bool:
        client = self.access().get(client_id)
        assert client is not None
        return client.password.matches(password.encode())
