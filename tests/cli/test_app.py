"""What all commands have in common: help, version, errors, logging."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import echomesh
from tests.cli.conftest import Mesh


def test_the_version_is_the_package_s(mesh: Mesh) -> None:
    result = mesh.run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"echomesh {echomesh.__version__}\n", "")


@pytest.mark.parametrize("command", [[], ["echo"], ["ping"], ["control"], ["streams"]])
def test_help_shows_examples(mesh: Mesh, command: list[str]) -> None:
    result = mesh.run(*command, "--help")
    assert result.returncode == 0
    assert "Examples" in result.stdout
    assert " ".join(["echomesh", *command]) in result.stdout


def test_help_lists_every_command(mesh: Mesh) -> None:
    text = mesh.run("--help").stdout
    assert [name for name in ("echo", "ping", "control", "streams", "demo") if f" {name} " not in text] == []


def test_an_unknown_command_is_a_usage_error(mesh: Mesh) -> None:
    result = mesh.run("nope")
    assert result.returncode == 2
    assert "nope" in result.stderr


def test_an_error_is_one_sentence_without_a_traceback(mesh: Mesh) -> None:
    result = mesh.run("ping")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback(mesh: Mesh) -> None:
    asked = mesh.run("--debug", "ping")
    by_environment = mesh.run("ping", ECHOMESH_DEBUG="1")
    for result in (asked, by_environment):
        assert result.returncode == 1
        assert "Traceback" in result.stderr
        assert "NukleusGone" in result.stderr


def test_verbose_logs_to_the_side(mesh: Mesh) -> None:
    with mesh.popen("-v", "echo") as echo:
        assert echo.stdout is not None
        assert echo.stdout.readline().startswith("echo is ready")
        assert mesh.run("control", "echo", "unroute", "nobody").returncode == 1
        echo.terminate()
        _, log = echo.communicate()
    assert "UNROUTE nukleus='nobody' was refused" in log


def test_the_installed_command_is_the_same(mesh: Mesh) -> None:
    script = Path(sys.executable).parent / "echomesh"
    result = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert result.stdout == mesh.run("--version").stdout
