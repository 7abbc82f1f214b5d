"""What the tests of the Spark source share."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echomesh.events import Event
from echomesh.log import LogOptions, TopicLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

START_NS = 1_790_000_040_000_000_000  # a full minute


class Clock:
    """Gives the times that a test wants."""

    def __init__(self) -> None:
        self.now_ns = START_NS

    def __call__(self) -> int:
        return self.now_ns

    def to(self, seconds: float) -> None:
        """So many seconds after the start."""
        self.now_ns = START_NS + round(seconds * 1e9)


def opened(directory: Path, **options: Any) -> TopicLog:
    """A log to write to."""
    return TopicLog(directory, LogOptions(**options))


def made(number: int, first: int = 0, **attributes: Any) -> list[Event]:
    """Events with numbers for ids."""
    return [
        Event(type="made", source="/tests", id=str(i), data=b"%d" % i, **attributes)
        for i in range(first, first + number)
    ]


def read(spark: SparkSession, directory: Path, subscribe: str = "**", **options: object) -> DataFrame:
    """A batch read."""
    return spark.read.format("echomesh").options(subscribe=subscribe, path=str(directory), **_texts(options)).load()


def inside(frame: DataFrame) -> bool:
    """Whether the plan takes columns from the source, which Python never gives."""
    return "ColumnarToRow" in str(frame._jdf.queryExecution().executedPlan())


def stream(spark: SparkSession, directory: Path, subscribe: str = "**", **options: object) -> DataFrame:
    """A streaming read from the earliest on, unless told otherwise."""
    given = {"startingOffsets": "earliest"} if not any(key.startswith("starting") for key in options) else {}
    chosen = _texts(given | options)
    return spark.readStream.format("echomesh").options(subscribe=subscribe, path=str(directory), **chosen).load()


def catch_up(query: StreamingQuery) -> None:
    """Waits until the query has read all there is.

    Spark answers the first call when a look shows nothing new, which may have begun before the last event came. The
    look that answers the second one began behind that.
    """
    query.processAllAvailable()
    query.processAllAvailable()


def drain(frame: DataFrame, place: Path, **how: Any) -> StreamingQuery:
    """Runs the stream into Parquet files beside its checkpoint, up to what there is now."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    query = writer.trigger(**(how or {"availableNow": True})).start(str(place / "rows"))
    query.awaitTermination()
    return query


def rows(spark: SparkSession, place: Path, *columns: str) -> list[tuple[Any, ...]]:
    """What `drain` has written, in order."""
    chosen = columns or ("topic", "offset", "data")
    return sorted(tuple(row) for row in spark.read.parquet(str(place / "rows")).select(*chosen).collect())


def counts(query: StreamingQuery) -> list[int]:
    """How many rows each batch had; those without any are left out."""
    return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]


def source(query: StreamingQuery) -> dict[str, Any]:
    """What the last batch said of its source."""
    progress = query.lastProgress
    assert progress is not None
    return {key: json.loads(progress["sources"][0][key]) for key in ("startOffset", "endOffset", "latestOffset")}


def expected(topic: str, numbers: Iterable[int]) -> list[tuple[str, int, bytes]]:
    """The rows of events from `made`, when their offsets are their numbers."""
    return sorted((topic, i, b"%d" % i) for i in numbers)


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items()}


def without_java(directory: Path) -> dict[str, str]:
    """The environment of a machine that has what Spark's scripts call, no Java, and an empty home."""
    tools = directory / "bin"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "env",
        "dirname",
        "basename",
        "ps",
        "uname",
        "sed",
        "cat",
        "rm",
        "ls",
        "tr",
        "chmod",
        "readlink",
    ):
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is not None:
            (tools / name).symlink_to(found)
    home = directory / "home"
    home.mkdir()
    kept = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PYTHONPATH")}
    return {**kept, "PATH": str(tools), "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
