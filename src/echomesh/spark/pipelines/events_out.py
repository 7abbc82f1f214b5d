"""Rows of any kind as rows that the sink takes."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from echomesh.spark.columns import SINK_COLUMNS
from echomesh.spark.pipelines.outputs import Dead, Topic

JSON: Final = "application/json"
REASON: Final = "deadreason"
FROM_TOPIC: Final = "deadtopic"
FROM_OFFSET: Final = "deadoffset"
RETRIES: Final = "retries"
_GIVEN: Final = ("offset", "timestamp")


def to_events(frame: DataFrame, output: Topic, pipeline: str) -> DataFrame:
    """Rows that have a column `data` are events already; of others each is an event with all its columns as JSON."""
    kind, source = output.type or pipeline, output.source or f"/pipelines/{pipeline}"
    if "data" in frame.columns:
        made = frame.drop(*_GIVEN)
        return _with_defaults(made, {"type": output.type, "source": output.source})
    apart = [name for name in ("attributes",) if _is_map(frame, name)]
    if output.name is None and "topic" in frame.columns:
        apart.append("topic")
    body = [F.col(f"`{name}`") for name in frame.columns if name not in apart]
    return frame.select(
        F.to_json(F.struct(*body)).alias("data"),
        F.lit(JSON).alias("datacontenttype"),
        F.lit(kind).alias("type"),
        F.lit(source).alias("source"),
        *apart,
    )


def _with_defaults(frame: DataFrame, values: dict[str, str | None]) -> DataFrame:
    for name, value in values.items():
        if value is not None:
            frame = frame.withColumn(name, F.lit(value))
    return frame


def _is_map(frame: DataFrame, name: str) -> bool:
    return name in frame.columns and frame.schema[name].dataType.simpleString() == "map<string,string>"


def to_dead(frame: DataFrame, output: Dead) -> DataFrame:
    """Bad rows of `parse_json` as events of `dead/<topic>`: as they came, with reason, topic and offset besides."""
    there = [name for name in frame.columns if name in SINK_COLUMNS and name not in ("topic", "attributes")]
    kept = F.col("attributes") if "attributes" in frame.columns else F.create_map().cast("map<string,string>")
    about = F.create_map(
        F.lit(REASON), _text("reason"), F.lit(FROM_TOPIC), _text("topic"), F.lit(FROM_OFFSET), _text("offset")
    )
    named = F.map_filter(kept, lambda key, _: ~key.isin(REASON, FROM_TOPIC, FROM_OFFSET))
    return frame.select(
        F.concat(F.lit(f"{output.prefix}/"), F.col("topic")).alias("topic"),
        *there,
        F.map_concat(F.coalesce(named, F.create_map().cast("map<string,string>")), about).alias("attributes"),
    )


def _text(name: str) -> Column:
    return F.coalesce(F.col(name).cast("string"), F.lit(""))


def to_retry(frame: DataFrame) -> DataFrame:
    """Dead letters as what they were, on their old topic; with a new id, since the log has seen the old one."""
    attributes = F.col("attributes")
    tries = F.coalesce(attributes[RETRIES].cast("int"), F.lit(0)) + 1
    first = F.coalesce(attributes["retryof"], F.col("id"))
    kept = F.map_filter(attributes, lambda key, _: ~key.isin(REASON, FROM_TOPIC, FROM_OFFSET, RETRIES, "retryof"))
    more = F.create_map(F.lit("retryof"), first, F.lit(RETRIES), tries.cast("string"))
    others = [name for name in SINK_COLUMNS if name not in ("topic", "id", "attributes")]
    return frame.where(attributes[FROM_TOPIC].isNotNull()).select(
        attributes[FROM_TOPIC].alias("topic"),
        F.concat(first, F.lit("-retry"), tries.cast("string")).alias("id"),
        *others,
        F.map_concat(kept, more).alias("attributes"),
    )
