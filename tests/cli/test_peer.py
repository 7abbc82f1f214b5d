"""`pub --peer`, `sub --peer`, `record` and `replay`: messages from process to process, without a server."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomesh.data.config import DataOptions
from echomesh.data.starting import find
from tests.cli.conftest import PATIENCE_S, Mesh
from tests.support.processes import until

JPEG = b"\xff\xd8\xff\xe0" + os.urandom(50_000) + b"\xff\xd9"


@pytest.fixture
def peers(mesh: Mesh) -> Iterator[Mesh]:
    """A mesh of this test's own; its participant has gone at the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    own = {"BEACON_PORT": str(port), "PARTICIPANT_PORT": "0", "LINGER_SECONDS": "0.1", "GROUP": ""}
    mesh.environment |= {f"ECHOMESH_{name}": value for name, value in own.items()}
    yield mesh
    options = DataOptions(directory=mesh.root)
    until(lambda: find(options) is None and not mesh.root.exists())


@contextlib.contextmanager
def sub(peers: Mesh, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with peers.popen("sub", "--peer", *arguments) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str]) -> list[str]:
    said, complaint = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaint) == (0, "")
    return said.splitlines()


@contextlib.contextmanager
def pub(peers: Mesh, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Publishes until it is stopped, and says how it went."""
    with peers.popen("pub", "--peer", *arguments, "--every", "0.02") as process:
        try:
            yield process
            process.send_signal(signal.SIGINT)
            said, complaint = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0
            assert " sent" in said + complaint
        finally:
            process.kill()


def test_messages_are_printed_as_text_hex_or_json(peers: Mesh) -> None:
    with (
        sub(peers, "t/*", "--count", "2") as text,
        sub(peers, "t/a", "--count", "2", "--format", "hex") as in_hex,
        sub(peers, "**", "--count", "2", "--json") as in_json,
        pub(peers, "t/a", "hello"),
    ):
        first, second = lines(text)
        number = int(first.split()[1].rstrip(":"))
        assert [first, second] == [f"t/a {number}: hello", f"t/a {number + 1}: hello"]
        assert [line.partition(": ")[2] for line in lines(in_hex)] == ["68 65 6c 6c 6f"] * 2
        found = [json.loads(line) for line in lines(in_json)]
        assert [message["data"] for message in found] == ["hello", "hello"]
        assert found[1]["sequence"] == found[0]["sequence"] + 1
        assert found[0]["topic"] == "t/a"


def test_a_jpeg_is_sent_from_a_file_and_saved_as_such(peers: Mesh, tmp_path: Path) -> None:
    (tmp_path / "frame.jpg").write_bytes(JPEG)
    with (
        sub(peers, "camera/*", "--count", "1", "--to", str(tmp_path / "frames")) as saving,
        sub(peers, "camera/*", "--count", "1", "--json") as in_json,
        pub(peers, "camera/front", "--file", str(tmp_path / "frame.jpg")),
    ):
        (saved,) = lines(saving)
        assert Path(saved).suffix == ".jpg"
        assert Path(saved).read_bytes() == JPEG
        assert base64.b64decode(json.loads(lines(in_json)[0])["data_base64"]) == JPEG


def test_lines_of_standard_input_are_messages(peers: Mesh) -> None:
    with sub(peers, "t", "--count", "3") as text:
        given = peers.popen("pub", "--peer", "t", "--wait", "30", "--json", stdin=subprocess.PIPE)
        said, complaint = given.communicate("one\ntwo\n\n", timeout=PATIENCE_S)
        assert complaint == ""
        assert json.loads(said) == {"topic": "t", "sent": 3, "subscribers": 1}
        assert lines(text) == ["t 0: one", "t 1: two", "t 2: "]


def test_a_message_for_nobody_is_said_to_be_so(peers: Mesh) -> None:
    result = peers.run("pub", "--peer", "t", "hello", "--wait", "0")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "1 message sent, and nobody subscribes to t\n"


def test_bad_topics_are_refused_in_a_sentence(peers: Mesh) -> None:
    for arguments in (("pub", "--peer", "a/*", "x"), ("sub", "--peer", "a//b")):
        result = peers.run(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("error: ")


def test_a_recording_is_replayed_message_by_message(peers: Mesh, tmp_path: Path) -> None:
    file = str(tmp_path / "some.mcap")
    with peers.popen("record", "**", file, "--count", "5", "--json") as recording:
        with pub(peers, "t/a", "hello"), pub(peers, "t/b", "world"):
            said, complaint = recording.communicate(timeout=PATIENCE_S)
        assert complaint == ""
        assert json.loads(said) == {"file": file, "messages": 5}
    for speed in ("0", "5"):
        with sub(peers, "**", "--count", "5", "--json") as in_json:
            replayed = peers.run("replay", file, "--speed", speed, "--wait", "30", "--json")
            assert replayed.returncode == 0, replayed.stderr
            assert json.loads(replayed.stdout)["messages"] == 5
            found = [json.loads(line) for line in lines(in_json)]
            assert {(message["topic"], message["data"]) for message in found} <= {("t/a", "hello"), ("t/b", "world")}
            assert len(found) == 5


def test_a_file_that_is_no_recording_is_refused(peers: Mesh, tmp_path: Path) -> None:
    (tmp_path / "no.mcap").write_bytes(b"something else")
    result = peers.run("replay", str(tmp_path / "no.mcap"))
    assert (result.returncode, result.stdout) == (1, "")
    assert "can't be read as MCAP" in result.stderr
    assert peers.run("replay", str(tmp_path / "missing.mcap")).returncode == 1
