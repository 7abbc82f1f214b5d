"""The machine's own disk."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

_libc = ctypes.CDLL(None, use_errno=True)
_OPENING: Final = os.O_CLOEXEC | os.O_NOFOLLOW

# FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_NOATIME_FL, as Linux numbers them on most processors; the others refuse them.
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_NO_ACCESS_TIMES: Final = 0x80
_FLAGS: Final = struct.Struct("=I4x")


class RealStorage:
    """Files of the operating system; a handle is a file descriptor."""

    direct = True

    def open(self, path: str, *, create: bool = False) -> int:
        try:
            return os.open(path, os.O_RDWR | _OPENING | (os.O_CREAT if create else 0), 0o644)
        except PermissionError:
            if create:
                raise
            return os.open(path, os.O_RDONLY | _OPENING)

    def open_past_cache(self, path: str) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_DIRECT | _OPENING)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return self.open(path)

    def close(self, handle: int) -> None:
        os.close(handle)

    def pread(self, handle: int, size: int, position: int) -> bytes:
        data = os.pread(handle, size, position)
        while len(data) < size:
            more = os.pread(handle, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, handle: int, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        while view:
            done = os.pwrite(handle, view, position)
            view = view[done:]
            position += done

    def allocate(self, handle: int, size: int) -> None:
        os.posix_fallocate(handle, 0, size)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def sync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def sync_all(self, path: str) -> None:
        # One syncfs is far cheaper than an fdatasync for each of a thousand segments.
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _libc.syncfs(handle) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(handle)

    def rename(self, old: str, new: str) -> None:
        Path(old).rename(new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        with suppress(FileNotFoundError):
            Path(path).unlink()

    def mkdir(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def keep_no_access_times(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Not every file system has such flags, nor may everybody set them.
            with suppress(OSError):
                (flags,) = _FLAGS.unpack(fcntl.ioctl(handle, _GET_FLAGS, bytes(_FLAGS.size)))
                if not flags & _NO_ACCESS_TIMES:
                    fcntl.ioctl(handle, _SET_FLAGS, _FLAGS.pack(flags | _NO_ACCESS_TIMES))
        finally:
            os.close(handle)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def stamp(self, path: str) -> tuple[int, ...] | None:
        try:
            found = os.stat(path)  # noqa: PTH116  # asked often
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
