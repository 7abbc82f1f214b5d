"""`replay`: a time range of an archive or of a log into another topic, at its old pace or faster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from echomesh.errors import UsageError
from echomesh.spark.pipelines.ready import option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from echomesh.spark.pipelines.place import Place


@dataclass(frozen=True)
class Options:
    """What may be said of a replay."""

    topics: str = option("**", "What to replay: topics or filters, with commas between them.", metavar="FILTERS")
    to: str | None = option(None, "The topic to publish to; each to its old one when not given.", metavar="TOPIC")
    archive: str | None = option(
        None, "Replay this table, a name or path of an archive, instead of the log.", metavar="NAME"
    )
    since: str | None = option(None, "From what was appended then: a time, or 15m for 15 minutes ago.", metavar="TIME")
    until: str | None = option(None, "Up to what was appended before then.", metavar="TIME")
    speed: float = option(1.0, "1 as fast as they came, 10 ten times as fast, 0 all at once.", metavar="N")


def start(
    options: Options, place: Place, spark: SparkSession, moment: Callable[[str], int], stop: threading.Event
) -> int:
    """Replays; how many events. `moment` turns a time into milliseconds."""
    from echomesh.spark.pipelines.replay import archive_rows, log_rows, replay

    since = None if options.since is None else moment(options.since)
    until = None if options.until is None else moment(options.until)
    if since is not None and until is not None and since >= until:
        raise UsageError(f"from {options.since} until {options.until} there is no time")
    if options.archive is None:
        rows = log_rows(spark, options.topics, start_ms=since, end_ms=until, **place.source_options())
    else:
        path = place.table_path(options.archive)
        rows = archive_rows(spark, path, options.topics, start_ms=since, end_ms=until)
    return replay(rows, place.sink_options(), topic=options.to, speed=options.speed, stop=stop)
