"""A table that takes each batch of rows once, whatever format it has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from echomesh.errors import BadTable, BusyError, StaleWriter, UsageError
from echomesh.spark.tables.compaction import TARGET_BYTES, Compacted, bins, merged
from echomesh.spark.tables.schema import check_partitions, grown, open_schema
from echomesh.spark.tables.staging import DataFile, Fresh

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WEEK_S: Final = 7 * 86_400.0
_TRIES: Final = 50  # each of them is lost to a commit of somebody else
_DAY: Final = "date_from_unix_date(cast(floor(unix_seconds(`timestamp`) / 86400) as int))"


@dataclass(frozen=True)
class Written:
    """What a write has added: nothing, when the table had this epoch already (`repeated`) or there were no rows."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    repeated: bool = False


class Conflict(Exception):
    """Somebody else has changed the table since it was looked at: look again."""


class Table(ABC):
    """A table in a directory. `echomesh.spark.tables.open_table` makes one."""

    format: str

    def __init__(self, path: Path, partition_by: Sequence[str], sort_by: Sequence[str]) -> None:
        self.path = path
        self.partition_by = tuple(partition_by)
        self.sort_by = tuple(sort_by)

    def write(self, rows: DataFrame, writer: str, epoch: int) -> Written:
        """Adds the rows, once for each `writer` and `epoch`, for every reader at the same time.

        The last epoch again changes nothing. An older one fails with `StaleWriter`. A table that is not there is made;
        columns that it has not got are added, and `SchemaChanged` names one that has another type.
        """
        if not writer or epoch < 0:
            raise UsageError(f"writer {writer!r}, epoch {epoch}: a writer has a name, and epochs count from 0")
        if self._is_done(writer, epoch):
            return Written(repeated=True)
        rows = self._dated(rows)
        schema, partition_by = self._prepared(open_schema(rows.schema))
        with Fresh(self.path) as fresh:
            self._spark_write(fresh, rows, partition_by, [name for name in self.sort_by if name in schema.names])
            files = fresh.files()
            if not files:
                return Written()
            return self._conclude(fresh, files, writer, epoch)

    def compact(self, target_bytes: int = TARGET_BYTES) -> Compacted:
        """Turns small files into large ones, sorted. Writers and readers go on meanwhile.

        The files that were replaced stay for readers that have begun, until `vacuum`.
        """
        total = Compacted()
        for group in bins(self.files(), target_bytes):
            with Fresh(self.path) as fresh:
                # The partition is in the names of directories, and in Iceberg's files as well.
                made = merged(group, fresh.rows, self.stored_schema(), self.sort_by)
                if self._exchanged(fresh, group, made):
                    total += Compacted(len(group), 1, made.rows, made.bytes)
        return total

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows that are there now, as a DataFrame."""
        schema = self.schema()
        files = [f"file://{file}" for file in self.paths()]
        if not files:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).option("basePath", f"file://{self.root}").parquet(*files).select(schema.names)

    @property
    def root(self) -> Path:
        """The directory below which partitions begin."""
        return self.path

    @property
    def exists(self) -> bool:
        """Whether something has been written yet."""
        return self._look()

    @abstractmethod
    def schema(self) -> StructType:
        """The table's columns."""

    def stored_schema(self) -> StructType:
        """The columns that stand in files: those of the partition are in the names of directories."""
        outside = self.partitions()
        return StructType([field for field in self.schema().fields if field.name not in outside])

    @abstractmethod
    def partitions(self) -> list[str]:
        """The columns that the table is partitioned by."""

    @abstractmethod
    def last_epoch(self, writer: str) -> int | None:
        """The newest epoch that this writer has written; None when there is none."""

    @abstractmethod
    def paths(self) -> list[Path]:
        """The Parquet files that hold the rows now."""

    @abstractmethod
    def files(self) -> list[DataFile]:
        """The same with their footers."""

    @abstractmethod
    def vacuum(self, older_than_s: float = WEEK_S) -> int:
        """Removes files that are no part of the table any more: of killed writes, and those that were replaced.

        How many files. Whoever reads since longer than `older_than_s` may miss some. A write that goes on is safe.
        """

    @abstractmethod
    def _look(self) -> bool:
        """Reads the table's newest state; whether it is there."""

    @abstractmethod
    def _create(self, schema: StructType, partition_by: list[str]) -> None:
        """Makes the table; does nothing, or raises `Conflict`, when somebody was faster."""

    @abstractmethod
    def _widen(self, schema: StructType) -> None:
        """Gives the table these columns, which have the old ones among them."""

    @abstractmethod
    def _commit(self, fresh: Fresh, files: Sequence[DataFile], writer: str, epoch: int) -> None:
        """Makes files part of the table as it was looked at; `Conflict` if it has changed since."""

    @abstractmethod
    def _exchange(self, old: Sequence[DataFile], new: DataFile, fresh: Fresh) -> None:
        """Puts a file in the place of others, in the table as it was looked at; `Conflict` if it has changed since."""

    def _place(self, fresh: Fresh, files: Sequence[DataFile]) -> list[DataFile]:
        """Brings files to where they stay. Nobody sees them yet."""
        return fresh.place(files, self.root)

    def _spark_write(self, fresh: Fresh, rows: DataFrame, partition_by: list[str], sort_by: list[str]) -> None:
        fresh.write(rows, partition_by, sort_by)

    def _is_done(self, writer: str, epoch: int) -> bool:
        """Whether the table has this epoch; `StaleWriter` when it has a newer one."""
        last = self.last_epoch(writer) if self._look() else None
        if last is not None and epoch < last:
            raise StaleWriter(writer, epoch, last)
        return last == epoch

    def _dated(self, rows: DataFrame) -> DataFrame:
        # The day on which an event was appended, for rows that come from a topic as they are.
        wanted = self.partitions() if self.exists else self.partition_by
        kinds = {field.name: field.dataType for field in rows.schema.fields}
        if "date" in wanted and "date" not in kinds and kinds.get("timestamp") == TimestampType():
            return rows.withColumn("date", F.expr(_DAY))
        return rows

    def _prepared(self, rows: StructType) -> tuple[StructType, list[str]]:
        """The table is there and has all columns of the rows afterwards; its columns, and those of its partitions."""
        lost: Conflict | None = None
        for _ in range(_TRIES):
            try:
                if not self._look():
                    partition_by = [name for name in self.partition_by if name in rows.names]
                    check_partitions(rows, partition_by)
                    self._create(rows, partition_by)
                    continue
                partition_by = self.partitions()
                if missing := [name for name in partition_by if name not in rows.names]:
                    raise BadTable(f"the rows have no column {missing[0]!r}, by which {self.path} is partitioned")
                if (wider := grown(self.schema(), rows, self.path.name)) is not None:
                    self._widen(wider)
                    continue
                return rows, partition_by
            except Conflict as conflict:
                lost = conflict
        raise self._too_busy() from lost

    def _conclude(self, fresh: Fresh, files: list[DataFile], writer: str, epoch: int) -> Written:
        placed = self._place(fresh, files)
        committed, lost = False, None
        try:
            for _ in range(_TRIES):
                if self._is_done(writer, epoch):
                    return Written(repeated=True)  # another run of the same writer was faster
                try:
                    self._commit(fresh, placed, writer, epoch)
                except Conflict as conflict:
                    lost = conflict
                    continue
                committed = True
                return Written(sum(file.rows for file in files), len(files), sum(file.bytes for file in files))
            raise self._too_busy() from lost
        except Exception:
            # A commit that failed may still be there, if only its answer was lost.
            committed = committed or self._may_be_there(writer, epoch)
            raise
        finally:
            if not committed:
                _remove(placed)

    def _may_be_there(self, writer: str, epoch: int) -> bool:
        try:
            return self._is_done(writer, epoch)
        except StaleWriter:
            return False
        except Exception:
            return True  # vacuum will find out

    def _exchanged(self, fresh: Fresh, old: Sequence[DataFile], made: DataFile) -> bool:
        """Whether the new file stands for the old ones now."""
        placed = self._place(fresh, [made])
        for _ in range(_TRIES):
            if not self._look() or not {file.path for file in old} <= set(self.paths()):
                break  # somebody else has replaced them
            for file in old:
                file.path.touch()  # its age counts from now on
            try:
                self._exchange(old, placed[0], fresh)
            except Conflict:
                continue
            return True
        _remove(placed)
        return False

    def _too_busy(self) -> BusyError:
        return BusyError(f"the table {self.path} has changed {_TRIES} times before a write was committed: try again")

    def _absent(self) -> BadTable:
        return BadTable(f"there is no table in {self.path} yet: its first write makes it")


def _remove(files: Sequence[DataFile]) -> None:
    for file in files:
        file.path.unlink(missing_ok=True)
