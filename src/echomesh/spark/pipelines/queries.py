"""Streaming queries of a pipeline: one for each output, with a checkpoint of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from echomesh.errors import UsageError
from echomesh.spark.pipelines.define import OUT, Pipeline
from echomesh.spark.pipelines.events_out import to_events
from echomesh.spark.pipelines.outputs import Batch, Batches, Dead, Table, Topic
from echomesh.spark.pipelines.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_QUERY: Final = "sql.streaming.queryId"


def start(pipeline: Pipeline, name: str, frame: DataFrame, place: Place, *, once: bool) -> StreamingQuery:
    """Starts writing a DataFrame to an output."""
    output = pipeline.outputs[name]
    writer = (
        frame.writeStream.queryName(query_name(pipeline, name))
        .outputMode(pipeline.output_mode)
        .option("checkpointLocation", f"{place.checkpoints(pipeline.name)}/{name}")
    )
    if once or pipeline.trigger_ms is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{pipeline.trigger_ms} milliseconds")
    if isinstance(output, Topic | Dead):
        options = place.sink_options()
        if isinstance(output, Topic) and output.name is not None:
            options["topic"] = output.name
        return writer.format("echomesh").options(**options).start()
    return writer.foreachBatch(_Each(output, place, pipeline.name)).start()


def query_name(pipeline: Pipeline, output: str) -> str:
    """As Spark knows the query."""
    return pipeline.name if output == OUT else f"{pipeline.name}.{output}"


class _Each:
    """Writes batches: to a table, or by a function."""

    def __init__(self, output: Table | Batches, place: Place, pipeline: str) -> None:
        self.output = output
        self.place = place
        self.pipeline = pipeline

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY)
        if not query:
            raise UsageError("Spark does not say which query this is")
        if isinstance(self.output, Table):
            self.place.open_table(self.output).write(rows, query, epoch)
        else:
            publish = partial(self._publish, query, epoch)
            self.output.write(rows, Batch(query, epoch, self.place.open_table, publish))

    def _publish(self, query: str, epoch: int, rows: DataFrame, output: Topic) -> None:
        options = self.place.sink_options() | ({"topic": output.name} if output.name else {})
        writer = to_events(rows, output, self.pipeline).write.format("echomesh").mode("append").options(**options)
        writer.options(txnAppId=query, txnVersion=str(epoch)).save()
