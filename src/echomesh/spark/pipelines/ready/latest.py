"""`latest`: the last event of every key, as a table with one row for each, and as topics of what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echomesh.spark.pipelines.define import Pipeline, pipeline
from echomesh.spark.pipelines.outputs import Batch, batches, table, topic
from echomesh.spark.pipelines.ready import option
from echomesh.spark.pipelines.ready.keys import SUBJECT, check_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPICS: Final = "latest"
_BATCH_BYTES: Final = 64 << 20  # what changed passes through the driver


@dataclass(frozen=True)
class Options:
    """Options of `latest`."""

    topics: str = option("**", "What to follow: topics or filters.", metavar="FILTERS")
    key: str = option(SUBJECT, "What makes a key within a topic: subject, or a place in the payload as $.sensor.id.")
    table: str = option("latest", "The table, by name or path.", metavar="NAME")
    publish: bool = option(True, f"Publish what changed to {TOPICS}/** as well.")
    every: str = option("5 seconds", "The time between two batches.", metavar="TIME")
    name: str = option("latest", "The name of the pipeline, if there are several of its kind.", metavar="NAME")


def make(options: Options) -> Pipeline:
    """The pipeline with these options."""
    key = check_key("--key", options.key)
    target = table(options.table, partition_by=(), sort_by=("topic", "key"))
    events_of = topic()

    def write(rows: DataFrame, batch: Batch) -> None:
        from echomesh.spark.pipelines.ready.last_rows import Last, to_events

        last = Last(batch.open(target))
        if last.has(batch.writer, batch.epoch):
            return  # the topics come before the table
        changed = last.changed(rows).persist()
        try:
            if changed.isEmpty():
                return
            if options.publish:
                batch.publish(to_events(changed, TOPICS), events_of)
            last.merge(changed, batch.writer, batch.epoch)
        finally:
            changed.unpersist()

    says = f"{target} and {TOPICS}/**" if options.publish else str(target)

    @pipeline(
        name=options.name,
        inputs={"events": options.topics},
        output=batches(write, says, tables=(target,), topics=(events_of,) if options.publish else ()),
        trigger=options.every,
        options={"maxBytesPerTrigger": _BATCH_BYTES},
    )
    def latest(events: DataFrame) -> DataFrame:
        from echomesh.spark.pipelines.ready.common import not_below
        from echomesh.spark.pipelines.ready.keys import key_of

        return not_below(events, TOPICS).withColumn("key", key_of(key)).where("key is not null")

    return latest
