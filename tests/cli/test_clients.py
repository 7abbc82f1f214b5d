"""`echomesh clients`: an access file made, shown and changed from the command line."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from echomesh.cli import clients_file
from echomesh.errors import BadAccessFile, UsageError
from echomesh.mesh.access import Access
from echomesh.mesh.passwords import PasswordHash
from tests.cli.clients_support import Clients
from tests.cli.conftest import PATIENCE_S, Mesh

HASH = PasswordHash(bytes(16), bytes(32)).text


@pytest.fixture
def clients(mesh: Mesh, shm_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Clients:
    return Clients(mesh, shm_dir / "data", monkeypatch, capsys)


@pytest.mark.parametrize("command", ["add", "ls", "rm", "passwd"])
def test_help_shows_examples(clients: Clients, command: str) -> None:
    result = clients.run(command, "--help")
    assert result.returncode == 0
    assert f"echomesh clients {command}" in result.stdout.partition("Examples")[2]


def test_a_client_is_added_shown_changed_and_removed(clients: Clients) -> None:
    added = clients.process(
        *("add", "shop", "--publish", "/orders/**", "--publish", "carts", "--subscribe", "alerts/*"),
        *("--environment", "TST", "--environment", "PRD", "--rate", "250"),
        input=b"first password\n",
    )
    assert (added.returncode, added.stderr) == (0, "")
    assert added.stdout == (
        f"shop is in {clients.file}: in TST PRD it may publish to orders/**, carts, and subscribe to alerts/*, "
        "at most 250 publishes a second.\n"
    )
    assert clients.run("add", "admin", "--admin", "--server", input=b"x\n").returncode == 0
    listed = json.loads(clients.run("ls", "--json").stdout)
    assert listed == {
        "access": str(clients.file),
        "clients": [
            {
                "client_id": "admin",
                "environments": ["TST"],
                "publish": [],
                "subscribe": [],
                "publishes_per_second": None,
                "admin": True,
                "server": True,
            },
            {
                "client_id": "shop",
                "environments": ["TST", "PRD"],
                "publish": ["orders/**", "carts"],
                "subscribe": ["alerts/*"],
                "publishes_per_second": 250.0,
                "admin": False,
                "server": False,
            },
        ],
    }
    assert clients.password_is("shop", "first password")
    changed = clients.process("passwd", "shop", input=b"second password\r\n")
    assert (changed.returncode, changed.stdout) == (0, f"shop has a new password in {clients.file}.\n")
    assert clients.password_is("shop", "second password")
    assert not clients.password_is("shop", "first password")
    removed = clients.run("rm", "shop")
    assert (removed.returncode, removed.stdout) == (0, f"shop is no longer in {clients.file}.\n")
    assert [client.client_id for client in clients.access()] == ["admin"]


def test_the_table_shows_every_client(clients: Clients) -> None:
    clients.data.mkdir()
    clients_file.add(clients.file, "shop", {"password": HASH, "publish": ["orders/**", "carts"], "admin": True})
    clients_file.add(clients.file, "[red]gate 7", {"password": HASH, "environments": ["TST"]})
    result = clients.run("ls")
    assert result.stderr == ""
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines == [
        ["client", "environments", "publish", "subscribe", "publishes/s", "rights"],
        ["[red]gate", "7", "TST"],
        ["shop", "orders/**", "admin"],
        ["carts"],
    ]
    assert HASH[-30:] not in result.stdout


def test_the_file_is_for_its_owner_alone(clients: Clients) -> None:
    clients.run("add", "shop", input=b"x\n")
    assert stat.S_IMODE(clients.file.stat().st_mode) == 0o600
    clients.file.chmod(0o644)
    assert "chmod o-r" in clients.run("ls").stderr
    clients.run("add", "gate", input=b"x\n")
    assert stat.S_IMODE(clients.file.stat().st_mode) == 0o640 & 0o644
    assert [path.name for path in clients.data.iterdir()] == ["access.toml"]


def test_a_file_that_everybody_may_write_is_not_believed(clients: Clients) -> None:
    clients.run("add", "shop", input=b"x\n")
    clients.file.chmod(0o666)
    for command in (["ls"], ["add", "gate"], ["rm", "shop"], ["passwd", "shop"]):
        result = clients.run(*command, input=b"x\n")
        assert (result.returncode, result.stdout) == (1, "")
        assert "everybody on this machine may write it" in result.stderr


def test_the_file_may_be_named(clients: Clients, shm_dir: Path) -> None:
    by_option, by_variable = shm_dir / "etc" / "one.toml", shm_dir / "two.toml"
    assert clients.run("add", "shop", "--access", str(by_option), input=b"x\n").returncode == 0
    assert clients.run("add", "shop", input=b"x\n", ECHOMESH_ACCESS=str(by_variable)).returncode == 0
    assert by_option.exists()
    assert by_variable.exists()
    assert not clients.file.exists()
    result = clients.run("ls", ECHOMESH_DATA="")
    assert result.returncode == 2
    assert result.stderr == "error: say where the access file is: --access FILE, or --data DIR for DIR/access.toml\n"


class TestPasswords:
    def test_on_a_terminal_it_is_asked_for_twice_and_not_shown(self, clients: Clients) -> None:
        code, shown = clients.typed("add", "shop", answers=["open sesame", "open sesame"])
        assert code == 0
        assert shown.startswith("Password of shop: |\r\nOnce more: |\r\nshop is in ")
        assert "open sesame" not in shown
        assert clients.password_is("shop", "open sesame")

    def test_a_slip_is_asked_for_again(self, clients: Clients) -> None:
        code, shown = clients.typed("add", "shop", answers=["open sesame", "open sesam", "second", "second"])
        assert code == 0
        assert "do not match" in shown
        assert clients.password_is("shop", "second")

    def test_by_pipe_it_is_one_line(self, clients: Clients) -> None:
        clients.run("add", "shop", input=b"  with spaces \nmore lines\n")
        assert clients.password_is("shop", "  with spaces ")
        clients.run("passwd", "shop", "--password-stdin", input=b"without an end")
        assert clients.password_is("shop", "without an end")

    @pytest.mark.parametrize("line", [b"", b"\n", b"x" * 1025 + b"\n", b"\xff\xfe\n", "é".encode() * 600])
    def test_what_can_be_no_password_is_refused(self, clients: Clients, line: bytes) -> None:
        result = clients.run("add", "shop", input=line)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == "error: a password has 1 to 1024 bytes of UTF-8\n"
        assert not clients.file.exists()

    def test_it_is_never_an_argument(self, clients: Clients) -> None:
        for arguments in (["--password", "hunter2"], ["hunter2"]):
            result = clients.run("add", "shop", *arguments)
            assert result.returncode == 2

    def test_it_is_in_no_output_and_no_traceback(self, clients: Clients) -> None:
        shown = ""
        for command in (["add", "shop"], ["add", "shop"], ["passwd", "nobody"], ["passwd", "shop"]):
            result = clients.run(*command, input=b"hunter2\n", ECHOMESH_DEBUG="1")
            shown += result.stdout + result.stderr
        assert "Traceback" in shown
        assert "hunter2" not in shown + clients.file.read_text()


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["add", "sho*"], "error: 'sho*' is not a client id: use 1 to 255 bytes"),
            (["add", "gate", "--publish", "a//b"], "error: 'a//b' is not a filter: it has an empty segment"),
            (["add", "shop"], "error: shop is in {file} already: change its entry there, or remove it first"),
            (["rm", "gate"], "error: gate is not in {file}; there is shop"),
            (["passwd", "gate"], "error: gate is not in {file}; there is shop"),
        ],
    )
    def test_misuse_is_one_sentence_and_changes_nothing(
        self, clients: Clients, arguments: list[str], sentence: str
    ) -> None:
        clients.data.mkdir()
        clients_file.add(clients.file, "shop", {"password": HASH})
        before = clients.file.read_bytes()
        result = clients.run(*arguments, input=b"x\n")
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert result.stderr.startswith(sentence.format(file=clients.file))
        assert clients.file.read_bytes() == before

    @pytest.mark.parametrize("arguments", [["--environment", "prod"], ["--rate", "0"], ["--rate", "many"]])
    def test_a_wrong_value_names_its_option(self, clients: Clients, arguments: list[str]) -> None:
        result = clients.run("add", "shop", *arguments, input=b"x\n")
        assert result.returncode == 2
        assert arguments[0] in result.stderr
        assert not clients.data.exists()

    @pytest.mark.parametrize("command", [["ls"], ["rm", "shop"], ["passwd", "shop"]])
    def test_a_missing_file_is_not_made(self, clients: Clients, command: list[str]) -> None:
        clients.data.mkdir()
        result = clients.run(*command, input=b"x\n")
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr == (f"error: {clients.file}: there is no such file; make one with: echomesh clients add\n")
        assert list(clients.data.iterdir()) == []

    def test_a_broken_file_is_not_touched(self, clients: Clients) -> None:
        clients.data.mkdir()
        clients.file.write_text("[clients.shop]\n")
        clients.file.chmod(0o600)
        result = clients.run("add", "gate", input=b"x\n")
        assert (result.returncode, result.stdout) == (1, "")
        assert "clients.shop has no password" in result.stderr
        assert clients.file.read_text() == "[clients.shop]\n"

    def test_errors_are_json_when_results_are(self, clients: Clients) -> None:
        assert json.loads(clients.run("ls", "--json").stdout)["kind"] == "BadAccessFile"


WRITTEN = f"""\
# The clients of the demonstration.

