"""The journal: files that take every commit, and are used again once they are not needed."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass
from typing import Final

from echomesh.log.storage import Storage
from echomesh.native.log_journal import write_zeros

SMALLEST_BYTES: Final = 1 << 20
LARGEST_BYTES: Final = 16 << 20
FREE_FILES: Final = 8
FULL_CODES: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass
class JournalFile:
    """A journal file that is open."""

    path: str
    handle: int
    size: int


class JournalFiles:
    """Makes journal files, keeps those that are full until they are not needed, and uses them again."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        sequence: int,
        smallest: int = SMALLEST_BYTES,
        largest: int = LARGEST_BYTES,
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.sequence = sequence
        self.wanted = self.smallest = smallest
        self.largest = largest
        self.open: dict[int, JournalFile] = {}
        self.full: list[tuple[int, int]] = []  # handle, number of the last frame
        self.free: list[JournalFile] = []
        self.spoiled: set[int] = set()  # handles of files that failed: they are never used again
        self.made = 0
        self.lock = threading.RLock()  # the leader of a commit and the keeper both come here

    def take(self, needed: int, *, fresh: bool = False) -> tuple[int, int, int]:
        """(handle, size, sequence) of a file with so much room, zeroed and synced or used before."""
        with self.lock:
            self.sequence += 1
            for file in [] if fresh else self.free:
                if file.size >= needed:
                    self.free.remove(file)
                    return file.handle, file.size, self.sequence
            least = -(-needed // 4096) * 4096
            try:
                file = self._make(max(self.wanted, least))
                self.wanted = min(self.wanted * 2, self.largest)
            except OSError as error:
                if error.errno not in FULL_CODES:
                    raise
                # A small one will do while there is little room.
                self.wanted = self.smallest
                file = self._make(max(self.smallest, least))
            self.open[file.handle] = file
            return file.handle, file.size, self.sequence

    def _make(self, size: int) -> JournalFile:
        taken = set(self.storage.names(self.directory))
        while (name := f"{self.made:08d}.jnl") in taken:
            self.made += 1
        path = f"{self.directory}/{name}"
        handle = self.storage.open(path, create=True)
        try:
            self.storage.allocate(handle, size)
            # Written once, so that a commit never has to wait for the file system to note new blocks.
            if self.storage.direct:
                write_zeros(handle, size)
            else:
                self.storage.pwrite(handle, bytes(size), 0)
                self.storage.fdatasync(handle)
            self.storage.sync_directory(self.directory)
        except OSError:
            self.storage.close(handle)
            self.storage.unlink(path)
            raise
        return JournalFile(path, handle, size)

    def filled(self, handle: int, last_number: int) -> None:
        """The file is full: it is needed until everything up to that frame is in synced segments."""
        with self.lock:
            self.full.append((handle, last_number))

    def give_back(self, handle: int) -> None:
        """The file was taken and not used; its sequence is void."""
        with self.lock:
            self.free.append(self.open[handle])

    def abandon(self, handle: int, last_number: int) -> None:
        """A write or sync of the file failed: it goes once what it holds is in synced segments."""
        with self.lock:
            self.spoiled.add(handle)
            self.full.append((handle, last_number))

    def recycle(self, number: int) -> None:
        """Everything up to this frame is in synced segments, and the checkpoint says so."""
        with self.lock:
            for entry in [entry for entry in self.full if entry[1] <= number]:
                self.full.remove(entry)
                file = self.open[entry[0]]
                if entry[0] in self.spoiled or file.size < self.wanted or len(self.free) >= FREE_FILES:
                    self._remove(file)
                else:
                    self.free.append(file)

    def needs_checkpoint(self) -> bool:
        """Whether full files wait."""
        return bool(self.full)

    def _remove(self, file: JournalFile) -> None:
        del self.open[file.handle]
        self.spoiled.discard(file.handle)
        self.storage.close(file.handle)
        self.storage.unlink(file.path)

    def close(self) -> None:
        """Closes the files."""
        for file in self.open.values():
            self.storage.close(file.handle)
        self.open.clear()
