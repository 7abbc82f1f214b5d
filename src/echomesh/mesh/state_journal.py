"""The file of a state: it grows with every flush, and is written anew when most of it is history or it takes no more
writes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from echomesh.log.state import read_whole, write_whole
from echomesh.log.storage import Storage
from echomesh.mesh import state_format as format
from echomesh.mesh.state_format import StateReport, encode
from echomesh.mesh.state_table import Key, Table
from echomesh.native.log_sums import crc32c

_BATCH_BYTES: Final = 1 << 15  # a flipped bit can be found in so much, and the other thread's turn comes soon

Changes = dict[Key, bytes | None]


@dataclass
class _OpenFile:
    handle: int
    mark: bytes
    position: int
    sequence: int = 0


class StateJournal:
    """Keeps a table on disk. One thread appends, and one may sync and write anew beside it.

    `broken` is set when the file takes no more writes: what was appended since is in the table alone, and `sync` brings
    it into a new file.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        log_id: bytes,
        table: Table,
        compact_bytes: int,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.storage = storage
        self.path = path
        self.log_id = log_id
        self.table = table
        self.broken = True
        self.appends = 1  # what an earlier process wrote may not be on disk yet
        self.durable = 0  # how many of the appends are on disk for sure
        self._directory = path.rpartition("/")[0]
        self._compact_bytes = self._limit = compact_bytes
        self._entropy = entropy
        self._seed = crc32c(log_id)
        self._lock = threading.Lock()  # held while the file is written to, and while another takes its place
        self._file: _OpenFile | None = None
        self._tail: Changes | None = None  # what was appended while a new file is being written
        self._name_synced = False

    @property
    def file_bytes(self) -> int:
        """How large the file is."""
        return 0 if self._file is None else self._file.position

    @property
    def overgrown(self) -> bool:
        """Whether most of the file is history."""
        return self.file_bytes > self._limit

    def open(self) -> StateReport:
        """Fills the table from the file. Unless that was in order it is broken now: `rewrite` it."""
        self.storage.mkdir(self._directory)
        self.storage.unlink(f"{self.path}.new")
        data = read_whole(self.storage, self.path)
        if data is None:
            return StateReport(new=True)
        found = format.read(data, self.path, self.log_id)
        for changes in found.changes:
            self._apply(changes)
        if found.report.clean:
            self._file = _OpenFile(self.storage.open(self.path), found.mark, len(data), found.sequence)
            self._limit = max(self._compact_bytes, 4 * self._table_bytes())
            self.broken = False
        elif found.report.lost or found.report.notes:
            self._keep_aside(data, found.report)
        return found.report

    def _apply(self, changes: list[format.Change]) -> None:
        for key, value in changes:
            if value is None:
                self.table.delete(key)
            else:
                self.table.put(key, value)

    def _keep_aside(self, data: bytes, report: StateReport) -> None:
        try:
            write_whole(self.storage, f"{self.path}.aside", data)
            report.aside = f"{self.path}.aside"
        except OSError as error:
            report.notes.append(f"no copy of the damaged file could be kept: {error}")

    def _table_bytes(self) -> int:
        return sum(len(encode(batch)) for batch in self.table.batches(_BATCH_BYTES))

    def append(self, changes: Changes) -> None:
        """Writes changes that the table has already, in one write. When that fails, the file is broken."""
        body = encode(list(changes.items()))
        with self._lock:
            self.appends += 1
            if self._tail is not None:
                self._tail.update(changes)
            if self.broken or self._file is None:
                return
            try:
                self._write(self._file, body)
            except OSError:
                # Part of it may be there. What was written before stays good, and nothing may follow.
                self.broken = True
                raise

    def _write(self, file: _OpenFile, body: bytes) -> None:
        data = format.frame(self._seed, file.mark, file.sequence + 1, body)
        self.storage.pwrite(file.handle, data, file.position)
        file.position += len(data)
        file.sequence += 1

    def sync(self) -> None:
        """Everything that was appended before is on disk afterwards."""
        with self._lock:
            file, covered = None if self.broken else self._file, self.appends
        if file is not None:
            try:
                self._sync_name()
                self.storage.fdatasync(file.handle)
                self.durable = covered
                return
            except OSError:
                # The system may have dropped what it could not write: only the table still has it for sure.
                self.broken = True
        self.rewrite()

    def _sync_name(self) -> None:
        if not self._name_synced:
            self.storage.sync_directory(self._directory)
            self._name_synced = True

    def rewrite(self) -> None:
        """Writes the table into a new file that takes the old one's place; on disk afterwards.

        Appends go on meanwhile. They follow behind the table in the new file. If anything fails, the old file stays.
        """
        with self._lock:
            self._tail = {}
        path = f"{self.path}.new"
        handle = -1
        try:
            self.storage.unlink(path)
            handle = self.storage.open(path, create=True)
            file = _OpenFile(handle, self._entropy(format.MARK_BYTES), 0)
            self._write_table(file)
            covered = self._write_tail(file)
            self.storage.fdatasync(handle)
            with self._lock:
                # Appends of this last moment are as safe as they were: nobody can have synced them meanwhile.
                if self._tail:
                    self._write(file, encode(list(self._tail.items())))
                self.storage.rename(path, self.path)
                old, self._file = self._file, file
                self._tail = None
                self._name_synced = self.broken = False
        except BaseException:
            self._drop(path, handle)
            raise
        if old is not None:
            self.storage.close(old.handle)
        self._sync_name()
        self.durable = covered

    def _write_table(self, file: _OpenFile) -> None:
        head = format.header(self.log_id, file.mark)
        self.storage.pwrite(file.handle, head, 0)
        file.position = len(head)
        for batch in self.table.batches(_BATCH_BYTES):
            self._write(file, encode(batch))
        self._limit = max(self._compact_bytes, 4 * file.position)

    def _write_tail(self, file: _OpenFile) -> int:
        with self._lock:
            tail, self._tail, covered = self._tail, {}, self.appends
        if tail:
            self._write(file, encode(list(tail.items())))
        return covered

    def _drop(self, path: str, handle: int) -> None:
        with self._lock:
            self._tail = None
        with suppress(OSError):
            if handle >= 0:
                self.storage.close(handle)
            self.storage.unlink(path)

    def close(self) -> None:
        """Lets go of the file, without another write."""
        if self._file is not None:
            self.storage.close(self._file.handle)
            self._file = None
        self.broken = True
