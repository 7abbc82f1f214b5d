"""What the part `spark` reads, and how a read is timed."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.harness.pairs import MeasurementFailed
from echomesh.events import Event
from echomesh.log import LogOptions, LogReader, TopicLog
from echomesh.log.parquet import compact
from echomesh.spark import read_topic, session, stream_topic

AT_ONCE = 20_000
_chance = random.Random(7)
PATIENCE_S = 600


class Reads:
    """A log, the same rows in Parquet files, and a Spark session to read both."""

    row_bytes = 300

    def __init__(self, root: str, events: int) -> None:
        self.root = Path(root)
        self.events = events
        self.checkpoints = itertools.count()
        self.spark = session("bench")
        self.spark.sparkContext.setLogLevel("ERROR")

    def __enter__(self) -> Self:
        for name in ("live", "sealed"):
            _fill(self.root / name, self.events)
        with LogReader(self.root / "sealed") as reader:
            self.sealed_end = compact(reader.topic("orders"), min_age_s=0).done[-1].end
        whole = self.spark.read.format("echomesh").options(subscribe="orders", path=str(self.root / "live")).load()
        whole.write.parquet(str(self.root / "parquet"))
        self.schema = self.spark.read.parquet(str(self.root / "parquet")).schema
        self.files = [str(path) for path in sorted((self.root / "sealed" / "topics").rglob("*.parquet"))]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spark.stop()

    def stream(self, change: Callable[[DataFrame], DataFrame] | None = None, columns: list[str] | None = None) -> float:
        """Rows a second of a stream from the log, from the first event to the last."""
        live = self.root / "live"
        frame = stream_topic(self.spark, "orders", columns=columns, path=live, startingOffsets="earliest")
        return self._streamed(frame if change is None else change(frame), change is not None)

    def parquet_stream(self, change: Callable[[DataFrame], DataFrame] | None = None) -> float:
        """The same from Parquet files."""
        frame = self.spark.readStream.schema(self.schema).parquet(str(self.root / "parquet"))
        return self._streamed(frame if change is None else change(frame), change is not None)

    def counted(self, frame: DataFrame) -> DataFrame:
        """How many rows there are."""
        return frame.groupBy().count()

    def windows(self, frame: DataFrame) -> DataFrame:
        """How many rows were appended in each second."""
        return frame.groupBy(F.window("timestamp", "1 second")).count()

    def sealed(self) -> float:
        """Rows a second of `read_topic`, from a log whose segments are Parquet files."""
        ends = {"orders": self.sealed_end}
        return self._written(read_topic(self.spark, "orders", path=self.root / "sealed", endingOffsets=ends))

    def sealed_parquet(self) -> float:
        """The same files read by Spark."""
        return self._written(self.spark.read.parquet(*self.files).select(*self.schema.names))

    def _written(self, frame: DataFrame) -> float:
        start = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return self.sealed_end / (time.perf_counter() - start)

    def _streamed(self, frame: DataFrame, aggregated: bool) -> float:
        writer = frame.writeStream.format("noop").outputMode("complete" if aggregated else "append")
        place = str(self.root / f"checkpoint-{next(self.checkpoints)}")
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        query.awaitTermination(PATIENCE_S)
        batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
        rows = sum(batch["numInputRows"] for batch in batches)
        if rows != self.events:
            raise MeasurementFailed(f"{rows} rows of {self.events} came")
        return float(1000 * rows / sum(batch["durationMs"]["addBatch"] for batch in batches))

    @contextlib.contextmanager
    def batches(self, name: str, topics: int) -> Iterator[Callable[[int], float]]:
        """Gives a function that appends so many events over all topics and says how many ms their batch took."""
        place = self.root / name
        log = TopicLog(place, LogOptions(parquet_after_s=None))
        frame = stream_topic(self.spark, "t/*", path=place, startingOffsets="earliest")
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.root / f"{name}-checkpoint"))
        query = writer.start()
        epochs = itertools.count()

        def once(events: int) -> float:
            epoch = next(epochs)
            stage = log.stage("bench", epoch=epoch, run="bench")
            for number in range(events):
                stage.add(f"t/{number % topics}", _event(epoch * events + number).encode())
            before = [batch["batchId"] for batch in query.recentProgress if batch["numInputRows"]]
            log.commit("bench", epoch, "bench", [stage.close().stage])
            # Twice: Spark may have looked for the end before the commit, and takes that for the answer to the first.
            query.processAllAvailable()
            query.processAllAvailable()
            return _duration(query.recentProgress, before[-1] if before else -1, events)

        try:
            yield once
        finally:
            query.stop()
            log.close()


def _duration(progress: Any, after: int, events: int) -> float:
    # Of the batch with the commit, which is in one batch as a whole.
    found = [batch for batch in progress if batch["batchId"] > after and batch["numInputRows"]]
    if [batch["numInputRows"] for batch in found] != [events]:
        raise MeasurementFailed(f"not one batch of {events} rows, but {[batch['numInputRows'] for batch in found]}")
    return float(found[0]["durationMs"]["triggerExecution"])


def _event(number: int) -> Event:
    note = _chance.randbytes(70).hex().encode()
    data = b'{"id":%d,"amount":%d,"note":"%s"}' % (number, _chance.randrange(10_000), note)
    return Event(
        type="order.created",
        source="/shop/eu",
        id=f"{number:012d}",
        subject=f"customer/{_chance.randrange(100_000)}",
        datacontenttype="application/json",
        data=data,
    )


def _fill(directory: Path, events: int) -> None:
    segment_bytes = min(64 << 20, events * 350 // 8)
    with TopicLog(directory, LogOptions(segment_bytes=segment_bytes, parquet_after_s=None, duplicate_bytes=0)) as log:
        log.create("orders", level="os")
        for first in range(0, events, AT_ONCE):
            log.append_many("orders", [_event(number) for number in range(first, min(events, first + AT_ONCE))])
    TopicLog(directory, LogOptions(parquet_after_s=None)).close()  # its checkpoint has all segments behind it
