"""Echoes and servers in processes of their own, for commands that need one for a while."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from echomesh.cli.common import Wait
from echomesh.errors import BusyError, EchomeshError, OwnerAlive
from echomesh.nukleus.directory import Directory

_READY_S = 15.0
_STOPPED_S = 5.0
_LOOK_S = 0.01


class _Process(ABC):
    """A command of ours, ready to be used; leaving the block stops it, and it never outlives this process."""

    def __init__(self, *arguments: str, stdout: int = subprocess.DEVNULL, stderr: int | IO[bytes]) -> None:
        # In a session of its own, since Ctrl-C is for us; it ends when our end of its standard input closes.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "echomesh", *arguments, "--until-input-ends"],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )
        self.pid = self._process.pid
        try:
            self._wait_until_ready(time.monotonic() + _READY_S)
        except BaseException:
            self.stop()
            raise

    @abstractmethod
    def _wait_until_ready(self, deadline: float) -> None:
        """Returns once it can be used."""

    @abstractmethod
    def _complaint(self) -> str:
        """What it said when it did not start."""

    def _check(self, what: str, deadline: float) -> None:
        if self._process.poll() is not None:
            raise EchomeshError(f"the {what} did not start: {self._complaint()}")
        if time.monotonic() > deadline:
            raise BusyError(f"the {what} was not ready within {_READY_S:g} s")

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        self.stop()

    def stop(self) -> None:
        """Stops it, gently and then not."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOPPED_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class EchoProcess(_Process):
    """`echomesh echo`."""

    def __init__(self, name: str, directory: Directory, wait: Wait = Wait.BALANCED) -> None:
        self._place = directory.place(name)
        if not directory.dead(name) and self._place.path.exists():
            raise OwnerAlive(name, str(directory.root), self._place.owner_pid() or 0)
        options = ("--name", name, "--dir", str(directory.root), "--wait", wait.value)
        super().__init__("echo", *options, stderr=subprocess.PIPE)

    def _wait_until_ready(self, deadline: float) -> None:
        while not (self._place.control.exists() and self._place.owner_pid() == self.pid):
            self._check("echo", deadline)
            time.sleep(_LOOK_S)

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace").strip().removeprefix("error: ")


class ServerProcess(_Process):
    """`echomesh up` on this machine; `address` is where it listens, on a port of its own unless one is given."""

    def __init__(self, data: Path, listen: str = "127.0.0.1:0") -> None:
        self._log_path = data.with_name(data.name + ".log")
        with self._log_path.open("ab") as log:
            super().__init__("up", "--data", str(data), "--listen", listen, stdout=subprocess.PIPE, stderr=log)

    def _wait_until_ready(self, deadline: float) -> None:
        assert self._process.stdout is not None
        looking = select.poll()
        looking.register(self._process.stdout, select.POLLIN)
        while not looking.poll(_LOOK_S * 1000):
            self._check("server", deadline)
        words = self._process.stdout.readline().decode().split()
        if not words:
            self._process.wait(_STOPPED_S)
            self._check("server", deadline)
        self.address = words[2]

    def _complaint(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        return lines[-1].removeprefix("error: ")
