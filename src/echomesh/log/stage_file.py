"""A stage as it is written: a file of its own in the data directory, whoever writes it.

The log's writer process need not be the one: a task on the same machine may stage its rows itself. Only the commit is
the writer's.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import Buffer

from echomesh.log import stage_copy
from echomesh.log.index import STEP_BYTES
from echomesh.log.layout import Paths
from echomesh.log.stage_copy import Ending, Key, Purpose
from echomesh.log.storage import RealStorage, Storage
from echomesh.log.storage.blocks import BlockFile
from echomesh.native.log_record import encode
from echomesh.native.log_stage import mark_block
from echomesh.native.log_sums import crc32c
from echomesh.native.log_window import hashes_of

WRITE_BYTES: Final = 1 << 20
MOST_KNOWN_BYTES: Final = 80 << 20  # so that hashes of the shortest rows are no larger than a record may be
BESIDE: Final = ".task"  # behind the name of a stage that another process is writing


class Staged(NamedTuple):
    """A stage that was closed: what its writer tells whoever commits."""

    stage: str
    rows: int
    checksum: int


class StageFile:
    """Rows for one (writer, epoch, run, part): on disk after `close`, and in no topic before their commit."""

    def __init__(
        self, storage: Storage, paths: Paths, purpose: Purpose, suffix: str = ".new", key: bytes | None = None
    ) -> None:
        """With the `key` of windows of duplicates the stage tells by what they know its rows."""
        self.storage = storage
        self.paths = paths
        self.name = uuid.uuid4().hex
        self.made_ns = purpose.made_ns
        self.path = stage_copy.path_of(paths, self.name)
        self.topics: dict[Key, int] = {}
        self.rows = 0
        self.checksum = 0
        self.marks: list[tuple[int, int]] = []  # number and position of some rows, for an index
        self.mark = 0
        self.buffer = bytearray(encode(0, 0, None, stage_copy.pack(purpose)))
        self.fresh = self.path + suffix
        self.key = key
        self.hashes = bytearray()
        self.file = BlockFile(storage, self.fresh)

    def put(self, topic: str, event: Buffer, environment: str) -> bool:
        """Adds a row without writing; True when `flush` should be called."""
        number = self.topics.setdefault((environment, topic), len(self.topics))
        self.rows += 1
        row = encode(self.rows, number, None, event)
        self._know(row)
        if self.position + len(self.buffer) >= self.mark:
            self.marks.append((self.rows, self.position + len(self.buffer)))
            self.mark = self.marks[-1][1] + STEP_BYTES
        self.buffer += row
        return len(self.buffer) >= WRITE_BYTES

    def put_rows(self, rows: Buffer, count: int, topics: Sequence[Key]) -> None:
        """Writes rows that are in the file's own form already, and were checked.

        `topics` are those that they name for the first time, in the order of their numbers.
        """
        for key in topics:
            self.topics.setdefault(key, len(self.topics))
        self.flush()
        self._know(rows)
        self.mark = mark_block(rows, self.rows + 1, self.position, self.mark, STEP_BYTES, self.marks)
        self._write(rows)
        self.rows += count

    def _know(self, rows: Buffer) -> None:
        # Only a stage that may become a segment needs these, and marks: one that is far larger has none of them.
        if self.position > MOST_KNOWN_BYTES:
            self.key, self.mark = None, sys.maxsize
            self.hashes.clear()
            self.marks.clear()
        if self.key is not None:
            self.hashes += hashes_of(self.key, rows)

    def flush(self) -> None:
        """Writes what was added."""
        if self.buffer:
            self._write(self.buffer)
            self.buffer.clear()

    def _write(self, data: Buffer) -> None:
        self.file.write(data)
        self.checksum = crc32c(data, self.checksum)

    @property
    def position(self) -> int:
        """How many bytes it has."""
        return self.file.size

    def finish(self) -> Staged:
        """Ends the stage; it is on disk afterwards."""
        try:
            self.flush()
            checksum = self.checksum
            ending = Ending(list(self.topics), self.rows, checksum, self.position, self.marks)
            if self.hashes:
                self._write(encode(0, -3, None, self.hashes))
            self.buffer += encode(self.rows + 1, -1, None, stage_copy.pack(ending))
            self.buffer += stage_copy.tail(self.position)
            self.flush()
            self.file.sync()
            self.storage.rename(self.fresh, self.path)
            self.storage.sync_directory(self.paths.staging)
        finally:
            self.file.close()
        return Staged(self.name, self.rows, checksum)

    def drop(self) -> None:
        """Ends it, and its rows are gone."""
        self.file.close()
        self.storage.unlink(self.fresh)


def stage_beside(
    directory: str | os.PathLike[str], writer: str, epoch: int, run: str, part: int, *, storage: Storage | None = None
) -> StageFile:
    """Begins a stage from another process than the log's writer, on the same machine."""
    made = StageFile(
        storage or RealStorage(),
        Paths(str(Path(directory).absolute())),
        Purpose(writer, epoch, run, part, time.time_ns()),
        BESIDE,
    )
    made.flush()
    made.file.flush()  # what it is for stands there from the beginning, so that the writer lets it be
    return made


def drop_stage(directory: str | os.PathLike[str], stage: str) -> None:
    """Drops a stage that nobody will commit."""
    Path(stage_copy.path_of(Paths(str(directory)), stage)).unlink(missing_ok=True)
