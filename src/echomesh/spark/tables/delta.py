"""Delta tables without a JAR: Spark writes Parquet files, `deltalake` registers them.

A commit is the next file of the table's log, which only one can make. It holds the files and, as an application
transaction, writer and epoch. It is tried for the version that was looked at, and for no other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyspark.sql.types import StructType

from echomesh.spark.tables.staging import DataFile, Fresh, described, old, sweep, unlisted
from echomesh.spark.tables.stats import stats
from echomesh.spark.tables.table import WEEK_S, Conflict, Table

_LOG = "_delta_log"


class Delta(Table):
    """A Delta table."""

    format = "delta"
    _table: DeltaTable | None = None

    def schema(self) -> StructType:
        """The table's columns."""
        return StructType.fromJson(json.loads(self._opened().schema().to_json()))

    def partitions(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(self._opened().metadata().partition_columns)

    def last_epoch(self, writer: str) -> int | None:
        """The newest epoch of this writer."""
        return self._opened().transaction_version(writer)

    def paths(self) -> list[Path]:
        """The Parquet files that hold the rows now."""
        if not self._look():
            return []
        paths = pa.table(self._opened().get_add_actions())["path"].to_pylist()
        return [self.path / unquote(str(path)) for path in paths]  # as they stand in the log

    def files(self) -> list[DataFile]:
        """The same with their footers."""
        return [described(path, self.path) for path in self.paths()]

    def vacuum(self, older_than_s: float = WEEK_S) -> int:
        """Removes files that are no part of the table any more; how many."""
        candidates = [path for path in unlisted(self.path, self.path) if old(path, older_than_s)]
        removed = 0
        if self._look():
            # It knows when others have replaced files; in whole hours.
            hours = int(older_than_s // 3600)
            free = self._opened().vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
            allowed = {self.path / name for path in free for name in (path, unquote(path))} - set(self.paths())
            for path in candidates:
                if path in allowed:
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed + sweep(self.path, older_than_s)

    def _opened(self) -> DeltaTable:
        if self._table is None and not self._look():
            raise self._absent()
        assert self._table is not None
        return self._table

    def _look(self) -> bool:
        if self._table is None:
            if not (self.path / _LOG).is_dir():
                return False
            try:
                self._table = DeltaTable(str(self.path))
            except TableNotFoundError:
                return False
        else:
            self._table.update_incremental()
        return True

    def _create(self, schema: StructType, partition_by: list[str]) -> None:
        try:
            DeltaTable.create(str(self.path), Schema.from_json(schema.json()), mode="ignore", partition_by=partition_by)
        except CommitFailedError as error:
            raise Conflict from error

    def _widen(self, schema: StructType) -> None:
        # A commit of its own: a column without values changes no row.
        fields = Schema.from_json(schema.json()).fields
        known = {field.name: field for field in self._opened().schema().fields}
        try:
            self._opened().alter.add_columns([field for field in fields if known.get(field.name) != field])
        except CommitFailedError as error:
            raise Conflict from error

    def _commit(self, fresh: Fresh, files: Sequence[DataFile], writer: str, epoch: int) -> None:
        self._write(list(map(self._added, files)), CommitProperties(
            app_transactions=[Transaction(writer, epoch)], max_commit_retries=0))  # fmt: skip

    def _exchange(self, old: Sequence[DataFile], new: DataFile, fresh: Fresh) -> None:
        gone = [
            RemoveAction(str(file.path.relative_to(self.path)), False, _now_ms(), file.bytes, file.values)
            for file in old
        ]
        self._write([*gone, self._added(new, data_change=False)], CommitProperties(max_commit_retries=0))

    def _write(self, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> None:
        table = self._opened()
        try:
            table.create_write_transaction(
                list(actions), "append", table.schema(), partition_by=self.partitions(), commit_properties=properties
            )
        except CommitFailedError as error:
            raise Conflict from error

    def _added(self, file: DataFile, data_change: bool = True) -> AddAction:
        path = str(file.path.relative_to(self.path))
        return AddAction(path, file.bytes, file.values, _now_ms(), data_change, stats(file.footer))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
