"""Events of an archive or of a log once more, into another topic: at once, or at the pace at which they came."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from echomesh.errors import BadTable, UsageError
from echomesh.spark import sink_options
from echomesh.spark.batch import read_topic
from echomesh.spark.columns import SINK_COLUMNS
from echomesh.spark.pipelines.schemas_file import pattern
from echomesh.spark.sink import BatchWriter
from echomesh.spark.staging import About
from echomesh.spark.tables import existing_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLAY_OF: Final = "replayof"
_AT_ONCE: Final = 5_000  # rows that are published with one commit


def log_rows(
    spark: SparkSession, topics: str, *, start_ms: int | None = None, end_ms: int | None = None, **options: object
) -> DataFrame:
    """The events of topics that were appended from `start_ms` on and before `end_ms`; `options` are the source's."""
    bounds = {"startingTimestamp": start_ms, "endingTimestamp": end_ms}
    given: dict[str, Any] = {**options, **{name: bound for name, bound in bounds.items() if bound is not None}}
    return _between(read_topic(spark, topics, **given), start_ms, end_ms)


def archive_rows(
    spark: SparkSession, path: str | Path, topics: str = "**", *, start_ms: int | None = None, end_ms: int | None = None
) -> DataFrame:
    """The same out of the table of an archive."""
    rows = existing_table(path).read(spark)
    if missing := [name for name in ("topic", "offset", "timestamp", "id", "data") if name not in rows.columns]:
        raise BadTable(f"{path} is no archive of topics: it has no column {missing[0]!r}")
    if "date" in rows.columns:  # the partitions that are of no use are not read
        rows = _days(rows, start_ms, end_ms)
    topic = F.concat(F.lit("/"), F.col("topic"))
    wanted = [topic.rlike(pattern(each.strip())) for each in topics.split(",")]
    return _between(rows.where(reduce(Column.__or__, wanted)), start_ms, end_ms)


def _days(rows: DataFrame, start_ms: int | None, end_ms: int | None) -> DataFrame:
    for bound, compare in ((start_ms, Column.__ge__), (end_ms, Column.__le__)):
        if bound is not None:
            rows = rows.where(compare(F.col("date"), F.date_from_unix_date(F.lit(bound // 86_400_000))))
    return rows


def _between(rows: DataFrame, start_ms: int | None, end_ms: int | None) -> DataFrame:
    if start_ms is not None:
        rows = rows.where(F.col("timestamp") >= F.timestamp_millis(F.lit(start_ms)))
    if end_ms is not None:
        rows = rows.where(F.col("timestamp") < F.timestamp_millis(F.lit(end_ms)))
    return rows


def replay(
    rows: DataFrame,
    sink: Mapping[str, str],
    *,
    topic: str | None = None,
    speed: float = 1.0,
    stop: threading.Event | None = None,
    run: str | None = None,
) -> int:
    """Publishes rows of `log_rows` or `archive_rows` to `topic`, or to the topics that they had; how many.

    `speed` is how much faster than they came: 1 as they came, 0 all at once, in one commit. Each event has a new id,
    made of `run` and of the place it had, and its old one as the attribute `replayof`. `sink` are options of the sink.
    """
    if speed < 0:
        raise UsageError(f"speed is {speed}: 1 is as fast as events came, 10 ten times as fast, 0 at once")
    name = run or uuid.uuid4().hex[:12]
    options = {**sink, **({} if topic is None else {"topic": topic}), "txnAppId": f"replay-{name}", "txnVersion": "0"}
    events = _again(rows, name)
    if speed == 0:
        told = _counted(events)
        told[0].write.format("echomesh").mode("append").options(**options).save()
        return int(told[1].get["rows"])
    return _paced(events, options, speed, stop or threading.Event())


def _again(rows: DataFrame, run: str) -> DataFrame:
    """Events with new ids, and when they were appended."""
    old = F.coalesce(F.col("attributes"), F.create_map().cast("map<string,string>"))
    others = F.map_filter(old, lambda key, _: key != REPLAY_OF)
    made = {
        "id": F.concat(F.lit(f"{run}-"), F.col("topic"), F.lit("-"), F.col("offset").cast("string")),
        "attributes": F.map_concat(others, F.create_map(F.lit(REPLAY_OF), F.col("id"))),
    }
    return rows.select(*(made.get(name, F.col(name)).alias(name) for name in SINK_COLUMNS), "timestamp", "offset")


def _counted(events: DataFrame) -> tuple[DataFrame, Any]:
    from pyspark.sql import Observation

    told = Observation()
    seen = events.observe(told, F.count(F.lit(1)).alias("rows"))
    return seen.drop("timestamp", "offset"), told


def _paced(events: DataFrame, options: dict[str, str], speed: float, stop: threading.Event) -> int:
    ordered = events.orderBy("timestamp", "topic", "offset").drop("offset")
    published = 0
    for epoch, due in enumerate(_due(ordered, speed, stop)):
        _publish(due, {**options, "txnVersion": str(epoch)})
        published += due.num_rows
    return published


def _due(ordered: DataFrame, speed: float, stop: threading.Event) -> Iterator[pa.RecordBatch]:
    """Rows whose time has come, as soon as it has."""
    schema: Any = None
    waiting: list[dict[str, Any]] = []
    first = began = 0.0
    for row in ordered.toLocalIterator(prefetchPartitions=True):
        at = row.timestamp.timestamp()
        if schema is None:
            schema, first, began = _arrow(ordered), at, time.monotonic()
        wait = began + (at - first) / speed - time.monotonic()
        if waiting and (wait > 0 or len(waiting) >= _AT_ONCE):
            yield pa.RecordBatch.from_pylist(waiting, schema=schema)
            waiting = []
            wait = began + (at - first) / speed - time.monotonic()
        if stop.wait(max(0.0, wait)):
            return
        waiting.append(row.asDict())
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema=schema)


def _arrow(ordered: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(ordered.drop("timestamp").schema, timezone="UTC")


def _publish(rows: pa.RecordBatch, options: Mapping[str, str]) -> None:
    writer = BatchWriter(sink_options.parse(options, streaming=False))
    writer.__getstate__()  # a way to the log, as tasks get it
    about = About(writer.writer, writer.options.txn_version, writer.run, 0)
    writer.conclude([writer.stage(about, f"{writer.run}-{about.epoch}-0", iter([rows]))])
