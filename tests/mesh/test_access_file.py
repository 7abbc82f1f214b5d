"""The access file on disk: read again when it changes, and what was in force stays when it breaks."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

from echomesh.errors import BadAccessFile
from echomesh.mesh.access_file import MAX_FILE_BYTES, AccessFile, read_access_file
from echomesh.mesh.passwords import PasswordHash

HASH = PasswordHash(bytes(16), bytes(32)).text


def text(*names: str, rate: int = 10) -> str:
    return "".join(
        f'[clients.{name}]\npassword = "{HASH}"\npublishes_per_second = {rate}\npublish = []\n' for name in names
    )


def write(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """As an editor does that replaces the file."""
    new = path.with_suffix(".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.chmod(mode)
    new.replace(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "access.toml"
    write(file, text("shop"))
    return file


def names(file: AccessFile) -> set[str]:
    return {client.client_id for client in file.access}


def test_a_changed_file_is_in_force_within_a_second(path: Path) -> None:
    file = AccessFile(path)
    assert names(file) == {"shop"}
    assert file.refresh(0.0) == frozenset()
    write(path, text("shop", "gate"))
    assert file.refresh(0.9) == frozenset()
    assert names(file) == {"shop"}
    assert file.refresh(1.0) == {"gate"}
    assert names(file) == {"shop", "gate"}
    assert file.refresh(2.0) == frozenset()
    write(path, text("gate", rate=20))
    assert file.refresh(3.0) == {"shop", "gate"}
    assert names(file) == {"gate"}


def test_a_change_in_place_that_leaves_time_and_size_as_they_were_is_seen(path: Path) -> None:
    file = AccessFile(path)
    found = path.stat()
    path.write_text(text("pohs"))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert file.refresh(0.0) == {"shop", "pohs"}


def test_each_change_is_read_twice_in_case_a_second_one_fell_into_the_same_tick(path: Path) -> None:
    file = AccessFile(path)
    # As if the file had been read before the last write of its tick.
    file._data, file.access = b"", type(file.access)()
    assert file.refresh(0.0) == {"shop"}
    file._data, file.access = b"", type(file.access)()
    assert file.refresh(1.0) == frozenset()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[clients.shop]\n", "clients.shop has no password"),
        ("[clients", "it is not TOML"),
        (b"[clients]\n\n# \xff\n", "it is not UTF-8 (at line 3)"),
        (b"#" * (MAX_FILE_BYTES + 1), "it has more than 4194304 bytes"),
    ],
)
def test_a_broken_file_leaves_the_old_one_in_force_and_is_reported_once(
    path: Path, content: str | bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = AccessFile(path)
    write(path, content)
    for now in range(5):
        assert file.refresh(float(now)) == frozenset()
        assert names(file) == {"shop"}
        assert file.problem is not None
        assert file.problem.reason.startswith(reason)
    assert [record.getMessage() for record in caplog.records] == [
        f"{file.problem}; what was in force stays in force",
    ]
    write(path, text("gate"))
    assert file.refresh(10.0) == {"shop", "gate"}
    assert file.problem is None


def test_a_file_that_is_gone_leaves_the_old_one_in_force_until_it_is_back(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = AccessFile(path)
    content = path.read_text()
    path.unlink()
    for now in range(3):
        assert file.refresh(float(now)) == frozenset()
    assert names(file) == {"shop"}
    assert "there is no such file; make one with: echomesh clients add" in str(file.problem)
    assert len(caplog.records) == 1
    write(path, content)
    assert file.refresh(4.0) == frozenset()
    assert file.problem is None


def test_entries_that_did_not_change_are_the_same_objects(path: Path) -> None:
    file = AccessFile(path)
    shop = file.access.get("shop")
    write(path, text("gate", "shop"))
    file.refresh(0.0)
    assert file.access.get("shop") is shop


class TestWhatCannotBeUsed:
    def test_a_missing_file_is_an_error_at_the_beginning(self, tmp_path: Path) -> None:
        with pytest.raises(BadAccessFile, match="there is no such file; make one with: echomesh clients add"):
            AccessFile(tmp_path / "nothing.toml")

    def test_a_file_that_everybody_may_write_proves_nothing(self, path: Path) -> None:
        path.chmod(0o602)
        with pytest.raises(BadAccessFile, match=r"everybody on this machine may write it.*chmod o-w"):
            AccessFile(path)

    def test_it_may_not_become_one_later(self, path: Path) -> None:
        file = AccessFile(path)
        write(path, text("shop", "thief"), mode=0o666)
        assert file.refresh(0.0) == frozenset()
        assert names(file) == {"shop"}
        path.chmod(0o600)
        assert file.refresh(1.0) == {"thief"}

    def test_a_file_that_everybody_may_read_is_warned_of(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path.chmod(0o644)
        file = AccessFile(path)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert f"chmod o-r {path}" in caplog.text
        assert names(file) == {"shop"}

    def test_a_directory_or_a_pipe_is_refused_at_once(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(BadAccessFile, match=r"no ordinary file|Is a directory"):
                read_access_file(path)


def test_it_may_be_refreshed_in_another_thread_while_it_is_used(path: Path) -> None:
    file = AccessFile(path)
    ended = threading.Event()
    seen: list[set[str]] = []

    def use() -> None:
        while not ended.is_set():
            found = names(file)
            if found not in seen:
                seen.append(found)

    thread = threading.Thread(target=use)
    thread.start()
    for number in range(20):
        write(path, text("shop", f"gate{number}"))
        assert f"gate{number}" in file.refresh(float(number))
    ended.set()
    thread.join()
    assert all("shop" in found and len(found) <= 2 for found in seen)
