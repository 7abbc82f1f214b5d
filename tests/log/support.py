"""What the tests of the log share."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from typing_extensions import Buffer

from echomesh.log import LogOptions, LogReader, TopicLog
from echomesh.log.storage import RealStorage, Storage
from echomesh.log.topic_reader import TopicReader

SMALL = 1 << 16


def small(storage: Storage | None = None, **changes: Any) -> LogOptions:
    """Options that reach every limit soon, with nothing going on in the background."""
    chosen: dict[str, Any] = {
        "segment_bytes": 2048,
        "journal_bytes": SMALL,
        "background": False,
        "duplicate_bytes": 0,
        "open_segments": 16,
        "lease_offsets": 16,
        "adopt_bytes": 0,
    }
    if storage is not None:
        chosen["storage"] = storage
    return LogOptions(**(chosen | changes))


def events_of(topic: TopicReader, offset: int | None = None) -> list[bytes]:
    """All events from an offset, by default the earliest, to the end."""
    found: list[bytes] = []
    at = topic.earliest if offset is None else offset
    while at < topic.end:
        records = topic.read(at)
        assert records.first == at
        found += records.events()
        at = records.next_offset
    return found


def stored(directory: Path | str, topic: str, storage: Storage | None = None) -> list[bytes]:
    """What a reader of its own finds."""
    with LogReader(directory, storage=storage) as log:
        return events_of(log.topic(topic))


def crash(log: TopicLog) -> None:
    """Ends the writer without another write."""
    log.core.abandon()


class FaultyStorage(RealStorage):
    """A real disk on which chosen calls fail: `fail["fdatasync"] = (count, errno)` for so many calls, the next
    ones or those behind `skip` of them.
    """

    direct = False

    def __init__(self) -> None:
        self.fail: dict[str, tuple[int, int]] = {}
        self.only = ""
        self.skip = 0
        self.paths: dict[int, str] = {}

    def _maybe(self, call: str, path: str) -> None:
        left, code = self.fail.get(call, (0, 0))
        if left and self.only in path:
            if self.skip:
                self.skip -= 1
                return
            self.fail[call] = (left - 1, code)
            raise OSError(code, os.strerror(code), path)

    def open(self, path: str, *, create: bool = False) -> int:
        if create:
            self._maybe("create", path)
        handle = super().open(path, create=create)
        self.paths[handle] = path
        return handle

    def open_past_cache(self, path: str) -> int:
        handle = super().open_past_cache(path)
        self.paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        del self.paths[handle]
        super().close(handle)

    def pwrite(self, handle: int, data: Buffer, position: int) -> None:
        self._maybe("pwrite", self.paths[handle])
        super().pwrite(handle, data, position)

    def fdatasync(self, handle: int) -> None:
        self._maybe("fdatasync", self.paths[handle])
        super().fdatasync(handle)

    def allocate(self, handle: int, size: int) -> None:
        self._maybe("allocate", self.paths[handle])
        super().allocate(handle, size)

    def sync_all(self, path: str) -> None:
        self._maybe("sync_all", path)
        super().sync_all(path)


EIO = errno.EIO
ENOSPC = errno.ENOSPC
FOREVER = 1 << 30
