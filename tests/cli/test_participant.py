"""`echomesh participant` and `echomesh participants`."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Mesh
from tests.cli.quick import Quick
from tests.support.ports import free_port


@contextlib.contextmanager
def participant(mesh: Mesh, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with mesh.popen("participant", "--port", "0", "--group", "", *options) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_leaves_no_file(mesh: Mesh, number: int) -> None:
    port = free_port(udp=True)
    with participant(mesh, "--beacon-port", str(port), "--domain", "lab") as (process, said):
        assert re.fullmatch(
            rf"participant [0-9a-f]{{8}} of domain lab: beacons on UDP {port}, .* 127\.0\.0\.1:\d+\. .*\n", said
        )
        assert mesh.stop(process, number) == "The participant stopped.\n"
    assert process.returncode == 0
    assert not mesh.root.exists()


def test_a_second_one_is_refused_with_the_process_that_is_there(mesh: Mesh, quick: Quick) -> None:
    port = str(free_port(udp=True))
    with participant(mesh, "--beacon-port", port) as (process, _):
        result = quick("participant", "--beacon-port", port, "--port", "0")
        assert result.returncode == 1
        assert f"belongs to process {process.pid}" in result.stderr


def test_those_that_are_known_are_listed(mesh: Mesh, quick: Quick) -> None:
    with participant(mesh, "--beacon-port", str(free_port(udp=True))):
        facts = json.loads(quick("participants", "--json").stdout)
        listed = quick("participants").stdout
    (seen,) = facts["participants"]
    assert seen["linked"] is True
    assert (seen["publishers"], seen["subscribers"]) == ([], [])
    assert seen["id"][:8] in listed
    assert "this machine" in listed


def test_with_no_participant_there_is_a_hint(quick: Quick) -> None:
    result = quick("participants")
    assert result.returncode == 1
    assert "`echomesh participant`" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [("--group", "10.0.0.1", "multicast"), ("--peer", "host:0", "host:port"), ("--port", "70000", "65535")],
)
def test_an_option_that_can_not_be_used_is_a_usage_error(
    mesh: Mesh, quick: Quick, option: str, value: str, word: str
) -> None:
    result = quick("participant", option, value)
    assert result.returncode == 2
    assert word in result.stderr
    assert not mesh.root.exists()
