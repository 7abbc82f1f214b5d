"""What ready pipelines share: spans, event times, and how they keep away from what they write themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echomesh.errors import UsageError
from echomesh.spark.pipelines.intervals import milliseconds
from echomesh.topics import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

JSON: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""How times are written in what is published: to the microsecond."""

SKEW_MS: Final = 2000
"""How much later than others a topic may show what was appended to it. State is kept for so much longer."""


def span_ms(option: str, text: str) -> int:
    """A span of an option, such as `10 seconds`, which has to be longer than nothing."""
    try:
        found = milliseconds(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if found <= 0:
        raise UsageError(f"{option}: {text!r} is no time at all")
    return found


def event_time() -> Column:
    """When an event happened: its `time`, and when it was appended if that is missing or lies in the future.

    So a clock that runs ahead pushes no watermark, and keeps no newer event from being the last.
    """
    from pyspark.sql import functions as F

    return F.least(F.coalesce("time", "timestamp"), F.col("timestamp"))


def not_below(events: DataFrame, prefix: str) -> DataFrame:
    """The events of other topics than `prefix` and all below it."""
    from pyspark.sql import functions as F

    topic = F.col("topic")
    return events.where((topic != prefix) & ~topic.startswith(f"{prefix}/"))


def below(rows: DataFrame, prefix: str) -> DataFrame:
    """The rows with topics below `prefix`, without those whose name would become too long."""
    from pyspark.sql import functions as F

    room = MAX_TOPIC_BYTES - len(prefix) - 1
    named = F.concat(F.lit(f"{prefix}/"), F.col("topic"))
    return rows.where(F.octet_length("topic") <= room).withColumn("topic", named)
