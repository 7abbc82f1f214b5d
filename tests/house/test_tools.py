"""A machine that lacks something gets one sentence that says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def script(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_toolchain_of_this_machine_is_complete() -> None:
    result = run(sys.executable, "tools/toolchain.py")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_without_a_compiler_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    result = run(sys.executable, "tools/toolchain.py", PATH=str(tmp_path), CC="")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.rstrip().endswith("apt-get install gcc")


def test_without_headers_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import runpy, sysconfig\n"
        f"sysconfig.get_path = lambda name: {str(tmp_path)!r}\n"
        "print(runpy.run_path('tools/toolchain.py')['missing']())"
    )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert run(sys.executable, "-c", code).stdout.rstrip().endswith(f"apt-get install python{version}-dev")


def test_a_python_that_answers_is_found_behind_one_that_does_not(tmp_path: Path) -> None:
    script(tmp_path, "python3.11", "echo 'python3.11: command not found' >&2; exit 127")
    script(tmp_path, "python3.12", f'exec {sys.executable} "$@"')
    result = run("/bin/sh", "tools/find-python", PATH=str(tmp_path))
    assert (result.returncode, result.stdout) == (0, f"{sys.executable}\n")


def test_without_python_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    script(tmp_path, "python3", "exit 3")
    result = run("/bin/sh", "tools/find-python", PATH=str(tmp_path))
    assert result.returncode == 1
    assert "Python 3.11 or newer" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_python_without_venv_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    script(tmp_path, "python3", "exit 4")
    result = run("/bin/sh", "tools/find-python", PATH=str(tmp_path))
    assert result.returncode == 1
    assert "apt-get install python3-venv" in result.stderr


def test_a_failed_step_fails_with_the_status_of_its_command() -> None:
    failed = run("tools/step", "name", "sh", "-c", "exit 7")
    assert failed.returncode == 7
    assert "name FAILED" in failed.stdout
    assert "name passed in" in run("tools/step", "name", "true").stdout
