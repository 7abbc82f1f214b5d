"""The interface between the log and a disk."""

from __future__ import annotations

from typing import Final, Protocol

from typing_extensions import Buffer

BLOCK_BYTES: Final = 4096


class Storage(Protocol):
    """Files by handle and path; every failure is an `OSError`.

    With `direct` a handle is a file descriptor of this process, and compiled code writes and syncs it without
    asking.
    """

    direct: bool

    def open(self, path: str, *, create: bool = False) -> int:
        """A handle for reading and writing (reading alone where writing is not allowed)."""

    def open_past_cache(self, path: str) -> int:
        """A second handle on a file, for writes past the page cache where the file system has such.

        Positions and sizes are multiples of `BLOCK_BYTES` then, and so is where the bytes stand in memory.
        """

    def close(self, handle: int) -> None:
        """Gives the handle back."""

    def pread(self, handle: int, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""

    def pwrite(self, handle: int, data: Buffer, position: int) -> None:
        """All of the bytes, or an error."""

    def allocate(self, handle: int, size: int) -> None:
        """Makes the file at least so large, with its blocks reserved."""

    def truncate(self, handle: int, size: int) -> None:
        """Cuts the file, or lets it grow with zeros."""

    def size(self, handle: int) -> int:
        """The file's length."""

    def fdatasync(self, handle: int) -> None:
        """Content and size are on disk afterwards."""

    def sync_directory(self, path: str) -> None:
        """The names in it are on disk afterwards."""

    def sync_all(self, path: str) -> None:
        """Everything that was written to this file system before is on disk afterwards."""

    def rename(self, old: str, new: str) -> None:
        """In one step, over what may be there."""

    def link(self, old: str, new: str) -> None:
        """A second name for a file, where the file system has such."""

    def unlink(self, path: str) -> None:
        """Removes a file; no error when there is none."""

    def mkdir(self, path: str) -> None:
        """Makes a directory and those above it; no error when it is there."""

    def keep_no_access_times(self, path: str) -> None:
        """Whatever is made below this directory from now on has no time of its last read, where the file system can do
        without: otherwise who reads first what was just written makes the disk write that time.
        """

    def names(self, path: str) -> list[str]:
        """Sorted; empty when there is no such directory."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """Another one when the file is another one or was written to, as far as its clock can tell; None when
        there is none.
        """
