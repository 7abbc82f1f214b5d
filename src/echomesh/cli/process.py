"""An Echo nukleus in a process of its own, for commands that need one for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from types import TracebackType

from echomesh.cli.common import Wait
from echomesh.errors import BusyError, EchomeshError, OwnerAlive
from echomesh.nukleus.directory import Directory

_READY_S = 15.0
_STOPPED_S = 5.0
_LOOK_S = 0.01


class EchoProcess:
    """`echomesh echo`, ready to be used; leaving the block stops it, and it never outlives this process."""

    def __init__(self, name: str, directory: Directory, wait: Wait = Wait.BALANCED) -> None:
        place = directory.place(name)
        if not directory.dead(name) and place.path.exists():
            raise OwnerAlive(name, str(directory.root), place.owner_pid() or 0)
        command = [sys.executable, "-m", "echomesh", "echo", "--name", name, "--dir", str(directory.root)]
        # In a session of its own, since Ctrl-C is for us; it ends when our end of its standard input closes.
        self._process = subprocess.Popen(
            [*command, "--wait", wait.value, "--until-input-ends"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )
        self.pid = self._process.pid
        deadline = time.monotonic() + _READY_S
        try:
            while not (place.control.exists() and place.owner_pid() == self.pid):
                if self._process.poll() is not None:
                    raise EchomeshError(f"the echo did not start: {self._complaint()}")
                if time.monotonic() > deadline:
                    raise BusyError(f"the echo was not ready within {_READY_S:g} s")
                time.sleep(_LOOK_S)
        except BaseException:
            self.stop()
            raise

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace").strip().removeprefix("error: ")

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        self.stop()

    def stop(self) -> None:
        """Stops it, gently and then not."""
        for stream in (self._process.stdin, self._process.stderr):
            if stream is not None:
                stream.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOPPED_S)

    def __enter__(self) -> EchoProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
