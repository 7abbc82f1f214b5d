"""Kernel locks: one holder among all threads of all processes, and none after its death."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from echomesh.errors import BusyError, FileGone, StorageError
from echomesh.nukleus import locks
from echomesh.nukleus.locks import KernelLock, holder, identity, turn
from tests.nukleus import workers
from tests.support.counts import count
from tests.support.descriptors import open_below
from tests.support.processes import kill, process, until


def test_a_lock_is_held_until_it_is_released(shm_dir: Path) -> None:
    path = shm_dir / "lock"
    assert holder(path) is None
    lock = KernelLock.acquire(path)
    assert holder(path) == os.getpid()
    with pytest.raises(BusyError):
        KernelLock.acquire(path)
    lock.release()
    lock.release()
    assert holder(path) is None
    KernelLock.acquire(path).release()


def test_asking_who_holds_it_never_drops_it(shm_dir: Path) -> None:
    lock = KernelLock.acquire(shm_dir / "lock")
    for _ in range(10):
        holder(shm_dir / "lock")
    child = os.fork()
    if not child:
        os._exit(0 if holder(shm_dir / "lock") == os.getppid() else 1)
    assert os.waitpid(child, 0)[1] == 0
    lock.release()


def test_another_process_is_named_and_its_death_frees_the_lock(shm_dir: Path) -> None:
    path = shm_dir / "lock"
    with process(workers.lock_and_stay, str(path)) as other:
        until(lambda: holder(path) is not None)
        assert holder(path) == other.pid
        with pytest.raises(BusyError, match=str(other.pid)):
            KernelLock.acquire(path, 0.01)
        kill(other)
        assert holder(path) is None
        KernelLock.acquire(path).release()


def test_a_lock_waits_as_long_as_it_may(shm_dir: Path) -> None:
    path = shm_dir / "lock"
    lock = KernelLock.acquire(path)
    threading.Timer(0.05, lock.release).start()
    KernelLock.acquire(path, 20.0).release()


def test_a_file_that_was_removed_is_no_lock(shm_dir: Path) -> None:
    path = shm_dir / "lock"
    old = KernelLock.acquire(path)
    path.unlink()
    new = KernelLock.acquire(path)
    assert old.identity != new.identity
    assert holder(path) == os.getpid()
    old.release()
    assert holder(path) == os.getpid()
    new.release()


def test_turns_are_taken_by_threads_of_one_process(shm_dir: Path) -> None:
    path = shm_dir / "lock"
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with turn(path, 30.0):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0002)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert holder(path) is None


def test_a_turn_that_does_not_come_says_who_has_it(shm_dir: Path) -> None:
    path = shm_dir / "lock"
    with process(workers.lock_and_stay, str(path)) as other:
        until(lambda: holder(path) is not None)
        with pytest.raises(BusyError, match=str(other.pid)), turn(path, 0.0):
            pass
    with turn(path, 30.0):
        failed: list[BusyError] = []

        def try_it() -> None:
            try:
                with turn(path, 0.01):
                    pass
            except BusyError as error:
                failed.append(error)

        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert "another thread" in str(failed[0])


def test_a_child_of_a_fork_has_none_of_its_parents_locks(shm_dir: Path) -> None:
    path = shm_dir / "lock"
    with turn(path, 0.0):
        child = os.fork()
        if not child:
            try:
                KernelLock.acquire(path)
            except BusyError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert holder(path) == os.getpid()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that is the point
def test_a_child_forked_while_a_thread_works_with_locks_is_not_stuck(shm_dir: Path) -> None:
    # The moment between the module's own lock and its release, in another thread.
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locks._held_lock:
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(30)
    child = os.fork()
    if not child:
        KernelLock.acquire(shm_dir / "lock")
        os._exit(0)
    leave.set()
    thread.join()
    deadline = time.monotonic() + 20
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert done[1] == 0


def test_a_lock_that_takes_a_name_while_somebody_asks_about_it_is_not_lost(
    shm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A nukleus of this process comes back under its name, just between the look at the file and its opening.
    path = shm_dir / "owner"
    path.write_bytes(b"")
    new = KernelLock.acquire(shm_dir / "new")
    plain = os.open

    def open_late(name: str | Path, flags: int, mode: int = 0o777) -> int:
        if Path(name) == path and (shm_dir / "new").exists():
            (shm_dir / "new").rename(path)
        return plain(name, flags, mode)

    monkeypatch.setattr(os, "open", open_late)
    assert holder(path) == os.getpid()
    monkeypatch.undo()
    child = os.fork()
    if not child:
        os._exit(0 if holder(path) == os.getppid() else 1)
    assert os.waitpid(child, 0)[1] == 0, "the kernel's lock is gone"
    new.release()
    child = os.fork()
    if not child:
        os._exit(0 if holder(path) is None else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_no_plain_file_is_nobodys_to_judge(shm_dir: Path) -> None:
    (shm_dir / "directory").mkdir()
    (shm_dir / "link").symlink_to("/dev/null")
    assert holder(shm_dir / "directory") == -1
    assert holder(shm_dir / "link") == -1
    (shm_dir / "file").write_bytes(b"")
    assert holder(shm_dir / "file" / "owner") is None
    assert identity(shm_dir / "file" / "owner") is None


def test_a_lock_that_can_not_be_made_is_a_typed_error(shm_dir: Path) -> None:
    with pytest.raises(FileGone):
        KernelLock.acquire(shm_dir / "missing" / "lock")
    (shm_dir / "link").symlink_to(shm_dir / "elsewhere")
    with pytest.raises(StorageError):
        KernelLock.acquire(shm_dir / "link")
    assert not (shm_dir / "elsewhere").exists()


def test_no_descriptor_is_left_behind(shm_dir: Path) -> None:
    lock = KernelLock.acquire(shm_dir / "held")
    assert open_below(shm_dir) == [str(shm_dir / "held")]
    for _ in range(count(50, 1000)):
        with turn(shm_dir / "lock", 1.0):
            holder(shm_dir / "lock")
            holder(shm_dir / "held")
        holder(shm_dir / "lock")
        with pytest.raises(BusyError):
            KernelLock.acquire(shm_dir / "held")
    assert open_below(shm_dir) == [str(shm_dir / "held")]
    lock.release()
    assert open_below(shm_dir) == []
