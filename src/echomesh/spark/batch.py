"""`read_topic` and `stream_topic`: DataFrames of topics in one call."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from echomesh.errors import UsageError
from echomesh.spark import options as source_options
from echomesh.spark import starts
from echomesh.spark.columns import SIZE, TYPES, fields
from echomesh.spark.local import LocalReach
from echomesh.spark.options import SourceOptions
from echomesh.spark.reach import Range


def stream_topic(
    spark: SparkSession, subscribe: str, *, columns: Sequence[str] | None = None, **options: object
) -> DataFrame:
    """A streaming DataFrame of these topics; `options` are those of the source, as in `path="data"`.

    With `columns` only those are read, which is faster: Spark does not tell a Python source what a query needs.
    """
    reader = spark.readStream.format("echomesh").options(**_texts(subscribe, options))
    return (reader if columns is None else reader.schema(_schema(columns))).load()


def read_topic(
    spark: SparkSession, subscribe: str, *, columns: Sequence[str] | None = None, **options: object
) -> DataFrame:
    """A DataFrame of what these topics hold now; `options` are those of the source, as in `path="data"`.

    What has become Parquet files is read by Spark's own reader, with all that it can do; the rest by the source.
    """
    texts = _texts(subscribe, options)
    wanted = _schema(list(TYPES) if columns is None else columns)
    parsed = source_options.parse(texts, streaming=False)
    if parsed.path is None or not type(spark).__module__.startswith("pyspark.sql.session"):
        return spark.read.format("echomesh").options(**texts).schema(wanted).load()
    found = _look(parsed)
    frames = [_parquet(spark, found, wanted.names)] if found.files else []
    for run in found.runs():
        ends = {one.topic: one.until for one in run}
        begins = {one.topic: one.start for one in run}
        given = texts | {
            "subscribe": ",".join(begins),
            "startingOffsets": json.dumps(begins),
            "endingOffsets": json.dumps(ends),
        }
        given = {key: value for key, value in given.items() if not key.lower().endswith("timestamp")}
        frames.append(spark.read.format("echomesh").options(**given).schema(wanted).load())
    if not frames:
        return spark.createDataFrame([], wanted)
    return functools.reduce(DataFrame.unionByName, frames)


@dataclass
class _Found:
    """What of the topics is in Parquet files, and what is not."""

    files: list[str] = field(default_factory=list)
    cut: list[Range] = field(default_factory=list)  # where a file has more than was asked for
    rest: list[list[Range]] = field(default_factory=list)  # of each topic

    def runs(self) -> list[list[Range]]:
        """The rest, with one range of a topic in each: most topics have only one."""
        return [
            [ranges[i] for ranges in self.rest if i < len(ranges)] for i in range(max(map(len, self.rest), default=0))
        ]


def _look(options: SourceOptions) -> _Found:
    found = _Found()
    reach = LocalReach(options.path or "", options.environment)
    try:
        for wanted in starts.batch(reach, options):
            if wanted.start < wanted.until:
                _sort(wanted, reach.converted(wanted.topic), found)
    finally:
        reach.close()
    return found


def _sort(wanted: Range, files: Sequence[tuple[int, int, str]], found: _Found) -> None:
    topic, at, until = wanted
    rest: list[Range] = []
    for first, behind, path in files:
        if behind <= at or first >= until:
            continue
        if first > at:
            rest.append(Range(topic, at, first))
        if first < at or behind > until:
            found.cut.append(wanted)
        found.files.append(path)
        at = min(behind, until)
    if at < until:
        rest.append(Range(topic, at, until))
    if rest:
        found.rest.append(rest)


def _parquet(spark: SparkSession, found: _Found, columns: Sequence[str]) -> DataFrame:
    frame = spark.read.parquet(*(Path(path).as_uri() for path in found.files))
    for topic, start, until in dict.fromkeys(found.cut):
        inside = (F.col("offset") >= start) & (F.col("offset") < until)
        frame = frame.where((F.col("topic") != topic) | inside)
    size = F.octet_length("data").cast("long").alias(SIZE)
    return frame.select(*(size if name == SIZE else name for name in columns))


def _schema(columns: Sequence[str]) -> StructType:
    if isinstance(columns, str):
        raise UsageError(f"columns is a list of names, not {columns!r}")
    return fields(columns)


def _texts(subscribe: str, options: Mapping[str, object]) -> dict[str, str]:
    # As Spark writes values itself; offsets may be given as a dictionary.
    texts = {"subscribe": subscribe}
    for key, value in options.items():
        if isinstance(value, bool):
            texts[key] = str(value).lower()
        elif isinstance(value, dict):
            texts[key] = json.dumps(value)
        elif value is not None:
            texts[key] = str(value)
    return texts
