"""Kernel locks: they tell who is alive, and they die with their process.

A pid lies across containers and a time-out can't tell a stopped process from a dead one; a lock of the kernel can.
These are POSIX record locks, since those are what Java and other peers take, and a forked child does not inherit
them. Their trap is that closing any descriptor of a file drops the process's lock on it, so that files which this
process has locked are never opened again: `_held` knows them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from echomesh.errors import BusyError
from echomesh.native.mapping import translated

_FLOCK = struct.Struct("hhqqi4x")
_RETRY_S = 0.0005

Identity = tuple[int, int]

_held: dict[Identity, KernelLock] = {}
_held_lock = threading.Lock()
_turns: dict[str, threading.Lock] = {}
_turns_pid = os.getpid()


def _forget_parents_locks() -> None:
    # A child of a fork has none of its parent's locks.
    global _turns_pid, _held_lock
    if _turns_pid != os.getpid():
        _held_lock = threading.Lock()  # another thread may have held it when this child was made
        for lock in _held.values():
            lock.held = False
        _held.clear()
        _turns.clear()
        _turns_pid = os.getpid()


os.register_at_fork(after_in_child=_forget_parents_locks)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise translated(error.errno or 0, str(path)) from None


def identity(path: Path) -> Identity | None:
    """Which file this is: a name may come back, its device and inode do not while anyone holds it."""
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:  # nothing is there, or nothing that we may see
        return None
    return status.st_dev, status.st_ino


def holder(path: Path) -> int | None:
    """The pid that holds the lock on this file (-1 where the kernel can't name it), or None when nobody does."""
    with _held_lock:
        which = identity(path)
        if which is None:
            return None
        if which in _held:
            return os.getpid()
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError:
            return -1  # another user's, or no plain file: not ours to judge
        status = os.fstat(fd)
        held = _held.get((status.st_dev, status.st_ino))
        if held is not None:  # a lock of ours got this name just now: closing the file would drop it
            held.adopt(fd)
            return os.getpid()
        try:
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError:
            return -1
        finally:
            os.close(fd)
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else (pid or -1)


class KernelLock:
    """An exclusive lock on a file, held until `release` or the end of the process, however that comes."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.held = False
        """Whether this process has it; a child of a fork has none of its parent's."""
        self._fd = fd
        self._adopted: list[int] = []
        status = os.fstat(fd)
        self.identity: Identity = (status.st_dev, status.st_ino)

    @classmethod
    def acquire(cls, path: Path, timeout_s: float = 0.0) -> KernelLock:
        """Takes the lock, making the file if need be; `BusyError` when somebody else has it for longer than that."""
        deadline = time.monotonic() + timeout_s
        while True:
            lock = cls._try(path)
            if lock is not None:
                return lock
            if time.monotonic() >= deadline:
                pid = holder(path)
                who = f"process {pid}" if pid and pid > 0 else "another process"
                raise BusyError(f"{path} is locked by {who}")
            time.sleep(_RETRY_S)

    @classmethod
    def _try(cls, path: Path) -> KernelLock | None:
        with _held_lock:
            if identity(path) in _held:
                return None
            fd = _open(path)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock = cls(path, fd)
                if lock.identity == identity(path):  # else its last holder removed it in between
                    _held[lock.identity] = lock
                    lock.held = True
                    return lock
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    os.close(fd)
                    raise translated(error.errno or 0, str(path)) from None
            os.close(fd)
            return None

    def write(self, text: str) -> None:
        """Leaves a word for those who look at the file."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode(), 0)

    def adopt(self, fd: int) -> None:
        """Keeps another descriptor of the file open for as long as the lock is held."""
        self._adopted.append(fd)

    def release(self) -> None:
        """Gives it up."""
        with _held_lock:
            if not self.held:
                return
            self.held = False
            del _held[self.identity]
            for fd in (self._fd, *self._adopted):
                os.close(fd)


@contextlib.contextmanager
def turn(path: Path, timeout_s: float) -> Iterator[KernelLock]:
    """This thread's turn at the lock, among all threads of all processes."""
    with _held_lock:
        mine = _turns.setdefault(str(path), threading.Lock())
    deadline = time.monotonic() + timeout_s
    if not mine.acquire(timeout=timeout_s):
        raise BusyError(f"{path} is locked by another thread of this process")
    try:
        lock = KernelLock.acquire(path, max(0.0, deadline - time.monotonic()))
        try:
            yield lock
        finally:
            lock.release()
    finally:
        mine.release()
