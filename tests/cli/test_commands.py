"""Commands are loaded when they are wanted, and no sooner."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from echomesh.cli.commands import COMMANDS, wanted
from tests.support.repository import ROOT


def loaded(*arguments: str) -> set[str]:
    """The modules that a command line has loaded at its end."""
    script = (
        "import json, sys\n"
        "from echomesh.cli.app import run\n"
        "try:\n"
        "    run(sys.argv[1:])\n"
        "finally:\n"
        "    print(json.dumps(list(sys.modules)), file=sys.stderr)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", script, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return set(json.loads(found.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--version"], ["echo", "--help"], ["-v", "streams", "--help"]])
def test_a_command_that_does_without_the_log_does_not_load_it(arguments: list[str]) -> None:
    modules = loaded(*arguments)
    assert "echomesh.cli.app" in modules
    assert not {name for name in modules if name.startswith(("echomesh.log", "echomesh.mesh", "pyarrow"))}


def test_the_log_s_commands_load_the_log_alone() -> None:
    modules = loaded("log", "ls", "--help")
    assert "echomesh.log" in modules
    assert not {name for name in modules if name.startswith(("echomesh.mesh", "echomesh.node", "pyarrow"))}


def test_a_command_line_knows_all_commands_unless_it_names_one() -> None:
    assert wanted(["log", "ls"]) == ["log"]
    assert wanted(["--debug", "-v", "ping", "--help"]) == ["ping"]
    assert wanted(["--version"]) == []
    for asked in ([], ["--help"], ["nope"], ["-v"]):
        assert wanted(asked) == list(COMMANDS)
