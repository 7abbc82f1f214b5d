"""The access file on disk: read with care, and read again when it changes."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final, TypeAlias

from echomesh.errors import BadAccessFile
from echomesh.mesh.access import Access

MAX_FILE_BYTES: Final = 4 << 20
POLL_S: Final = 1.0

_Stamp: TypeAlias = tuple[int, ...]

_log = logging.getLogger(__name__)


def read_access_file(path: Path) -> str:
    """The file's text. `BadAccessFile` for one that others may write, or that is no readable file at all."""
    return _text(path, _read(path)[1])


def loose(path: Path) -> str | None:
    """A warning about a file that others may read; None when they may not."""
    if _mode(path) & stat.S_IROTH:
        return f"{path}: everybody on this machine may read the password hashes; change that with: chmod o-r {path}"
    return None


class AccessFile:
    """An access file that is in force; `refresh` sees to it that it is the one on disk.

    `access` is what is in force. `problem` is what is wrong with the file as it is now: then the one before it stays in
    force. A file that can't be used at the beginning is an error. `refresh` may run in another thread.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.problem: BadAccessFile | None = None
        self._next = float("-inf")
        self._stamp, self._data = _read(self.path)
        self._sure = False
        self.access = Access.parse(_text(self.path, self._data), str(self.path))
        self._warn()

    def refresh(self, now: float) -> frozenset[str]:
        """Looks at most once a second, and reads a changed file again; gives the ids of clients whose entry changed."""
        if now < self._next:
            return frozenset()
        self._next = now + POLL_S
        try:
            return self._reread()
        except BadAccessFile as error:
            self._report(error)
            return frozenset()

    def _reread(self) -> frozenset[str]:
        stamp = _stamp_of(self.path)
        if stamp == self._stamp and self._sure:
            return frozenset()
        # A second write within one tick of the file system's clock leaves no other stamp: so each is read twice.
        self._sure = stamp == self._stamp
        # Remembered before it is read: a file that can't be used is reported once.
        self._stamp = stamp
        stamp, data = _read(self.path)
        self._sure = self._sure and stamp == self._stamp
        if data == self._data and self.problem is None:
            return frozenset()
        self._data = data
        before = self.access
        self.access = Access.parse(_text(self.path, data), str(self.path), before)
        self.problem = None
        changed = self.access.changed_since(before)
        _log.info("%s: read again, %d of %d clients changed", self.path, len(changed), len(self.access))
        self._warn()
        return changed

    def _report(self, error: BadAccessFile) -> None:
        if self.problem is None or str(self.problem) != str(error):
            _log.error("%s; what was in force stays in force", error)
        self.problem = error

    def _warn(self) -> None:
        if (warning := loose(self.path)) is not None:
            _log.warning("%s", warning)


def _stamp_of(path: Path) -> _Stamp:
    try:
        return _stamp(path.stat())
    except OSError as error:
        raise _unreadable(path, error) from None


def _stamp(found: os.stat_result) -> _Stamp:
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino, found.st_mode, found.st_size)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _read(path: Path) -> tuple[_Stamp, bytes]:
    try:
        # A pipe of that name must not stop the server.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            _check(path, found)
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(data) > MAX_FILE_BYTES:
        raise BadAccessFile(str(path), f"it has more than {MAX_FILE_BYTES} bytes")
    return _stamp(found), data


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise BadAccessFile(str(path), "it is no ordinary file")
    if found.st_mode & stat.S_IWOTH:
        raise BadAccessFile(
            str(path),
            f"everybody on this machine may write it, so it proves nothing; change that with: chmod o-w {path}",
        )


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadAccessFile(str(path), f"it is not UTF-8 (at line {line})") from None


def _unreadable(path: Path, error: OSError) -> BadAccessFile:
    if isinstance(error, FileNotFoundError):
        return BadAccessFile(str(path), "there is no such file; make one with: echomesh clients add")
    return BadAccessFile(str(path), f"it can't be read: {error.strerror or error}")
