"""Tables that are nothing but directories of Parquet files: each batch is one directory, which appears by one rename.

    rows/batch=w<writer>-<epoch>/date=<day>/part-*.parquet     what everybody reads
    _schema.json   _lock   _writers/   _new/                   what readers pass over

The name of a batch's directory says who has written it. When it goes because its rows were put into larger files,
`_writers` keeps the epoch.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import StructType

from echomesh.spark.tables.staging import DataFile, Fresh, described, sweep
from echomesh.spark.tables.table import WEEK_S, Conflict, Table

_AT_FDCWD: Final = -100
_EXCHANGE: Final = 2
_EPOCH_DIGITS: Final = 19


class Parquet(Table):
    """A table of Parquet files that needs no library to be read."""

    format = "parquet"
    _state: bytes = b""

    @property
    def root(self) -> Path:
        """The directory below which partitions begin."""
        return self.path / "rows"

    def schema(self) -> StructType:
        """The table's columns."""
        return StructType.fromJson(self._noted()["schema"])

    def partitions(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(self._noted()["partition_by"])

    def last_epoch(self, writer: str) -> int | None:
        """The newest epoch of this writer."""
        return self._epochs().get(_key(writer))

    def paths(self) -> list[Path]:
        """The Parquet files that hold the rows now."""
        return sorted(self.root.rglob("*.parquet"))

    def files(self) -> list[DataFile]:
        """The same with their footers."""
        found = (described(path, self.root) for path in self.paths())
        return [replace(one, home=Path(*one.home.parts[1:])) for one in found]

    def vacuum(self, older_than_s: float = WEEK_S) -> int:
        """Removes what killed writes have left; how many of them. Replaced files are gone at once in this format."""
        return sweep(self.path, older_than_s)

    def _noted(self) -> dict[str, Any]:
        if not self._state and not self._look():
            raise self._absent()
        noted: dict[str, Any] = json.loads(self._state)
        return noted

    def _epochs(self) -> dict[str, int]:
        epochs = {path.name: int(path.read_text()) for path in (self.path / "_writers").glob("w*")}
        for path in self.root.glob("batch=w*"):
            key, _, epoch = path.name.removeprefix("batch=").partition("-")
            epochs[key] = max(epochs.get(key, -1), int(epoch))
        return epochs

    def _look(self) -> bool:
        with suppress(FileNotFoundError):
            self._state = (self.path / "_schema.json").read_bytes()
            return True
        return False

    def _create(self, schema: StructType, partition_by: list[str]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if (self.path / "_schema.json").exists():
                raise Conflict
            self.root.mkdir(exist_ok=True)
            self._note(schema, partition_by)

    def _widen(self, schema: StructType) -> None:
        seen, partition_by = self._state, self.partitions()
        with self._locked():
            self._look()
            if self._state != seen:
                raise Conflict
            self._note(schema, partition_by)

    def _note(self, schema: StructType, partition_by: list[str]) -> None:
        noted = {"schema": schema.jsonValue(), "partition_by": partition_by}
        _replace(self.path / "_schema.json", json.dumps(noted))

    def _place(self, fresh: Fresh, files: Sequence[DataFile]) -> list[DataFile]:
        return list(files)  # the directory is moved as a whole

    def _commit(self, fresh: Fresh, files: Sequence[DataFile], writer: str, epoch: int) -> None:
        with self._locked():
            last = self.last_epoch(writer)
            if last is not None and last >= epoch:
                raise Conflict
            fresh.rows.rename(self.root / f"batch={_key(writer)}-{epoch:0{_EPOCH_DIGITS}d}")

    def _exchange(self, old: Sequence[DataFile], new: DataFile, fresh: Fresh) -> None:
        # A second tree of the same files, but for the old ones, takes the place of the first in one step.
        gone = {file.path for file in old}
        shadow = fresh.path / "shadow"
        with self._locked():
            there = self.paths()
            if not gone <= set(there):
                raise Conflict
            for path in there:
                if path not in gone:
                    target = shadow / path.relative_to(self.root)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.hardlink_to(path)
            home = shadow / f"batch=c{fresh.name}" / new.home
            home.mkdir(parents=True)
            new.path.rename(home / f"part-00000-{fresh.name}.parquet")
            (self.path / "_writers").mkdir(exist_ok=True)
            for key, epoch in self._epochs().items():
                _replace(self.path / "_writers" / key, str(epoch))
            _swap(shadow, self.root)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self.path / "_lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _key(writer: str) -> str:
    return f"w{hashlib.sha256(writer.encode()).hexdigest()[:16]}"


def _replace(path: Path, text: str) -> None:
    # Names that begin with _ or . are no table's files.
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


def _swap(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, f"the file system can't exchange directories: {os.strerror(number)}", str(other))
