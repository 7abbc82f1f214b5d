"""Commands in processes of their own that start at once: forked from one that has everything imported.

`python -m tests.cli.quick` is that process. It reads requests as lines of JSON, and answers with lines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from types import TracebackType
from typing import Any, Protocol, Self

from echomesh.cli.commands import COMMANDS
from tests.support.repository import ROOT

PRELOADED = (
    "echomesh.cli.app",
    *(f"echomesh.cli.{command.module}" for command in COMMANDS.values()),
    "echomesh.mesh.client",
    "echomesh.node.node",
    "uvloop",
    "rich.markdown",
)


class Quick(Protocol):
    """Runs a command to its end."""

    def __call__(self, *arguments: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]: ...


class Forker:
    """Runs commands, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.quick"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, environment: dict[str, str], given: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        request = {"arguments": arguments, "environment": environment, "given": given}
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        return subprocess.CompletedProcess(arguments, answer["code"], answer["said"], answer["complaint"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def main() -> None:
    """Serves until standard input ends."""
    for name in PRELOADED:
        __import__(name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Runs one command in a child."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complaint:
        given.write(request["given"])
        given.flush()
        given.seek(0)
        pid = os.fork()
        if pid == 0:
            for number, file in enumerate((given, said, complaint)):
                os.dup2(file.fileno(), number)
            os._exit(command(request))
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (said, complaint):
            file.seek(0)
            texts.append(file.read().decode())
    return {"code": os.waitstatus_to_exitcode(status), "said": texts[0], "complaint": texts[1]}


def command(request: dict[str, Any]) -> int:
    """The child's part."""
    from echomesh.cli.app import run

    os.environ.clear()
    os.environ.update(request["environment"])
    try:
        return run(request["arguments"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main()
