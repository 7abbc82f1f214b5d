"""Files of a write that nobody reads yet: a fresh directory in the table, hidden from every reader, held by a lock.

The lock goes with its process, however that ends. So whoever cleans up can tell a write that goes on from what a killed
one has left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote

import pyarrow.parquet as pq

from echomesh.spark.locks import held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HIDDEN: Final = "_new"  # readers of Parquet directories, and Delta's, pass over names that begin with _
_LOCK: Final = "lock"
_UNLOCKED: Final = ".new"
_UNLOCKED_S: Final = 60.0  # far longer than it takes to lock one
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# The other kind, INT96, has no statistics, and Iceberg takes none of it.
_MICROS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
# With so many files open at a time a task need not sort its rows by their partitions.
_UNSORTED: Final = {"spark.sql.maxConcurrentOutputFileWriters": "8"}


@dataclass(frozen=True)
class DataFile:
    """A Parquet file, with its footer. `home` are the directories that name its partition: `date=2026-11-16`."""

    path: Path
    home: Path
    rows: int
    bytes: int
    footer: pq.FileMetaData

    @property
    def values(self) -> dict[str, str | None]:
        """The partition."""
        named = (part.partition("=") for part in self.home.parts)
        return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in named}


class Fresh:
    """A directory for the files of one write. `with` removes it in the end, and what is left in it."""

    def __init__(self, table: Path) -> None:
        self.name = uuid.uuid4().hex[:16]
        self.path = table / HIDDEN / self.name
        self.rows = self.path / "rows"

    def __enter__(self) -> Self:
        made = self.path.with_suffix(_UNLOCKED)
        made.mkdir(parents=True)
        self._lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        made.rename(self.path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def write(self, rows: DataFrame, partition_by: Sequence[str], sort_by: Sequence[str]) -> None:
        """Lets Spark write the rows, sorted within each of its tasks, or in the order in which they come."""
        if sort_by:
            rows = rows.sortWithinPartitions(*(f"`{name}`" for name in (*partition_by, *sort_by)))
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        with _set(rows, _MICROS if sort_by else _MICROS | _UNSORTED):
            writer.partitionBy(*partition_by).parquet(f"file://{self.rows}")

    def files(self) -> list[DataFile]:
        """What was written, without files that hold no rows."""
        found = (described(path, self.rows) for path in sorted(self.rows.rglob("*.parquet")))
        return [file for file in found if file.rows]

    def place(self, files: Sequence[DataFile], root: Path) -> list[DataFile]:
        """Moves files to where they stay, each into the directory of its partition."""
        placed = []
        for number, file in enumerate(files):
            target = root / file.home / f"part-{number:05d}-{self.name}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            file.path.replace(target)
            placed.append(replace(file, path=target))
        return placed


@contextmanager
def _set(rows: DataFrame, settings: dict[str, str]) -> Iterator[None]:
    conf = rows.sparkSession.conf
    was = {name: conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            conf.set(name, value)
        yield
    finally:
        for name, old_value in was.items():
            conf.set(name, str(old_value))


def described(path: Path, root: Path) -> DataFile:
    """A file below `root`."""
    footer = pq.read_metadata(path)
    return DataFile(path, path.relative_to(root).parent, footer.num_rows, path.stat().st_size, footer)


def live(table: Path) -> set[str]:
    """The names of the writes that go on."""
    return {path.name for path in _attempts(table) if held(path / _LOCK)}


def _attempts(table: Path) -> list[Path]:
    hidden = table / HIDDEN
    return sorted(hidden.iterdir()) if hidden.is_dir() else []


def sweep(table: Path, older_than_s: float) -> int:
    """Removes the directories of writes that were killed; how many."""
    removed = 0
    for path in _attempts(table):
        age_s = max(older_than_s, _UNLOCKED_S) if path.suffix == _UNLOCKED else older_than_s
        if old(path, age_s) and not held(path / _LOCK):
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed


def old(path: Path, older_than_s: float) -> bool:
    """Whether a file, or all in a directory, has not been changed for so long. Gone counts as not."""
    try:
        newest = max(one.stat().st_mtime for one in (path, *path.rglob("*")))
    except FileNotFoundError:
        return False
    return newest <= time.time() - older_than_s


def unlisted(root: Path, table: Path) -> list[Path]:
    """Parquet files below `root` that no write that goes on has made. Ask before the table's list of files is read."""
    there = list(_visible(root))
    names = live(table)  # after the files: a write that has ended by now is in the list
    return [path for path in there if path.stem.rpartition("-")[2] not in names]


def _visible(root: Path) -> Iterator[Path]:
    for directory, below, names in os.walk(root):
        below[:] = [name for name in below if not _hidden(name)]
        yield from (Path(directory, name) for name in names if name.endswith(".parquet"))


def _hidden(part: str) -> bool:
    return part.startswith(("_", ".")) and "=" not in part
