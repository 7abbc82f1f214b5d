"""Config-dirs: names, modes, who lives there, and who is cleaned away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from echomesh.errors import BadName, BusyError, OwnerAlive, StorageError
from echomesh.nukleus.directory import Directory, check_name, default_root
from echomesh.nukleus.locks import holder
from tests.nukleus import workers
from tests.nukleus.helpers import controller, files_in
from tests.support.processes import kill, process, until

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make other users' files")


def as_nobody(act: Callable[[], None]) -> None:
    """Does it as another user, in a child; what it raises fails the test."""
    child = os.fork()
    if not child:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
        except BaseException as error:
            os.write(2, f"as nobody: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", ["a", "echo", "A-1_b.c", "-", "_", "0", "x.", "n" * 255, "control.lock"])
def test_a_name_is_one_plain_path_segment(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".x",
        "../x",
        "a/b",
        "/etc",
        "a\0b",
        "a b",
        "a\n",
        "é",
        "ａ",
        "٣",
        "n" * 256,
        7,
        None,
        b"echo",
    ],
)
def test_anything_else_is_refused(name: object, shm_dir: Path) -> None:
    with pytest.raises(BadName):
        check_name(name)
    with pytest.raises(BadName):
        Directory(shm_dir).place(name)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(BadName):
        Directory(shm_dir).place("echo").stream(name)  # type: ignore[arg-type]  # on purpose


def test_the_default_is_a_directory_of_user_and_domain_in_shared_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ECHOMESH_DIR", raising=False)
    monkeypatch.delenv("ECHOMESH_DOMAIN", raising=False)
    assert default_root() == Path(f"/dev/shm/echomesh-{os.geteuid()}/default")
    monkeypatch.setenv("ECHOMESH_DOMAIN", "blue")
    assert Directory().root == Path(f"/dev/shm/echomesh-{os.geteuid()}/blue")
    monkeypatch.setenv("ECHOMESH_DOMAIN", "../x")
    with pytest.raises(BadName):
        default_root()
    monkeypatch.setenv("ECHOMESH_DIR", "/somewhere/else")
    assert default_root() == Path("/somewhere/else")


def test_making_one_touches_nothing(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    assert directory.places() == []
    assert not directory.dead("echo")
    assert list(shm_dir.iterdir()) == []


def test_everything_that_is_made_is_for_this_user_alone(shm_dir: Path) -> None:
    old = os.umask(0)
    try:
        directory = Directory(shm_dir / "above" / "mesh")
        place, lock = directory.settle("echo")
    finally:
        os.umask(old)
    for path in [shm_dir / "above", directory.root, *directory.root.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert place.owner.read_text() == f"{os.getpid()}\n"
    directory.leave(place, lock)


def test_the_last_one_takes_the_directory_with_it(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    first, second = directory.settle("first"), directory.settle("second")
    assert [place.name for place in directory.places()] == ["first", "second"]
    directory.leave(*first)
    assert files_in(directory.root) == [".lock", "second", "second/owner", "second/streams"]
    directory.leave(*second)
    assert not directory.root.exists()


def test_a_live_name_is_taken(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    place, lock = directory.settle("echo")
    with pytest.raises(OwnerAlive, match=str(os.getpid())) as caught:
        directory.settle("echo")
    assert (caught.value.name, caught.value.pid) == ("echo", os.getpid())
    assert not directory.dead("echo")
    directory.leave(place, lock)


def test_the_dead_are_removed_by_one_that_starts_and_the_living_are_not(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    directory = Directory(root)
    with (
        process(workers.echo, str(root), "living") as living,
        process(workers.echo, str(root), "dying") as dying,
    ):
        controller(root, "living")
        controller(root, "dying")
        assert not directory.dead("dying")
        kill(dying)
        assert directory.dead("dying")
        assert not directory.dead("living")
        before = files_in(root / "living")
        place, lock = directory.settle("new")
        assert [found.name for found in directory.places()] == ["living", "new"]
        assert files_in(root / "living") == before
        assert directory.place("living").owner_pid() == living.pid
        directory.leave(place, lock)


def test_a_dead_ones_name_can_be_had_at_once(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    with process(workers.echo, str(root)) as dying:
        controller(root)
        kill(dying)
    directory = Directory(root)
    place, lock = directory.settle("echo")
    assert files_in(place.path) == ["owner", "streams"]
    directory.leave(place, lock)


def test_half_made_directories_are_removed(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    directory.prepare()
    (directory.root / ".new-echo" / "streams").mkdir(parents=True)
    (directory.root / ".new-other").mkdir()
    (directory.root / ".new-other" / "owner").write_text("1\n")
    place, lock = directory.settle("echo")
    assert files_in(directory.root) == [".lock", "echo", "echo/owner", "echo/streams"]
    directory.leave(place, lock)


def test_a_dead_one_that_got_no_further_than_its_lock_is_removed(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    directory.prepare()
    (directory.root / "half" / "streams").mkdir(parents=True)
    (directory.root / "half" / "owner").write_text("")
    place, lock = directory.settle("echo")
    assert not (directory.root / "half").exists()
    directory.leave(place, lock)


def test_a_foreign_peers_files_are_left_alone_and_its_name_is_taken(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    directory.prepare()
    (directory.root / "java" / "streams").mkdir(parents=True)
    (directory.root / "java" / "control").write_bytes(b"theirs")
    (directory.root / "odd" / "owner").mkdir(parents=True)
    (directory.root / "note").write_bytes(b"a file")
    place, lock = directory.settle("echo")
    for name in ("java", "odd", "note"):
        with pytest.raises(BusyError, match="another implementation"):
            directory.settle(name)
        assert not directory.dead(name)
    directory.leave(place, lock)
    assert (directory.root / "java" / "control").read_bytes() == b"theirs"
    assert (directory.root / "odd" / "owner").is_dir()
    assert (directory.root / "note").read_bytes() == b"a file"


class Killed(BaseException):
    """As far as this one got."""


@pytest.mark.parametrize("leaving", [False, True])
def test_one_killed_while_it_removes_another_leaves_nothing_that_looks_foreign(
    shm_dir: Path, monkeypatch: pytest.MonkeyPatch, leaving: bool
) -> None:
    directory = Directory(shm_dir / "mesh")
    keeper = directory.settle("keeper")
    place, lock = directory.settle("echo")
    plain = shutil.rmtree

    def remove_half(path: Path, ignore_errors: bool = False) -> None:
        if (path / "owner").exists():
            (path / "owner").unlink()
            raise Killed
        plain(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", remove_half)
    if leaving:
        with pytest.raises(Killed):
            directory.leave(place, lock)
    else:
        lock.release()
        with pytest.raises(Killed):
            directory.settle("other")
    monkeypatch.undo()
    again = directory.settle("echo")
    assert [found.name for found in directory.places()] == ["echo", "keeper"]
    directory.leave(*again)
    directory.leave(*keeper)
    assert files_in(shm_dir) == []


def test_links_to_elsewhere_are_not_followed_when_the_dead_are_removed(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    directory.prepare()
    elsewhere = shm_dir / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner").write_text("")
    (directory.root / "link").symlink_to(elsewhere)
    place, lock = directory.settle("echo")
    directory.leave(place, lock)
    assert (elsewhere / "owner").exists()
    assert (directory.root / "link").is_symlink()


def test_a_link_or_file_in_place_of_the_directory_is_refused(shm_dir: Path) -> None:
    (shm_dir / "real").mkdir(mode=0o700)
    (shm_dir / "link").symlink_to(shm_dir / "real")
    (shm_dir / "dangling").symlink_to(shm_dir / "nothing")
    (shm_dir / "file").write_bytes(b"")
    for name in ("link", "dangling", "file"):
        with pytest.raises(StorageError):
            Directory(shm_dir / name).settle("echo")
    assert files_in(shm_dir) == ["dangling", "file", "link", "real"]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_is_refused(shm_dir: Path, mode: int) -> None:
    (shm_dir / "mesh").mkdir()
    (shm_dir / "mesh").chmod(mode)
    with pytest.raises(StorageError, match="only this user"):
        Directory(shm_dir / "mesh").settle("echo")


def test_a_directory_below_one_that_others_can_write_is_refused(shm_dir: Path) -> None:
    (shm_dir / "above").mkdir()
    (shm_dir / "above").chmod(0o777)
    with pytest.raises(StorageError, match="another user"):
        Directory(shm_dir / "above" / "mesh").settle("echo")


@as_root
def test_another_users_directory_is_refused(shm_dir: Path) -> None:
    (shm_dir / "mesh").mkdir(mode=0o700)
    os.chown(shm_dir / "mesh", NOBODY, NOBODY)
    with pytest.raises(StorageError, match="only this user"):
        Directory(shm_dir / "mesh").settle("echo")
    (shm_dir / "above").mkdir(mode=0o700)
    os.chown(shm_dir / "above", NOBODY, NOBODY)
    with pytest.raises(StorageError, match="another user"):
        Directory(shm_dir / "above" / "mesh").settle("echo")


@as_root
def test_other_users_nuklei_are_left_alone(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    place, lock = directory.settle("mine")
    theirs = directory.root / "theirs"
    (theirs / "streams").mkdir(parents=True, mode=0o700)
    (theirs / "owner").write_text("1\n")
    for path in (theirs, theirs / "owner", theirs / "streams"):
        os.chown(path, NOBODY, NOBODY)
    other, other_lock = directory.settle("other")
    assert theirs.exists(), "its lock is free, but it is not ours to remove"
    directory.leave(other, other_lock)
    directory.leave(place, lock)
    assert files_in(theirs) == ["owner", "streams"]
    shutil.rmtree(directory.root)


@as_root
def test_what_another_user_hides_is_left_alone_and_breaks_nothing(shm_dir: Path) -> None:
    # The other way round: we are nobody, and root has put something into our directory.
    shm_dir.chmod(0o755)
    home = shm_dir / "home"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    root = home / "mesh"
    root.mkdir(mode=0o700)
    os.chown(root, NOBODY, NOBODY)
    (root / "roots").mkdir(mode=0o700)
    (root / "roots" / "owner").write_text("")

    def act() -> None:
        directory = Directory(root)
        place, lock = directory.settle("echo")
        assert not directory.dead("roots")
        try:
            directory.settle("roots")
        except BusyError:
            pass
        else:
            raise AssertionError("taken")
        directory.leave(place, lock)

    as_nobody(act)
    assert (root / "roots" / "owner").exists()


def test_one_who_stops_with_the_lock_is_named(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "mesh")
    directory.prepare()
    with process(workers.lock_and_stay, str(directory.root / ".lock")) as other:
        until(lambda: holder(directory.root / ".lock") == other.pid)
        with pytest.raises(BusyError, match=str(other.pid)), directory.locked(0.05):
            pass
