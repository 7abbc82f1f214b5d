"""`echomesh config`."""

from __future__ import annotations

from pathlib import Path

from echomesh.node.config import Config
from echomesh.node.config_file import parse_config
from tests.cli.quick import Quick


def test_it_prints_a_file_that_says_the_defaults(quick: Quick) -> None:
    result = quick("config")
    assert (result.returncode, result.stderr) == (0, "")
    assert parse_config(result.stdout) == Config()


def test_a_file_is_checked(quick: Quick, tmp_path: Path) -> None:
    path = tmp_path / "echomesh.toml"
    path.write_text(quick("config").stdout.replace("127.0.0.1:4889", "10.0.0.1:5000"))
    result = quick("config", "--check", str(path), XDG_DATA_HOME="/x")
    said = f"{path} is fine: a server would listen on 10.0.0.1:5000 and keep its data in /x/echomesh.\n"
    assert (result.returncode, result.stdout) == (0, said)


def test_what_is_wrong_with_a_file_is_said(quick: Quick, tmp_path: Path) -> None:
    path = tmp_path / "echomesh.toml"
    path.write_text("[mesh]\nheartbeet = 3\n")
    result = quick("config", "--check", str(path))
    said = f"error: {path}: unknown key mesh.heartbeet: did you mean mesh.heartbeat?\n"
    assert (result.returncode, result.stderr) == (1, said)
    path.write_text('[tls]\ncertificate = "nowhere.pem"\n')
    result = quick("config", "--check", str(path))
    assert (
        result.stderr
        == f"error: tls.certificate = {tmp_path}/nowhere.pem: it can't be read: No such file or directory\n"
    )
