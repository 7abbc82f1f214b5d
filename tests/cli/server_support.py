"""`echomesh up` in processes of its own, for tests of commands that need a server."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.log_support import PATIENCE_S

_LINE = re.compile(
    r"echomesh serves (?P<mesh>[^ ,]+)(?:, (?P<http>https?://[^ ,]+))?(?P<tls> with TLS)? from (?P<data>.+)\. "
)


class ServerProcess:
    """A server that is ready; it is killed at the end unless it has stopped."""

    def __init__(self, environment: dict[str, str], data: Path, *options: str, listen: str = "127.0.0.1:0") -> None:
        self.environment = environment
        self.data = data
        self.options = options
        self.log_path = data.with_suffix(".log")
        self.process: subprocess.Popen[str]
        self._start(listen)

    def _start(self, listen: str) -> None:
        command = [sys.executable, "-m", "echomesh", "up", "--data", str(self.data), "--listen", listen, *self.options]
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = _LINE.match(self.line)
        if found is None:
            self.kill()
        assert found is not None, self.line + self.log
        self.address, self.http, self.tls = found["mesh"], found["http"], bool(found["tls"])
        assert found["data"] == str(self.data)

    @property
    def log(self) -> str:
        """What it said on standard error."""
        return self.log_path.read_text()

    def again(self) -> None:
        """Starts it again where it was, after it has ended."""
        self._let_go()
        self._start(self.address)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it by a signal; its exit code. It said nothing more."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        assert said == ""
        return self.process.returncode

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        self._let_go()

    def _let_go(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()
