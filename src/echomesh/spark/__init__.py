"""Topics as DataFrames, batch and streaming: `spark.readStream.format("echomesh")`.

In come options (`options`), out go Arrow record batches (`source`, `stream`). `reach` says how a log is reached;
`launch` makes a tuned local Spark, with a Java of its own where the machine has none. `pipelines` runs what is made of
them, and looks after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echomesh.spark.needs import pyspark_needed

if TYPE_CHECKING:
    from echomesh.spark.batch import read_topic, stream_topic
    from echomesh.spark.jars import jar
    from echomesh.spark.launch import session
    from echomesh.spark.pipelines.define import Pipeline, pipeline
    from echomesh.spark.pipelines.outputs import batches, dead_letters, table, topic
    from echomesh.spark.pipelines.parse import parse_json
    from echomesh.spark.pipelines.schemas_file import read_schemas
    from echomesh.spark.progress import lost_events

# PySpark is imported when one of them is asked for: importing it takes half a second.
_WHERE = {
    "Pipeline": "pipelines.define",
    "batches": "pipelines.outputs",
    "dead_letters": "pipelines.outputs",
    "jar": "jars",
    "lost_events": "progress",
    "parse_json": "pipelines.parse",
    "pipeline": "pipelines.define",
    "read_schemas": "pipelines.schemas_file",
    "read_topic": "batch",
    "session": "launch",
    "stream_topic": "batch",
    "table": "pipelines.outputs",
    "topic": "pipelines.outputs",
}

__all__ = [
    "Pipeline",
    "batches",
    "dead_letters",
    "jar",
    "lost_events",
    "parse_json",
    "pipeline",
    "read_schemas",
    "read_topic",
    "session",
    "stream_topic",
    "table",
    "topic",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    with pyspark_needed():
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