[clients.shop]  # the web shop
password = "{HASH}"  # since May
publish = [
    "orders/**",  # everything
]

# The gate has no rights yet.
[clients."gate 7"]
password = '{HASH}'

[clients.last]
password = "{HASH}"
subscribe = ["a"]
"""


DOTTED = f'clients.shop.password = "{HASH}"\nclients.shop.admin = true\nclients."gate 7".password = "{HASH}"\n'


INLINE = f'clients = {{ shop = {{ password = "{HASH}" }}, "gate 7" = {{ password = "{HASH}" }} }}\n'


HEADED = f'[clients]\nshop = {{ password = "{HASH}" }}\n"gate 7".password = "{HASH}"\n'


OTHER = PasswordHash(bytes(16), b"\1" * 32).text


class TestEdits:
    def write(self, path: Path, text: str) -> Path:
        path.write_text(text)
        path.chmod(0o600)
        return path

    def test_comments_and_order_stay(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "access.toml", WRITTEN)
        clients_file.add(path, "new one", {"password": HASH, "publish": ["x"]})
        assert path.read_text() == WRITTEN + f'\n[clients."new one"]\npassword = "{HASH}"\npublish = ["x"]\n'
        clients_file.remove(path, "new one")
        assert path.read_text().strip() == WRITTEN.strip()
        clients_file.set_password(path, "shop", OTHER)
        assert path.read_text().strip() == WRITTEN.replace(HASH, OTHER, 1).strip()

    @pytest.mark.parametrize(
        ("text", "edit"),
        [
            *((text, edit) for text in (WRITTEN, INLINE, HEADED) for edit in ("add", "remove", "set_password")),
            (DOTTED, "remove"),
            (DOTTED, "set_password"),
        ],
    )
    def test_every_way_to_write_it_is_edited(self, tmp_path: Path, text: str, edit: str) -> None:
        path = self.write(tmp_path / "access.toml", text)
        before = Access.parse(text)
        name = "new" if edit == "add" else "shop"
        arguments: dict[str, tuple[Any, ...]] = {"add": ({"password": OTHER},), "set_password": (OTHER,)}
        getattr(clients_file, edit)(path, name, *arguments.get(edit, ()))
        after = Access.parse(path.read_text())
        assert after.changed_since(before) == {name}
        client = after.get(name)
        assert (client and client.password.text) == (None if edit == "remove" else OTHER)

    def test_what_the_library_would_break_is_refused_and_left_as_it_was(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "access.toml", DOTTED)
        with pytest.raises(BadAccessFile, match="only a person can edit: open it in an editor"):
            clients_file.add(path, "new", {"password": OTHER})
        assert path.read_text() == DOTTED

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
    def test_the_file_still_belongs_to_the_server(self, tmp_path: Path) -> None:
        os.chown(tmp_path, 12345, 23456)
        path = tmp_path / "access.toml"
        for _ in range(2):
            clients_file.add(path, "shop", {"password": HASH})
            assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)
            clients_file.remove(path, "shop")

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        real = self.write(tmp_path / "real.toml", WRITTEN)
        link = tmp_path / "access.toml"
        link.symlink_to(real)
        clients_file.remove(link, "shop")
        assert link.is_symlink()
        assert "shop" not in {client.client_id for client in Access.parse(real.read_text())}

    def test_edits_at_the_same_time_are_all_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "access.toml"
        program = (
            "import sys; from pathlib import Path; from echomesh.cli import clients_file\n"
            "for n in range(10): clients_file.add(Path(sys.argv[1]), f'{sys.argv[2]}-{n}', {'password': sys.argv[3]})"
        )
        processes = [
            subprocess.Popen([sys.executable, "-c", program, str(path), f"client-{number}", HASH])
            for number in range(3)
        ]
        assert [process.wait(PATIENCE_S) for process in processes] == [0, 0, 0]
        assert len(Access.parse(path.read_text())) == 30
        assert list(tmp_path.iterdir()) == [path]

    def test_a_client_that_is_there_or_not_is_seen_when_it_is_written(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "access.toml", WRITTEN)
        with pytest.raises(UsageError, match="already: change its entry there"):
            clients_file.add(path, "shop", {"password": HASH})
        with pytest.raises(UsageError, match="there is gate 7, last, shop"):
            clients_file.remove(path, "nobody")
        assert path.read_text() == WRITTEN

    def test_a_disk_that_refuses_leaves_the_old_file_and_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = self.write(tmp_path / "access.toml", WRITTEN)

        def refuse(handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space left"):
            clients_file.remove(path, "shop")
        assert path.read_text() == WRITTEN
        assert list(tmp_path.iterdir()) == [path]
