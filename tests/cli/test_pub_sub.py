"""`echomesh pub`, `echomesh sub` and `echomesh topics`, with a server in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomesh.mesh.passwords import PasswordHash
from tests.cli.conftest import PATIENCE_S, Mesh
from tests.cli.quick import Quick
from tests.cli.server_support import ServerProcess
from tests.support.certificates import Authority

PASSWORD = "tulip and rose"


class Client:
    """Runs commands that speak to a server."""

    def __init__(self, mesh: Mesh, quick: Quick, server: ServerProcess) -> None:
        self.mesh = mesh
        self.quick = quick
        mesh.environment["ECHOMESH_SERVER"] = server.address

    def run(self, *arguments: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return self.quick(*arguments, given=given, **environment)

    def says(self, *arguments: str, given: str = "", **environment: str) -> str:
        """What a command prints that goes well."""
        result = self.run(*arguments, given=given, **environment)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def complains(self, *arguments: str, code: int = 1, **environment: str) -> str:
        """The sentence of a command that goes wrong."""
        result = self.run(*arguments, **environment)
        assert (result.returncode, result.stdout) == (code, "")
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr

    @contextlib.contextmanager
    def sub(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with self.mesh.popen("sub", *arguments) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[ServerProcess]:
    with ServerProcess(Mesh(directory).environment, directory / "open") as server:
        yield server


@pytest.fixture
def client(mesh: Mesh, quick: Quick, server: ServerProcess) -> Client:
    return Client(mesh, quick, server)


@pytest.fixture(scope="module")
def closed(directory: Path) -> Iterator[ServerProcess]:
    """A server with an access file: `shop` may publish and subscribe to orders."""
    access = directory / "access.toml"
    access.write_text(
        f'[clients.shop]\npassword = "{PasswordHash.of(PASSWORD).text}"\nenvironments = ["TST"]\n'
        'publish = ["orders"]\nsubscribe = ["orders"]\n'
    )
    access.chmod(0o600)
    with ServerProcess(Mesh(directory).environment, directory / "closed", "--access", str(access)) as server:
        yield server


def test_what_is_published_is_what_a_subscriber_gets(client: Client) -> None:
    said = client.says("pub", "a/one", '{"id": 7}', "--type", "made", "--source", "/shop", "-x", "color=red")
    assert said == "a/one: offset 0\n"
    assert client.says("sub", "a/*", "--start", "earliest", "--count", "1") == 'a/one 0: made {"id": 7}\n'
    found = json.loads(client.says("sub", "a/one", "--start", "0", "--count", "1", "--json"))
    assert (found["topic"], found["offset"]) == ("a/one", 0)
    event = found["event"]
    assert (event["type"], event["source"], event["color"], event["data"]) == ("made", "/shop", "red", {"id": 7})


def test_lines_are_events_and_events_can_be_copied(client: Client, tmp_path: Path) -> None:
    assert client.says("pub", "b/in", given="one\n\n[2]\nthree\n") == "b/in: 3 events, offsets 0 to 2\n"
    lines = client.says("sub", "b/in", "--start", "earliest", "--count", "3", "--json")
    (tmp_path / "lines").write_text(lines)
    said = json.loads(client.says("pub", "b/out", "--events", "--file", str(tmp_path / "lines"), "--json"))
    assert said == {"topic": "b/out", "events": 3, "duplicates": 0, "first": 0, "last": 2}
    copies = client.says("sub", "b/out", "--start", "earliest", "--count", "3", "--json")
    assert [json.loads(line)["event"] for line in copies.splitlines()] == [
        json.loads(line)["event"] for line in lines.splitlines()
    ]
    again = client.says("pub", "b/out", "--events", "--file", "-", given=lines)
    assert again == "b/out: 3 events, offsets 0 to 2\n"


def test_many_are_published_at_a_rate(client: Client) -> None:
    said = client.says("pub", "c", "--count", "20", "--rate", "1000")
    assert said == "c: 20 events, offsets 0 to 19\n"
    lines = client.says("sub", "c", "--start", "15", "--count", "5").splitlines()
    assert lines == [f'c {number}: message {{"number": {number}}}' for number in range(15, 20)]


def test_a_subscriber_that_names_itself_goes_on_where_it_was(client: Client) -> None:
    client.says("pub", "d", "--count", "5")
    first = client.says("sub", "d", "--client", "reader", "--start", "earliest", "--count", "2")
    second = client.says("sub", "d", "--client", "reader", "--count", "3")
    assert [line.split(":")[0] for line in (first + second).splitlines()] == [f"d {number}" for number in range(5)]


def test_members_of_a_group_share(client: Client) -> None:
    client.says("pub", "e", "--count", "6")
    one = client.says("sub", "e", "--group", "workers", "--start", "earliest", "--count", "4")
    two = client.says("sub", "e", "--group", "workers", "--count", "2")
    assert sorted(line.split(":")[0] for line in (one + two).splitlines()) == [f"e {number}" for number in range(6)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_events_are_printed_as_they_come_until_a_signal(client: Client, number: int) -> None:
    client.says("pub", "f", "zero")
    with client.sub("f", "--start", "last") as process:
        assert process.stdout is not None
        last = int(process.stdout.readline().split()[1].rstrip(":"))
        client.says("pub", "f", "next")
        assert process.stdout.readline() == f"f {last + 1}: message next\n"
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert process.returncode == 0


def test_it_ends_when_nobody_reads_what_it_prints(client: Client) -> None:
    client.says("pub", "g", "zero")
    with client.sub("g", "--start", "earliest") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "g 0: message zero\n"
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0


def test_data_of_any_kind_is_one_line(client: Client) -> None:
    client.says("pub", "h", "two\nlines")
    client.says("pub", "h", "grün")
    client.says("pub", "h", "\x1b[31mred")
    lines = client.says("sub", "h", "--start", "earliest", "--count", "3").splitlines()
    assert lines == ['h 0: message "two\\nlines"', "h 1: message grün", 'h 2: message "\\u001b[31mred"']


def test_topics_are_listed(client: Client) -> None:
    client.says("pub", "i/one", "--count", "3")
    client.says("pub", "i/two", "x", "--environment", "PRD")
    found = client.says("topics", "i/**").splitlines()
    assert [line.split() for line in found] == [
        ["topic", "level", "earliest", "next", "events"],
        ["i/one", "disk", "0", "3", "3"],
    ]
    listed = json.loads(client.says("topics", "i/**", "--json", "--environment", "PRD"))
    topic = {"topic": "i/two", "level": "disk", "earliest": 0, "next": 1, "events": 1}
    assert listed == {"environment": "PRD", "topics": [topic]}
    assert client.says("topics", "nothing/*") == "No topics in TST that match nothing/*.\n"


def test_what_can_t_be_done_is_one_sentence(client: Client) -> None:
    assert "give one or the other" in client.complains("pub", "j", "x", "--file", "y", code=2)
    assert "all lines are published" in client.complains("pub", "j", "--file", "y", "--count", "2", code=2)
    assert "nowhere: No such file" in client.complains("pub", "j", "--file", "nowhere")
    assert "is not a topic" in client.complains("pub", "j/*", "x", code=2)
    assert "no session with 127.0.0.1:1" in client.complains("topics", "--server", "127.0.0.1:1")
    assert "no bridge leads to nowhere:4889" in client.complains("pub", "j", "x", "--to", "nowhere")
    result = client.run("sub", "j", "--start", "someday")
    assert result.returncode == 2
    assert "'someday' is none of now, acknowledged, earliest, last" in result.stderr.replace("│", "").replace("\n", "")


def test_a_line_that_is_no_event_is_named(client: Client) -> None:
    result = client.run("pub", "k", "--events", given='{"specversion":"1.0","id":"1","source":"/","type":"t"}\n{}\n')
    assert result.returncode == 2
    assert result.stderr.startswith("error: line 2 of standard input: ")
    assert client.says("topics", "k").splitlines()[1].split()[-1] == "1"


def test_passwords_come_from_a_file_or_a_variable(
    mesh: Mesh, quick: Quick, closed: ServerProcess, tmp_path: Path
) -> None:
    client = Client(mesh, quick, closed)
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(PASSWORD)
    shop = ("--client", "shop", "--password-file", str(secret))
    assert client.says("pub", "orders", "one", *shop) == "orders: offset 0\n"
    said = client.says(
        "sub", "orders", "--client", "shop", "--start", "earliest", "--count", "1", ECHOMESH_PASSWORD=PASSWORD
    )
    assert said == "orders 0: message one\n"
    assert "may not publish to secrets" in client.complains("pub", "secrets", "x", *shop)
    for arguments, password in ((("--client", "shop"), ""), (("--client", "shop"), "wrong"), ((), PASSWORD)):
        complaint = client.complains("pub", "orders", "x", *arguments, ECHOMESH_PASSWORD=password)
        assert complaint == "error: unknown client or wrong password\n"


def test_a_password_is_asked_for_on_a_terminal(mesh: Mesh, quick: Quick, closed: ServerProcess) -> None:
    client = Client(mesh, quick, closed)
    handle, name = pty.openpty()
    with (
        os.fdopen(handle, "r+b", buffering=0) as terminal,
        client.mesh.popen("pub", "orders", "typed", "--client", "shop", stdin=name, stderr=name) as process,
    ):
        os.close(name)
        try:
            seen = b""
            while b"Password of shop" not in seen:
                seen += terminal.read(1024)
            # What is typed before the terminal is told not to show it would be thrown away.
            while termios.tcgetattr(terminal)[3] & termios.ECHO:
                time.sleep(0.001)
            terminal.write(PASSWORD.encode() + b"\n")
            said, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert said.startswith("orders: offset ")
    assert PASSWORD.encode() not in seen


def test_tls_needs_the_right_ca(mesh: Mesh, quick: Quick, directory: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "right")
    certificate = authority.issue("server", "127.0.0.1")
    config = tmp_path / "echomesh.toml"
    config.write_text(f'[tls]\ncertificate = "{certificate.pem}"\nkey = "{certificate.key}"\n')
    with ServerProcess(mesh.environment, directory / "tls", "--config", str(config)) as server:
        assert server.tls
        client = Client(mesh, quick, server)
        assert client.says("pub", "orders", "one", "--ca", str(authority.pem)) == "orders: offset 0\n"
        assert "its certificate is not trusted" in client.complains("pub", "orders", "one", "--tls")
