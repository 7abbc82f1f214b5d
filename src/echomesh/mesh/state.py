"""Small durable state: values by key, all in memory, written behind."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Final

import msgspec

from echomesh.errors import ClosedError, MessageTooLarge, StorageError, StorageFull, UsageError
from echomesh.log.storage import RealStorage, Storage
from echomesh.mesh.state_format import decode, encode
from echomesh.mesh.state_journal import Changes, StateJournal
from echomesh.mesh.state_table import Key, Table

FILE_NAME: Final = "mesh-state"
COMPACT_BYTES: Final = 1 << 20
KEY_BYTES: Final = 1 << 16
VALUE_BYTES: Final = 16 << 20
_FIRST_RETRY_S: Final = 0.1
_LAST_RETRY_S: Final = 5.0
_REWRITE: Final = "rewrite"
_STOP: Final = "stop"


class Sync:
    """Done when all that was put before it is on disk, or could not be brought there."""

    def __init__(self) -> None:
        self._done = False
        self._error: Exception | None = None

    def done(self) -> bool:
        """Whether it is decided."""
        return self._done

    def result(self) -> None:
        """Raises what kept the state from the disk."""
        if not self._done:
            raise UsageError("the state is not on disk yet: ask `done` first")
        if self._error is not None:
            raise self._error

    def finish(self, error: Exception | None) -> None:
        """Decides it."""
        self._error = error
        self._done = True


class StateFile:
    """Values by key, that survive: plain data that MessagePack can carry.

    `put` and `delete` change memory alone. After `flush` the changes survive the end of the process, after a `sync`
    that is done a power cut too. Each key is for itself: of two that were put together, one alone may survive.

    One thread uses it. With `threaded` another one syncs and compacts beside it, and calls `notify` from there whenever
    syncs were decided. Without, `flush` and `sync` do all of it before they return, as a simulation wants it.

    The lock of the data directory keeps other processes off. Damage does not keep it from opening: `report` tells what
    was found.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        log_id: bytes,
        *,
        storage: Storage | None = None,
        threaded: bool = False,
        notify: Callable[[], object] | None = None,
        compact_bytes: int = COMPACT_BYTES,
        clock: Callable[[], float] = monotonic,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.path = str(Path(path).absolute())
        self.error: StorageError | None = None
        """Why the last write failed; None while all is well."""
        self._table = Table()
        self._dirty: Changes = {}
        self._journal = StateJournal(storage or RealStorage(), self.path, log_id, self._table, compact_bytes, entropy)
        self._notify = notify
        self._clock = clock
        self._retry_at = 0.0
        self._retry_s = _FIRST_RETRY_S
        self._open()
        self._rewriting = False
        self._closed = False
        self._work: SimpleQueue[Sync | str] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="echomesh-mesh-state", daemon=True)
            self._thread.start()

    def _open(self) -> None:
        try:
            self.report = self._journal.open()
        except OSError as error:
            raise self._explained(error) from error
        if not self.report.clean:
            try:
                self._journal.rewrite()
            except OSError as error:
                self.report.notes.append(f"nothing can be written for now: {self._refused(error)}")

    def __len__(self) -> int:
        return len(self._table)

    @property
    def file_bytes(self) -> int:
        """How large the file is."""
        return self._journal.file_bytes

    # Values

    def get(self, key: Key) -> object | None:
        """The value as MessagePack gives it back (a tuple comes as a list); None for none."""
        data = self._table.get(key)
        return None if data is None else decode(data)

    def items(self, prefix: Key) -> list[tuple[Key, object]]:
        """Everything whose key begins so, sorted by key."""
        return [(key, decode(data)) for key, data in self._table.items(prefix)]

    def put(self, key: Key, value: object) -> None:
        """Sets the value as it is now: what is done to a list or dict later changes nothing here."""
        data = _encoded(value)
        before = self._table.get(key) if key else None
        if before == data:
            return
        if before is None:
            _check(key)
        self._table.put(key, data)
        self._dirty[key] = data

    def delete(self, key: Key) -> None:
        """Forgets the key."""
        if key and self._table.delete(key):
            self._dirty[key] = None

    # Writing

    def flush(self) -> bool:
        """Writes what changed, in one write; whether all that was put survives the end of the process now.

        When the disk refuses, `error` says why. Nothing is forgotten then: later flushes write all of it to a new file.
        """
        self._check_open()
        journal = self._journal
        if self._dirty:
            changes, self._dirty = self._dirty, {}
            try:
                journal.append(changes)
            except OSError as error:
                self.error = self._explained(error)
        if (journal.broken or journal.overgrown) and not self._rewriting and self._clock() >= self._retry_at:
            self._rewriting = True
            if self._thread is None:
                self._settle([], True)
            else:
                self._work.put(_REWRITE)
        return not journal.broken

    def sync(self) -> Sync:
        """Writes what changed; done when it is on disk. Many share one sync of the disk.

        A failure is told only after a new file was tried and failed too.
        """
        self.flush()
        sync = Sync()
        if self._journal.durable == self._journal.appends:
            sync.finish(None)
        elif self._thread is None:
            self._settle([sync], False)
        else:
            self._work.put(sync)
        return sync

    def close(self) -> None:
        """Brings everything to disk and lets go of the file; raises if that is not possible."""
        if self._closed:
            return
        last = self.sync()
        self._closed = True
        if self._thread is not None:
            self._work.put(_STOP)
            self._thread.join()
        self._journal.close()
        last.result()

    # What takes its time

    def _run(self) -> None:
        work: list[Sync | str] = []
        while _STOP not in work:
            work = [self._work.get()]
            while not self._work.empty():
                work.append(self._work.get())
            self._settle([one for one in work if isinstance(one, Sync)], _REWRITE in work)

    def _settle(self, syncs: list[Sync], rewrite: bool) -> None:
        failure: Exception | None = None
        try:
            self._bring_to_disk(bool(syncs), rewrite)
        except OSError as error:
            failure = self._refused(error)
        except Exception as error:
            # Whatever it was, nobody may wait for ever, nor be told that all is well.
            failure = error
        if rewrite:
            self._rewriting = False
        for sync in syncs:
            sync.finish(failure)
        if syncs and self._notify is not None:
            # A loop that was closed meanwhile takes no calls.
            with suppress(RuntimeError):
                self._notify()

    def _bring_to_disk(self, syncs: bool, rewrite: bool) -> None:
        if rewrite and not self._journal.broken:
            try:
                self._journal.rewrite()
                self._succeeded()
            except OSError as error:
                # The old file is as good as it was, and goes on growing.
                self._refused(error)
        if syncs or self._journal.broken:
            self._journal.sync()
            self._succeeded()

    def _refused(self, error: OSError) -> StorageError:
        self.error = self._explained(error)
        self._retry_at = self._clock() + self._retry_s
        self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)
        return self.error

    def _succeeded(self) -> None:
        self.error = None
        self._retry_at = 0.0
        self._retry_s = _FIRST_RETRY_S

    def _explained(self, error: OSError) -> StorageError:
        code = error.errno or errno.EIO
        if code in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull(code, "no room for the state of the mesh: free some", self.path)
        reason = f"the state of the mesh can't be read or written ({error.strerror or error}): check the disk"
        return StorageError(code, reason, self.path)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the state in {self.path} is closed")


def _encoded(value: object) -> bytes:
    try:
        data = encode(value)
        if type(value) is not int:
            decode(data)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"a value of type {type(value).__name__} can't be kept: {error}") from error
    if len(data) > VALUE_BYTES:
        raise MessageTooLarge(len(data), VALUE_BYTES, "a value of the state")
    return data


def _check(key: Key) -> None:
    if not key or not isinstance(key, tuple) or not all(isinstance(part, str) for part in key):
        raise UsageError(f"{key!r} is no key: use a tuple of texts, not an empty one")
    try:
        size = len(encode(key))
    except UnicodeEncodeError as error:
        raise UsageError(f"{key!r} is no key: {error}") from error
    if size > KEY_BYTES:
        raise MessageTooLarge(size, KEY_BYTES, "a key of the state")
