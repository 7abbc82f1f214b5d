"""Figures of events a topic and window of event time.

Every event counts once. It is late when it was appended `watermark` or more behind the end of its window; then it
counts as late in the window in which it was appended. That depends on the event alone, so the figures are the same
wherever batches are cut, and Spark's own watermark, which is a little behind, has nothing to drop.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from echomesh.spark.pipelines.ready.common import JSON, SKEW_MS, below, event_time

ACCURACY: Final = 1000  # of percentiles: a rank is wrong by a thousandth of the events at most
_AT: Final = "at"


def stats(events: DataFrame, window_ms: int, watermark_ms: int) -> DataFrame:
    """A row a topic and window; of a stream, as soon as the window can't change any more."""
    return finished(placed(events, window_ms, watermark_ms), window_ms, watermark_ms)


def placed(events: DataFrame, window_ms: int, watermark_ms: int) -> DataFrame:
    """Of each event: when it counts, whether it is late, and unless it is its size and latency."""
    appended_us, at_us = F.unix_micros("timestamp"), F.unix_micros(event_time())
    window_us, watermark_us = window_ms * 1000, watermark_ms * 1000
    end_us = at_us - F.pmod(at_us, F.lit(window_us)) + window_us
    late = appended_us >= end_us + watermark_us
    latency_ms = F.greatest(appended_us - F.unix_micros("time"), F.lit(0)) / 1000
    return events.select(
        "topic",
        F.when(late, F.col("timestamp")).otherwise(event_time()).alias(_AT),
        late.alias("late"),
        F.when(~late, F.coalesce("size", F.lit(0))).cast("long").alias("size"),
        F.when(~late, latency_ms).alias("latency_ms"),
    )


def finished(events: DataFrame, window_ms: int, watermark_ms: int) -> DataFrame:
    """The figures of what `placed` gives."""
    delay_ms = watermark_ms + SKEW_MS
    groups = events.withWatermark(_AT, f"{delay_ms} milliseconds").groupBy(
        "topic", F.window(_AT, f"{window_ms} milliseconds")
    )
    found = groups.agg(
        F.count("size").alias("events"),
        F.count_if("late").alias("late"),
        F.sum("size").alias("bytes"),
        F.max("size").alias("max_bytes"),
        F.percentile_approx("latency_ms", [0.5, 0.99], ACCURACY).alias("percentiles"),
        F.max("latency_ms").alias("max_ms"),
    )
    return found.select(*_columns(window_ms / 1000))


def _columns(window_s: float) -> list[Column]:
    start, size = F.col("window.start"), F.coalesce("bytes", F.lit(0))
    return [
        F.col("topic"),
        start.alias("window_start"),
        F.col("window.end").alias("window_end"),
        F.col("events"),
        F.col("late"),
        size.alias("bytes"),
        (F.col("events") / window_s).alias("events_per_s"),
        (size / window_s).alias("bytes_per_s"),
        (F.col("bytes") / F.col("events")).alias("mean_bytes"),
        F.col("max_bytes"),
        F.get("percentiles", F.lit(0)).alias("p50_ms"),
        F.get("percentiles", F.lit(1)).alias("p99_ms"),
        F.col("max_ms"),
        F.to_date(start).alias("date"),
    ]


def to_events(rows: DataFrame, prefix: str, name: str) -> DataFrame:
    """An event for each row, on the topic of that name below `prefix`. Its id is of topic and window."""
    figures = [F.col(column) for column in rows.columns if column != "date"]
    made = rows.select(
        "topic",
        F.to_json(F.struct(*figures), JSON).alias("data"),
        F.lit("application/json").alias("datacontenttype"),
        F.lit(f"/pipelines/{name}").alias("source"),
        F.col("topic").alias("subject"),
        F.col("window_end").alias("time"),
        F.concat_ws("/", F.unix_millis("window_start"), F.unix_millis("window_end"), "topic").alias("id"),
    )
    return below(made, prefix)
