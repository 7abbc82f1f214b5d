"""`echomesh control`."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.conftest import Mesh


def said(mesh: Mesh, *arguments: str) -> str:
    result = mesh.run("control", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_every_command_gets_its_response(mesh: Mesh) -> None:
    with mesh.echo("a"), mesh.echo("b"):
        assert said(mesh, "a", "capture", "b") == "CAPTURED\n"
        assert said(mesh, "b", "capture", "a") == "CAPTURED\n"
        assert said(mesh, "a", "route", "b") == "ROUTED\n"
        assert said(mesh, "b", "route", "a") == "ROUTED\n"
        assert said(mesh, "a", "bind", "b") == "BOUND reference=2\n"
        assert said(mesh, "a", "bind", "b", "7") == "BOUND reference=4\n"
        assert said(mesh, "b", "prepare", "a", "2") == "PREPARED reference=1\n"
        assert said(mesh, "b", "connect", "1").startswith("CONNECTED reference=")
        assert said(mesh, "b", "unprepare", "1") == "UNPREPARED\n"
        assert said(mesh, "a", "unbind", "2") == "UNBOUND\n"
        assert said(mesh, "b", "unroute", "a") == "UNROUTED\n"
        assert said(mesh, "a", "uncapture", "b") == "UNCAPTURED\n"


def test_json_names_command_response_and_reference(mesh: Mesh) -> None:
    with mesh.echo():
        captured = mesh.json("control", "echo", "capture", "echo", "--json")
        assert captured == {"nukleus": "echo", "command": "CAPTURE", "response": "CAPTURED"}
        assert mesh.run("control", "echo", "route", "echo").returncode == 0
        bound = mesh.json("control", "echo", "bind", "echo", "--json")
        assert bound == {"nukleus": "echo", "command": "BIND", "response": "BOUND", "reference": 2}


REFUSED = {
    "uncapture x": "it is not captured",
    "route x": "CAPTURE comes first",
    "unroute x": "it is not routed",
    "bind x": "both captured and routed",
    "prepare x 2": "both captured and routed",
    "unbind 2": "no bind reference",
    "unprepare 1": "no prepare reference",
    "connect 1": "no prepare reference",
}


def test_a_refusal_is_one_sentence_with_its_likely_reason(mesh: Mesh) -> None:
    with mesh.echo():
        for command, reason in REFUSED.items():
            result = mesh.run("control", "echo", *command.split())
            assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
            assert result.stderr.startswith(f"error: echo refused {command.split()[0].upper()} ")
            assert reason in result.stderr


def test_a_refusal_as_json_says_the_same(mesh: Mesh) -> None:
    with mesh.echo():
        result = mesh.run("control", "echo", "unbind", "2", "--json")
    sentence = result.stderr.strip().removeprefix("error: ")
    assert json.loads(result.stdout) == {"error": sentence, "kind": "CommandRefused"}


def test_one_that_is_stopped_times_out(mesh: Mesh) -> None:
    with mesh.echo() as echo:
        echo.send_signal(signal.SIGSTOP)
        result = mesh.run("control", "echo", "capture", "x", "--timeout", "0.2")
        echo.send_signal(signal.SIGCONT)
    assert result.returncode == 1
    assert result.stderr.startswith("error: no answer from echo to CAPTURE nukleus='x' in 0.2 s")


def test_one_that_is_not_there_is_gone(mesh: Mesh) -> None:
    result = mesh.run("control", "nobody", "capture", "x")
    assert result.returncode == 1
    assert f"no nukleus 'nobody' runs in {mesh.root}" in result.stderr
    assert not mesh.root.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["echo"],
        ["echo", "nope"],
        ["echo", "bind"],
        ["echo", "prepare", "x"],
        ["echo", "unbind", "two"],
        ["echo", "capture", "../x"],
    ],
    ids=" ".join,
)
def test_what_makes_no_command_is_a_usage_error(mesh: Mesh, arguments: list[str]) -> None:
    result = mesh.run("control", *arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
