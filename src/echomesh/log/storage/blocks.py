"""A file that is written once, from its beginning to its end.

A large one goes past the page cache: there it would drive out what others read, and each fresh page costs the kernel,
and a hypervisor below it, more than the copy does.
"""

from __future__ import annotations

import errno
import mmap
from typing import Final

from typing_extensions import Buffer

from echomesh.log.storage.base import BLOCK_BYTES, Storage

_ROOM_BYTES: Final = 1 << 20


class BlockFile:
    """Takes bytes in any pieces and writes them in large ones; those of a small file stay in the page cache."""

    def __init__(self, storage: Storage, path: str) -> None:
        self.storage = storage
        self.path = path
        self.size = 0
        self._written = 0
        self._handle = storage.open(path, create=True)
        self._room = mmap.mmap(-1, _ROOM_BYTES)  # begins at a page, as writes past the cache want it

    def write(self, data: Buffer) -> None:
        """Adds bytes."""
        view = memoryview(data).cast("B")
        while view:
            at = self.size - self._written
            taken = min(len(view), _ROOM_BYTES - at)
            self._room[at : at + taken] = view[:taken]
            self.size += taken
            view = view[taken:]
            if at + taken == _ROOM_BYTES:
                self._put(_ROOM_BYTES)
                self._written += _ROOM_BYTES

    def _put(self, size: int) -> None:
        if size == _ROOM_BYTES and not self._written:
            # What stands there by now is written once more, the same.
            self._go_on_with(self.storage.open_past_cache(self.path))
        with memoryview(self._room) as room, room[:size] as block:
            try:
                self.storage.pwrite(self._handle, block, self._written)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                # The file system wants larger blocks for that: then as usual.
                self._go_on_with(self.storage.open(self.path))
                self.storage.pwrite(self._handle, block, self._written)

    def _go_on_with(self, handle: int) -> None:
        self.storage.close(self._handle)
        self._handle = handle

    def flush(self) -> None:
        """Writes all of it; bytes that come later go on in the last block."""
        at = self.size - self._written
        if at:
            whole = -(-at // BLOCK_BYTES) * BLOCK_BYTES
            self._room[at:whole] = bytes(whole - at)
            self._put(whole)
            self.storage.truncate(self._handle, self.size)

    def sync(self) -> None:
        """All of it is on disk afterwards."""
        self.flush()
        self.storage.fdatasync(self._handle)

    def close(self) -> None:
        """Gives the handle back; what was not written is gone."""
        self.storage.close(self._handle)
        self._room.close()
