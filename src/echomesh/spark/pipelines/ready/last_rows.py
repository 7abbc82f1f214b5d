"""The last row of every key: which rows of a batch are newer than what the table has, and how they get there.

The table has one row for each topic and key. A batch changes it with one commit, which also says writer and epoch.
"""

from __future__ import annotations

from typing import Any, Final

from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import Transaction
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from echomesh.errors import StaleWriter
from echomesh.spark.columns import SINK_COLUMNS, TYPES
from echomesh.spark.pipelines.ready.common import below, event_time
from echomesh.spark.tables.delta import Delta

COLUMNS: Final = ("topic", "key", "at", *(name for name in TYPES if name != "topic"))
_VACUUM_EPOCHS: Final = 256  # a merge replaces files, and nobody else takes the old ones away
_VACUUM_S: Final = 3600.0
_SAME: Final = "old.topic = new.topic and old.key = new.key"


def last_of(rows: DataFrame) -> DataFrame:
    """Of each topic and key the row that is last by event time, then by offset."""
    dated = rows.withColumn("at", event_time())
    newest = F.max_by(F.struct(*COLUMNS), F.struct("at", "offset")).alias("newest")
    return dated.groupBy("topic", "key").agg(newest).select("newest.*")


class Last:
    """The table."""

    def __init__(self, table: Any) -> None:
        assert isinstance(table, Delta)
        self.table = table

    def has(self, writer: str, epoch: int) -> bool:
        """Whether it has this batch; `StaleWriter` when it has a newer one."""
        last = self.table.last_epoch(writer) if self.table.exists else None
        if last is not None and epoch < last:
            raise StaleWriter(writer, epoch, last)
        return last == epoch

    def changed(self, rows: DataFrame) -> DataFrame:
        """The last rows of these that are newer than what the table has."""
        last = last_of(rows)
        if not self.table.exists:
            return last
        names = {name: f"known_{name}" for name in ("topic", "key", "at", "offset")}
        known = self.table.read(rows.sparkSession).select(*(F.col(name).alias(new) for name, new in names.items()))
        same = (F.col("topic") == F.col("known_topic")) & (F.col("key") == F.col("known_key"))
        newer = F.struct("at", "offset") > F.struct("known_at", "known_offset")
        return last.join(known, same, "left").where(F.col("known_key").isNull() | newer).select(*COLUMNS)

    def merge(self, changed: DataFrame, writer: str, epoch: int) -> None:
        """Puts rows in the place of those with the same key."""
        if not self.table.exists:
            self.table.write(changed, writer, epoch)
            return
        once = CommitProperties(app_transactions=[Transaction(writer, epoch)], max_commit_retries=0)
        merger = DeltaTable(str(self.table.path)).merge(
            changed.toArrow(), _SAME, source_alias="new", target_alias="old", commit_properties=once
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
        if epoch % _VACUUM_EPOCHS == 0:
            self.table.vacuum(_VACUUM_S)


def to_events(rows: DataFrame, prefix: str) -> DataFrame:
    """The events as they came, on topics below `prefix`, with the key as their subject."""
    return below(rows.withColumn("subject", F.col("key")).select(*SINK_COLUMNS), prefix)
