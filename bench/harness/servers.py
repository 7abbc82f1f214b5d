"""Servers in processes of their own: started, waited for, asked for their processor time, stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness.pairs import MeasurementFailed

READY_SECONDS = 15.0
STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.02


class ServerProgram:
    """A program that listens on a TCP port of this machine; leaving the block stops it."""

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        self._name = Path(command[0]).name
        self._log = log
        self.address = f"127.0.0.1:{port}"
        with log.open("wb") as output:
            # In a session of its own: Ctrl-C is the harness's to handle.
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.pid = self._process.pid
        try:
            self._wait(port)
        except BaseException:
            self._stop()
            raise

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
                    raise MeasurementFailed(f"{self._name} did not start: {said[-1]}") from None
                time.sleep(_LOOK_SECONDS)

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> ServerProgram:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, all of its threads, kernel included."""
    # The name in parentheses may have spaces; utime and stime are fields 14 and 15.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
