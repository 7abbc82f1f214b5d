"""The participant's files: who has the lock is the participant, and what the dead left does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from echomesh.data.config import DataOptions
from echomesh.data.starting import Home, find, reach
from echomesh.errors import NoParticipant, OwnerAlive, StorageError
from echomesh.nukleus import Directory
from tests.support.repository import ROOT


@pytest.fixture
def home(shm_dir: Path) -> Home:
    return Home(Directory(shm_dir / "m"))


def options(home: Home) -> DataOptions:
    return DataOptions(directory=home.directory.root)


def test_one_that_has_entered_and_published_is_found(home: Home) -> None:
    assert find(options(home)) is None
    home.enter()
    assert find(options(home)) is None
    home.publish(4711, b"cookie")
    found = find(options(home))
    assert found is not None
    assert (found.port, found.cookie, found.pid) == (4711, b"cookie", os.getpid())
    assert reach(options(home)) == found
    home.leave()
    assert find(options(home)) is None
    assert not home.directory.root.exists()


def test_there_is_room_for_one(home: Home) -> None:
    home.enter()
    home.publish(4711, b"cookie")
    with pytest.raises(OwnerAlive, match=str(os.getpid())):
        Home(home.directory).enter()
    home.leave()


def test_what_a_dead_one_left_is_not_believed_and_taken_over(home: Home) -> None:
    script = (
        "import os, sys\n"
        "from echomesh.data.starting import Home\n"
        "from echomesh.nukleus import Directory\n"
        "home = Home(Directory(sys.argv[1]))\n"
        "home.enter()\n"
        "home.publish(4711, b'cookie')\n"
        "os._exit(9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", script, str(home.directory.root)], env=environment, check=False)
    assert home.address() is not None
    assert find(options(home)) is None
    home.enter()
    home.publish(4712, b"other")
    found = find(options(home))
    assert found is not None
    assert found.port == 4712
    home.leave()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"port": "x"}', b"\xff" * 10])
def test_a_damaged_address_is_none(home: Home, content: bytes) -> None:
    home.enter()
    (home.path / "address").write_bytes(content)
    assert find(options(home)) is None
    home.leave()


def test_a_directory_that_another_user_could_have_made_is_refused(shm_dir: Path) -> None:
    root = shm_dir / "m"
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    with pytest.raises(StorageError, match="ECHOMESH_DIR"):
        reach(DataOptions(directory=root))


def test_one_that_leaves_spares_the_nuklei_of_others(home: Home) -> None:
    home.enter()
    place, lock = home.directory.settle("other")
    home.leave()
    assert [path.name for path in home.directory.root.iterdir() if path.name != ".lock"] == ["other"]
    home.directory.leave(place, lock)
    assert not home.directory.root.exists()


def test_one_that_can_not_be_started_is_no_participant(shm_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(shm_dir / "no-python"))
    with pytest.raises(NoParticipant, match="could not be started"):
        reach(DataOptions(directory=shm_dir / "m"))
