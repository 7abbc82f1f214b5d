"""`echomesh echo`."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.cli.conftest import PATIENCE_S, Mesh


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_stops_cleanly_and_leaves_no_file(mesh: Mesh, number: int) -> None:
    with mesh.echo() as echo:
        assert mesh.files() != []
        said = mesh.stop(echo, number)
    assert echo.returncode == 0
    assert said == "echo stopped: it read 0 frames on 0 streams and left no file.\n"
    assert not mesh.root.exists()


@pytest.mark.parametrize("wait", ["spin", "balanced", "sleep"])
def test_it_says_what_it_did(mesh: Mesh, wait: str) -> None:
    with mesh.echo("echo", "--wait", wait) as echo:
        assert mesh.run("ping", "--count", "5").returncode == 0
        # A BEGIN and an END beside the five.
        assert mesh.stop(echo).startswith("echo stopped: it read 7 frames on 1 stream ")


def test_it_tells_how_to_ping_it(mesh: Mesh) -> None:
    elsewhere = str(mesh.root.parent / "other place")
    with mesh.popen("echo", "--name", "mirror", "--dir", elsewhere) as echo:
        assert echo.stdout is not None
        ready = echo.stdout.readline()
        mesh.stop(echo)
    assert f"try echomesh ping mirror --dir '{elsewhere}';" in ready


def test_a_name_that_is_taken_is_refused_with_the_process_that_has_it(mesh: Mesh) -> None:
    with mesh.echo() as echo:
        result = mesh.run("echo")
        assert result.returncode == 1
        assert f"belongs to process {echo.pid}" in result.stderr
        assert mesh.run("ping", "--count", "1").returncode == 0


@pytest.mark.parametrize("name", ["../up", ".hidden", "a/b", ""])
def test_a_name_that_is_none_is_a_usage_error_and_touches_no_file(mesh: Mesh, name: str) -> None:
    result = mesh.run("echo", "--name", name)
    assert result.returncode == 2
    assert "is not a name" in result.stderr
    assert not mesh.root.exists()


def test_it_takes_the_place_of_one_that_was_killed(mesh: Mesh) -> None:
    with mesh.echo() as echo:
        mesh.kill(echo)
    assert mesh.files() != []
    with mesh.echo() as echo:
        assert mesh.run("ping", "--count", "10").returncode == 0
        mesh.stop(echo)
    assert not mesh.root.exists()


def test_one_that_was_started_for_a_while_ends_with_its_starter(mesh: Mesh) -> None:
    with mesh.popen("echo", "--until-input-ends", stdin=subprocess.PIPE) as echo:
        assert echo.stdin is not None
        assert echo.stdout is not None
        assert echo.stdout.readline().startswith("echo is ready")
        echo.stdin.close()
        assert echo.wait(PATIENCE_S) == 0
    assert not mesh.root.exists()
