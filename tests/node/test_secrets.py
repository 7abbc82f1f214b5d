"""Passwords from files and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomesh.errors import BadConfig
from echomesh.mesh.passwords import MAX_PASSWORD_BYTES
from echomesh.node.secrets import password_from, read_password


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(0o600)
    return path


@pytest.mark.parametrize("content", [b"tulip", b"tulip\n", b"tulip\r\nmore\n"])
def test_the_first_line_is_the_password(secret: Path, content: bytes) -> None:
    secret.write_bytes(content)
    assert read_password(secret, "--password-file") == "tulip"


@pytest.mark.parametrize("content", [b"", b"\nx", b"x" * (MAX_PASSWORD_BYTES + 1), b"tulip\xff"])
def test_what_is_no_password_is_refused_and_not_repeated(secret: Path, content: bytes) -> None:
    secret.write_bytes(content)
    with pytest.raises(BadConfig, match="its first line") as caught:
        read_password(secret, "bridges.password_file")
    assert caught.value.key == "bridges.password_file"
    assert "tulip" not in str(caught.value)
    assert "xx" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"--password-file = .*missing: it can't be read"):
        read_password(tmp_path / "missing", "--password-file")


def test_a_file_that_everybody_may_read_is_told(secret: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret.write_text("tulip")
    secret.chmod(0o644)
    assert read_password(secret, "x") == "tulip"
    assert "chmod o-r" in caplog.text
    assert "tulip" not in caplog.text


def test_the_file_goes_before_the_variable(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret.write_text("tulip")
    monkeypatch.setenv("X_PASSWORD", "rose")
    assert password_from(secret, "X_PASSWORD", "x") == "tulip"
    assert password_from(None, "X_PASSWORD", "x") == "rose"
    monkeypatch.setenv("X_PASSWORD", "")
    assert password_from(None, "X_PASSWORD", "x") is None
