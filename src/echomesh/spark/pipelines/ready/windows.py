"""`windows`: what was published, how much and how late, a topic and window of event time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echomesh.spark.pipelines.define import Pipeline, pipeline
from echomesh.spark.pipelines.outputs import Batch, batches, table, topic
from echomesh.spark.pipelines.ready import option
from echomesh.spark.pipelines.ready.common import span_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPICS: Final = "mesh/stats"
COLUMNS: Final = ("topic", "timestamp", "time", "size")


@dataclass(frozen=True)
class Options:
    """Options of `windows`."""

    topics: str = option("**", "What to count: topics or filters.", metavar="FILTERS")
    window: str = option("10 seconds", "The length of a window.", metavar="TIME")
    watermark: str = option("10 seconds", "How long after the end of its window an event still counts.", metavar="TIME")
    table: str = option("windows", "The table, by name or path.", metavar="NAME")
    publish: bool = option(True, f"Publish to {TOPICS}/** as well.")
    every: str = option("1 second", "The time between two batches.", metavar="TIME")
    name: str = option("windows", "The name of the pipeline, if there are several of its kind.", metavar="NAME")


def make(options: Options) -> Pipeline:
    """The pipeline with these options."""
    window_ms, watermark_ms = span_ms("--window", options.window), span_ms("--watermark", options.watermark)
    target = table(options.table, partition_by=("date",), sort_by=("topic", "window_start"))
    events_of = topic(type="mesh.stats")

    def write(rows: DataFrame, batch: Batch) -> None:
        from echomesh.spark.pipelines.ready.window_stats import to_events

        # Both writes are of the same rows, and most batches have none: no window has ended. Counting them runs every
        # task, by which Spark keeps the state of the windows that are open.
        kept = rows.persist()
        try:
            if kept.count() == 0:
                return
            batch.open(target).write(kept, batch.writer, batch.epoch)
            if options.publish:
                batch.publish(to_events(kept, TOPICS, options.name), events_of)
        finally:
            kept.unpersist()

    says = f"{target} and {TOPICS}/**" if options.publish else str(target)

    @pipeline(
        name=options.name,
        inputs={"events": options.topics},
        output=batches(write, says, tables=(target,), topics=(events_of,) if options.publish else ()),
        trigger=options.every,
        columns=COLUMNS,
    )
    def windows(events: DataFrame) -> DataFrame:
        from echomesh.spark.pipelines.ready.common import not_below
        from echomesh.spark.pipelines.ready.window_stats import stats

        return stats(not_below(events, TOPICS), window_ms, watermark_ms)

    return windows
