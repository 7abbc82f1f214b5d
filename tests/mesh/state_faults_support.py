"""A history of what was put, to hold a state file against."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from echomesh.errors import StorageError
from echomesh.log.storage import PowerCut, SimulatedStorage
from echomesh.mesh.state import StateFile
from tests.mesh.state_support import Key, content, drop, found, opened

CALLS = ["pwrite", "fdatasync", "create", "rename", "sync_directory"]


class History:
    """All values that each key ever had, and where in them the last flush and the last sync that was done stand."""

    def __init__(self) -> None:
        self.values: dict[Key, list[object]] = {}
        self.flushed: dict[Key, int] = {}
        self.synced: dict[Key, int] = {}

    def put(self, key: Key, value: object) -> None:
        self.values.setdefault(key, [None]).append(value)

    def now(self) -> dict[Key, int]:
        return {key: len(values) - 1 for key, values in self.values.items()}

    def flush(self, state: StateFile) -> None:
        now = self.now()
        assert state.flush()
        self.flushed = now

    def sync(self, state: StateFile) -> None:
        now = self.now()
        state.sync().result()
        self.flushed = self.synced = now

    def check(self, seen: dict[Key, object], since: dict[Key, int]) -> None:
        """Nothing that was never put, and nothing older than at that time."""
        assert seen.keys() <= self.values.keys()
        for key, values in self.values.items():
            assert seen.get(key) in values[since.get(key, 0) :], key


def work(state: StateFile, history: History, seed: int) -> None:
    """Puts, deletes, flushes and syncs, over files that get full soon."""
    chosen = random.Random(seed)
    for i in range(120):
        change(state, history, ("k", str(chosen.randrange(12))), None if chosen.random() < 0.15 else i)
        if chosen.random() < 0.4:
            history.flush(state)
        if chosen.random() < 0.2:
            history.sync(state)


def change(state: StateFile, history: History, key: Key, value: object) -> None:
    history.put(key, value)
    if value is None:
        state.delete(key)
    else:
        state.put(key, value)


def after_kill(disk: SimulatedStorage) -> SimulatedStorage:
    """The disk as another process finds it while the machine lives on."""
    left = SimulatedStorage()
    for path, file in disk.files.items():
        handle = left.open(path, create=True)
        left.pwrite(handle, file.content, 0)
        left.close(handle)
    left.sync_all("/")
    return left


def cut(directory: Path, seed: int, after: int) -> tuple[SimulatedStorage, History]:
    disk, history = SimulatedStorage(after, seed=after), History()
    try:
        state = opened(directory, disk, compact_bytes=400)
        work(state, history, seed)
        history.sync(state)
        state.close()
    except PowerCut:
        pass
    return disk, history


# Files that are torn or damaged


def written(directory: Path) -> list[tuple[int, dict[Key, object]]]:
    """Writes a small file; where each of its frames ends, and what is known then."""
    state = opened(directory)
    ends: list[tuple[int, dict[Key, object]]] = [(state.file_bytes, {})]
    for i in range(4):
        state.put(("topic", "é"), i)
        state.put(("k", str(i)), "value" * i)
        if i == 3:
            state.delete(("k", "1"))
        assert state.flush()
        ends.append((state.file_bytes, content(state)))
    drop(state)
    return ends


def decided(state: StateFile) -> StorageError | None:
    """Syncs, and waits until that is decided; what kept it from the disk."""
    told = threading.Event()
    state._notify = told.set
    sync = state.sync()
    while not sync.done():
        assert told.wait(30)
    try:
        sync.result()
    except StorageError as error:
        return error
    return None


def read_copy(directory: Path) -> dict[Key, object]:
    (directory / "copy").mkdir(exist_ok=True)
    (directory / "copy" / "state").write_bytes((directory / "state").read_bytes())
    return found(directory / "copy")
