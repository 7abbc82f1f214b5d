"""What the tests of the state share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from echomesh.log.storage import Storage
from echomesh.mesh.state import StateFile
from tests.log.support import FaultyStorage

LOG_ID = bytes(range(16))
Key = tuple[str, ...]


class FaultyDisk(FaultyStorage):
    """A disk on which renames and syncs of directories can fail too."""

    def rename(self, old: str, new: str) -> None:
        self._maybe("rename", old)
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self._maybe("sync_directory", path)
        super().sync_directory(path)


@contextmanager
def fresh_directory() -> Iterator[Path]:
    """In memory, for one example of many."""
    with TemporaryDirectory(prefix="echomesh-test-", dir="/dev/shm") as path:
        yield Path(path)


def opened(directory: Path, storage: Storage | None = None, **options: Any) -> StateFile:
    """The state in this directory."""
    return StateFile(directory / "state", LOG_ID, storage=storage, **options)


def content(state: StateFile) -> dict[Key, object]:
    """All of it."""
    return dict(state.items(()))


def drop(state: StateFile) -> None:
    """Lets go of its file without another write, as the end of its process would."""
    state._journal.close()


def found(directory: Path, storage: Storage | None = None) -> dict[Key, object]:
    """What another process finds there."""
    state = opened(directory, storage)
    drop(state)
    return content(state)


def is_clean(directory: Path) -> bool:
    """Whether another process finds the file in order."""
    state = opened(directory)
    drop(state)
    return state.report.clean
