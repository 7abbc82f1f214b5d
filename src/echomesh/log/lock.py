"""One writer for a data directory: a lock of the kernel that dies with its process."""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from echomesh.errors import LogLocked

_FLOCK: Final = struct.Struct("hhqqi4x")
# Directories that this process writes to. POSIX locks are one process's own, and any close gives them up, so
# a second opening in the same process must not get as far as the file.
_mine: dict[tuple[int, int], int] = {}
_shown: set[tuple[int, int]] = set()  # those of them whose writer has announced itself

# The first byte of the file is locked by a writer whose high-watermarks can be believed, the rest by any.
_SHOWN_BYTES: Final = 1


class WriterLock:
    """Held from the moment it is made until `close` or the end of the process; no fork inherits it."""

    def __init__(self, path: str) -> None:
        self.path = path
        directory = path.rpartition("/")[0]
        status = Path(directory).stat()
        self.key = (status.st_dev, status.st_ino)
        self.pid = os.getpid()
        if _mine.get(self.key) == self.pid:
            raise LogLocked(directory, self.pid, "this process")
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, _SHOWN_BYTES)
        except OSError:
            pid = _holder_of(self.handle)
            os.close(self.handle)
            raise LogLocked(directory, pid, _command(pid)) from None
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, f"{self.pid}\n".encode(), 0)
        _mine[self.key] = self.pid

    def announce(self) -> None:
        """Readers may believe what this writer shows: until then the file is still that of the one before."""
        fcntl.lockf(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHOWN_BYTES, 0)
        _shown.add(self.key)

    def close(self) -> None:
        """Lets another writer in."""
        if _mine.get(self.key) == os.getpid() == self.pid:
            _shown.discard(self.key)
            del _mine[self.key]
            os.close(self.handle)


def writer_of(path: str) -> int:
    """The process that writes, and has announced itself: 0 for none, -1 when it can't be known who."""
    directory = path.rpartition("/")[0]
    with suppress(OSError):
        status = Path(directory).stat()
        key = (status.st_dev, status.st_ino)
        if _mine.get(key) == os.getpid():
            return os.getpid() if key in _shown else 0
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _holder_of(handle, _SHOWN_BYTES)
        finally:
            os.close(handle)
    return 0


def _holder_of(handle: int, size: int = 0) -> int:
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, size, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else (pid or -1)


def _command(pid: int) -> str:
    with suppress(OSError, ValueError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:120]
    return ""


def boot_id() -> bytes:
    """16 bytes that are others after each boot."""
    return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
