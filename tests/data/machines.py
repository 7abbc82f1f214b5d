"""Machines with user processes on them: directories on this one, or network namespaces joined by a switch."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from echomesh.data.config import DataOptions
from echomesh.data.starting import Address, find
from tests.support.ports import free_port
from tests.support.repository import ROOT

PATIENCE_S = 30.0
_numbers = itertools.count()


def eventually(look: Callable[[], Any], expected: Any) -> None:
    """Waits until a look gives what is expected; says what it gave instead."""
    deadline = time.monotonic() + PATIENCE_S
    while (seen := look()) != expected:
        assert time.monotonic() < deadline, f"{seen} instead of {expected}"
        time.sleep(0.02)


class Worker:
    """A user process of a machine, in our hands."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._ready = False  # which is waited for when it is first asked, so that several can start at once

    def ask(self, **command: Any) -> Any:
        """Has it do something."""
        assert self._process.stdin is not None
        if not self._ready:
            assert self._answer() == "ready"
            self._ready = True
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def pub(self, topic: str) -> str:
        """A publisher; its id."""
        return str(self.ask(pub=topic))

    def sub(self, filter: str) -> str:
        """A subscriber; its id."""
        return str(self.ask(sub=filter))

    def list(self, id: str) -> dict[str, str]:
        """Whom a publisher or subscriber is matched with, and over which path."""
        found: dict[str, str] = self.ask(list=id)
        return found

    def sees(self, id: str, expected: dict[str, str]) -> None:
        """Waits until that list is right."""
        eventually(lambda: self.list(id), expected)

    def facts(self) -> dict[str, Any]:
        """What it has counted."""
        found: dict[str, Any] = self.ask(facts=1)
        return found

    def send(self, number: int) -> None:
        """A signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self.end()

    def end(self) -> None:
        """Lets it leave, and waits for that."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait(PATIENCE_S)


class Machine:
    """A directory, ports and processes of their own."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "ECHOMESH_DIR": str(root),
            "ECHOMESH_LINGER_SECONDS": "0.2",
            "ECHOMESH_BEACON_SECONDS": "0.1",
            **environment,
        }
        self._workers: list[Worker] = []

    def command(self, *arguments: str) -> list[str]:
        """How a Python module is run here."""
        return [sys.executable, "-m", *arguments]

    def worker(self, name: str | None = None, **environment: str) -> Worker:
        """A new user process."""
        named = name or f"p{next(_numbers)}"
        command = self.command("tests.data.control_process", named)
        worker = Worker(command, {**self.environment, **environment})
        self._workers.append(worker)
        return worker

    @property
    def options(self) -> DataOptions:
        """As a process of this machine has them, as far as finding the participant goes."""
        return DataOptions(directory=self.root)

    def address(self) -> Address:
        """Where the participant is."""
        found = find(self.options)
        assert found is not None
        return found

    def kill_participant(self, number: int = signal.SIGKILL) -> int:
        """Ends the participant; its pid."""
        pid = self.address().pid
        os.kill(pid, number)
        return pid

    def close(self) -> None:
        """Ends all processes, and waits until the participant has gone with them."""
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                worker.send(signal.SIGCONT)
                worker.send(signal.SIGKILL)
            worker.end()
        eventually(lambda: find(self.options), None)


@contextlib.contextmanager
def machine(root: Path, **environment: str) -> Iterator[Machine]:
    """A machine in a directory of this one; it hears nobody else's beacons."""
    beacons = str(free_port(udp=True))
    quiet = {"ECHOMESH_BEACON_PORT": beacons, "ECHOMESH_PARTICIPANT_PORT": "0", "ECHOMESH_GROUP": ""}
    made = Machine(root, **{**quiet, "ECHOMESH_BROADCAST": "0", **environment})
    try:
        yield made
    finally:
        made.close()
