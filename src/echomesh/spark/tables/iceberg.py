"""Iceberg tables without a JAR: Spark writes Parquet files, `pyiceberg` registers them in a SQLite catalogue.

The catalogue is the file `catalog.db` in the table's directory. A commit demands the snapshot that was looked at, and
puts writer and epoch among the table's properties together with the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from echomesh.errors import UsageError
from echomesh.spark.tables.staging import DataFile, Fresh, described, old, sweep, unlisted
from echomesh.spark.tables.table import WEEK_S, Conflict, Table

try:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from sqlalchemy.exc import IntegrityError, OperationalError
except ImportError as error:
    raise UsageError('Iceberg tables need pyiceberg: pip install "echomesh[iceberg]"') from error

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import DataFrame

NAME: Final = ("echomesh", "rows")
"""Namespace and name of the table in its catalogue."""
_CATALOG: Final = "catalog.db"
_SCHEMA: Final = "echomesh.schema"
_WRITER: Final = "echomesh.writer."
_BESIDE: Final = "_of_"  # a partition's column in the directories; the files have it too, as Iceberg wants it
_PROPERTIES: Final = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_TRIES: Final = 10
# The threads in which pyiceberg looks at manifests share an evaluator that keeps in itself which one it is at: with two
# of them an overwrite may miss a file that it is to delete. It is read when the first executor is made.
os.environ.setdefault("PYICEBERG_MAX_WORKERS", "1")
_LOST: Final = (CommitFailedException, IntegrityError, OperationalError)


def catalog(path: Path) -> SqlCatalog:
    """The catalogue of the table in this directory."""
    place = {"uri": f"sqlite:///{path / _CATALOG}", "warehouse": f"file://{path}"}
    for _ in range(_TRIES):
        # Of two that make a new catalogue at once, one is told that there is one already.
        with suppress(OperationalError):
            return SqlCatalog("echomesh", **place)
    return SqlCatalog("echomesh", **place)


def load(path: Path) -> IcebergTable:
    """The table as `pyiceberg` sees it."""
    return catalog(path).load_table(NAME)


class Iceberg(Table):
    """An Iceberg table."""

    format = "iceberg"
    _catalog: SqlCatalog | None = None
    _table: IcebergTable | None = None

    @property
    def root(self) -> Path:
        """The directory below which partitions begin."""
        return self.path / "data"

    def schema(self) -> StructType:
        """The table's columns."""
        return StructType.fromJson(json.loads(self._opened().properties[_SCHEMA]))

    def stored_schema(self) -> StructType:
        """All columns stand in the files."""
        return self.schema()

    def partitions(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return [field.name for field in self._opened().spec().fields]

    def last_epoch(self, writer: str) -> int | None:
        """The newest epoch of this writer."""
        found = self._opened().properties.get(_WRITER + writer)
        return None if found is None else int(found)

    def paths(self) -> list[Path]:
        """The Parquet files that hold the rows now."""
        return [_path(uri) for uri in self._planned()] if self._look() else []

    def files(self) -> list[DataFile]:
        """The same with their footers."""
        return [described(path, self.root) for path in self.paths()]

    def vacuum(self, older_than_s: float = WEEK_S) -> int:
        """Removes snapshots and files that are no part of the table any more; how many files."""
        candidates = [path for path in unlisted(self.root, self.path) if old(path, older_than_s)]
        removed = 0
        if self._look():
            self._expire(datetime.now(UTC) - timedelta(seconds=older_than_s))
            kept = {_path(uri) for uri in self._mentioned()}
            for path in candidates:
                if path not in kept:
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed + sweep(self.path, older_than_s)

    def _expire(self, until: datetime) -> None:
        # Where writers are quicker each time, the old snapshots are left to the next vacuum.
        for _ in range(_TRIES):
            try:
                self._opened().maintenance.expire_snapshots().older_than(until).commit()
            except _LOST:
                self._look()
            else:
                return

    def _opened(self) -> IcebergTable:
        if self._table is None and not self._look():
            raise self._absent()
        assert self._table is not None
        return self._table

    def _look(self) -> bool:
        if not (self.path / _CATALOG).exists():
            return False
        if self._catalog is None:
            self._catalog = catalog(self.path)
        try:
            self._table = self._catalog.load_table(NAME)
        except NoSuchTableError:
            return False
        return True

    def _planned(self) -> dict[str, Any]:
        """The files of the newest snapshot by their names."""
        return {task.file.file_path: task.file for task in self._opened().scan().plan_files()}

    def _mentioned(self) -> Iterable[str]:
        """The files of all snapshots that are still there."""
        table = self._opened()
        manifests = {m.manifest_path: m for one in table.snapshots() for m in one.manifests(table.io)}
        for manifest in manifests.values():
            for entry in manifest.fetch_manifest_entry(table.io):
                yield entry.data_file.file_path

    def _create(self, schema: StructType, partition_by: list[str]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._catalog = self._catalog or catalog(self.path)
            self._catalog.create_namespace_if_not_exists(NAME[0])
            properties = {**_PROPERTIES, _SCHEMA: schema.json()}
            location = f"file://{self.path}"
            with self._catalog.create_table_transaction(
                NAME, _arrow(schema), location=location, properties=properties
            ) as made, made.update_spec() as spec:  # fmt: skip
                for name in partition_by:
                    spec.add_identity(name)
        except (*_LOST, TableAlreadyExistsError) as error:
            raise Conflict from error

    def _widen(self, schema: StructType) -> None:
        try:
            with self._opened().transaction() as change:
                with change.update_schema() as update:
                    update.union_by_name(_arrow(schema))
                change.set_properties({_SCHEMA: schema.json()})
        except _LOST as error:
            raise Conflict from error

    def _spark_write(self, fresh: Fresh, rows: DataFrame, partition_by: list[str], sort_by: list[str]) -> None:
        for name in partition_by:
            rows = rows.withColumn(_BESIDE + name, F.col(f"`{name}`"))
        fresh.write(rows, [_BESIDE + name for name in partition_by], sort_by)

    def _place(self, fresh: Fresh, files: Sequence[DataFile]) -> list[DataFile]:
        named = [(part.removeprefix(_BESIDE) for part in file.home.parts) for file in files]
        return fresh.place(
            [replace(file, home=Path(*home)) for file, home in zip(files, named, strict=True)], self.root
        )

    def _commit(self, fresh: Fresh, files: Sequence[DataFile], writer: str, epoch: int) -> None:
        try:
            with self._opened().transaction() as change:
                change.set_properties({_WRITER + writer: str(epoch)})
                change.add_files([f"file://{file.path}" for file in files], check_duplicate_files=False)
        except _LOST as error:
            raise Conflict from error

    def _exchange(self, old: Sequence[DataFile], new: DataFile, fresh: Fresh) -> None:
        planned = {_path(uri): file for uri, file in self._planned().items()}
        table = self._opened()
        try:
            with table.transaction() as change, change.update_snapshot().overwrite() as update:
                for file in old:
                    update.delete_data_file(planned[file.path])
                update.append_data_file(parquet_file_to_data_file(table.io, table.metadata, f"file://{new.path}"))
        except _LOST as error:
            raise Conflict from error


def _arrow(schema: StructType) -> Any:
    return to_arrow_schema(schema, timezone="UTC")


def _home(beside: Path) -> Path:
    return Path(*(part.removeprefix(_BESIDE) for part in beside.parts))


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))
