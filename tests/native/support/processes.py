"""Real processes beside the test's own; each ends with the test, and a crash says where."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import echomesh

ROOT = Path(__file__).parents[3]


def environment() -> dict[str, str]:
    """The same echomesh and the same tests as here."""
    found = os.pathsep.join([str(Path(str(echomesh.__file__)).parents[1]), str(ROOT)])
    return {**os.environ, "PYTHONPATH": found, "PYTHONFAULTHANDLER": "1"}


class Process:
    """One process with pipes for lines; `module` is in tests.native.support, `role` a function in it."""

    def __init__(self, module: str, role: str, *args: object) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", f"tests.native.support.{module}", role, *map(str, args)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def line(self) -> str:
        """The next line that it prints."""
        assert self.popen.stdout is not None
        text = self.popen.stdout.readline()
        assert text, f"process {self.popen.args!r} ended with {self.popen.wait()}"
        return text.strip()

    def say(self, text: str = "go") -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(text + "\n")
        self.popen.stdin.flush()

    def kill(self) -> None:
        self.popen.kill()
        self.end()

    def end(self, timeout: float = 60) -> int:
        """Its exit code; negative for a signal."""
        try:
            return self.popen.wait(timeout)
        finally:
            for pipe in (self.popen.stdin, self.popen.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def running(module: str, role: str, *args: object) -> Iterator[Process]:
    process = Process(module, role, *args)
    try:
        yield process
    finally:
        process.kill()


def run_code(code: str, *args: object, timeout: float = 60) -> str:
    """Runs a snippet in its own process and gives what it printed; a crash or a traceback fails the test."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"
    return done.stdout


def eventually(condition: Callable[[], bool], timeout: float = 30) -> None:
    """Waits for what must become true soon, however busy the machine is."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.001)
