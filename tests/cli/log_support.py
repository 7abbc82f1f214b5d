"""What the tests of `echomesh log` share."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from echomesh.events import Event
from echomesh.log import LogOptions, TopicLog

PATIENCE_S = 60.0


class Log:
    """A data directory, and a way to run `echomesh log` on it."""

    def __init__(self, environment: dict[str, str], data: Path) -> None:
        self.data = data
        self.environment = {**environment, "ECHOMESH_DATA": str(data)}

    def run(self, *arguments: str, input: str | bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "echomesh", "log", *arguments],
            env={**self.environment, **environment},
            input=input.encode() if isinstance(input, str) else input,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode()
        )

    def json(self, *arguments: str, input: str = "") -> Any:
        return json.loads(self.run(*arguments, input=input).stdout)

    def lines(self, *arguments: str) -> list[Any]:
        result = self.run(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]

    @contextlib.contextmanager
    def started(self, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """A command that runs meanwhile; it is killed at the end unless it has stopped."""
        with subprocess.Popen(
            [sys.executable, "-m", "echomesh", "log", *arguments],
            env=self.environment,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        ) as process:
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()


def event(number: int, size: int = 10) -> Event:
    return Event(type="test", source="/tests", id=str(number), data={"number": number, "text": "x" * size})


def filled(data: Path, topics: dict[str, int], size: int = 10, **options: Any) -> None:
    """Appends so many events to each topic, and closes the log."""
    with TopicLog(data, LogOptions(**options)) as log:
        for topic, count in topics.items():
            log.append_many(topic, [event(number, size) for number in range(count)])
