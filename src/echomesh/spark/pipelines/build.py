"""From a pipeline to its DataFrames; a mistake in the function becomes file, line and reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from echomesh.errors import BadOption, BadPipeline, EchomeshError, UsageError
from echomesh.spark import options as source_options
from echomesh.spark import sink_options
from echomesh.spark.batch import stream_topic
from echomesh.spark.pipelines.define import OUT, Pipeline, at_line
from echomesh.spark.pipelines.events_out import to_dead, to_events
from echomesh.spark.pipelines.outputs import Dead, Output, Topic
from echomesh.spark.pipelines.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED_BY_DEAD: Final = ("data", "topic", "offset", "reason")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")


def build(
    spark: SparkSession, pipeline: Pipeline, place: Place, starting: Mapping[str, str] | None = None
) -> dict[str, DataFrame]:
    """The DataFrame of each output, ready to be written. `starting` says where a query without a checkpoint begins."""
    begin = dict(starting or {"startingOffsets": pipeline.start})
    frames = {name: _input(spark, pipeline, place, filters, begin) for name, filters in pipeline.inputs.items()}
    found = _results(pipeline, _call(pipeline, frames))
    return {name: _writable(pipeline, place, name, frame) for name, frame in found.items()}


def _input(
    spark: SparkSession, pipeline: Pipeline, place: Place, filters: str, starting: Mapping[str, str]
) -> DataFrame:
    texts = {**starting, **pipeline.options, **place.source_options()}
    if "startingTimestamp" in starting:
        texts = {key: value for key, value in texts.items() if key.lower() != "startingoffsets"}
    try:
        source_options.parse({"subscribe": filters, **texts}, streaming=True)
        frame = stream_topic(spark, filters, columns=pipeline.columns, **texts)
    except BadOption as error:
        theirs = error.option.lower() in {name.lower() for name in pipeline.options}
        raise (pipeline.wrong(str(error)) if theirs else error) from None
    except UsageError as error:
        raise pipeline.wrong(str(error)) from None
    if pipeline.watermark is None:
        return frame
    column, late_ms = pipeline.watermark
    if column not in frame.columns:
        raise pipeline.wrong(f"watermark: there is no column {column!r}, but {', '.join(frame.columns)}")
    return frame.withWatermark(column, f"{late_ms} milliseconds")


def _call(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> Any:
    try:
        return pipeline(**frames)
    except BadPipeline:
        raise
    except Exception as error:
        raise BadPipeline(
            pipeline.file, at_line(error, pipeline.file) or pipeline.line, f"in {pipeline.name}: {reason(error)}"
        ) from error


def reason(error: BaseException) -> str:
    """What Spark, or whatever was called, says; of Spark's long messages the sentence that matters."""
    if isinstance(error, EchomeshError):
        return str(error)
    if isinstance(error, PySparkException):
        return _CONDITION.sub("", _STATE.sub("", str(error))).strip()
    return f"{type(error).__name__}: {error}"


def _results(pipeline: Pipeline, result: Any) -> dict[str, DataFrame]:
    named = dict(result) if isinstance(result, Mapping) else {OUT: result}
    if not isinstance(result, Mapping) and list(pipeline.outputs) != [OUT]:
        listed = ", ".join(pipeline.outputs)
        raise pipeline.wrong(
            f"{pipeline.name} has the outputs {listed}: return a dict with a DataFrame for each of them"
        )
    if named.keys() != pipeline.outputs.keys():
        raise pipeline.wrong(
            f"{pipeline.name} returned {', '.join(map(str, named)) or 'nothing'}, and its outputs are "
            f"{', '.join(pipeline.outputs)}: the names have to be the same"
        )
    for name, frame in named.items():
        shown = "" if name == OUT else f" for {name}"
        if not isinstance(frame, DataFrame):
            missing = " (is a return missing?)" if frame is None else ""
            kind = "None" if frame is None else f"a {type(frame).__name__}"
            raise pipeline.wrong(f"{pipeline.name} returned {kind}{shown}, not a DataFrame{missing}")
        if not frame.isStreaming:
            raise pipeline.wrong(
                f"{pipeline.name} returned a DataFrame{shown} that is no stream: make it of the inputs"
            )
    return {name: named[name] for name in pipeline.outputs}


def _writable(pipeline: Pipeline, place: Place, name: str, frame: DataFrame) -> DataFrame:
    output: Output = pipeline.outputs[name]
    shown = "" if name == OUT else f"output {name}: "
    if isinstance(output, Dead):
        if missing := [column for column in _NEEDED_BY_DEAD if column not in frame.columns]:
            raise pipeline.wrong(f"{shown}dead letters need the column {missing[0]!r}: give parse_json(...).bad")
        return to_dead(frame, output)
    if not isinstance(output, Topic):
        return frame
    made = to_events(frame, output, pipeline.name)
    options = place.sink_options() | ({"topic": output.name} if output.name else {})
    chosen = sink_options.parse(options, streaming=True)
    try:
        sink_options.check_columns(made.schema, chosen)
    except UsageError as error:
        raise pipeline.wrong(f"{shown}{error}") from None
    return made


def with_date(frame: DataFrame, column: str = "timestamp") -> DataFrame:
    """With a column `date` of the day in `column`, as tables are partitioned by it."""
    return frame.withColumn("date", F.to_date(column))
