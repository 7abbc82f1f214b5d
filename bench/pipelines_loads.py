"""What the part `pipelines` runs, and how it is timed."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.harness.pairs import MeasurementFailed
from echomesh.events import Event
from echomesh.log import LogOptions, TopicLog
from echomesh.spark import session, stream_topic
from echomesh.spark.pipelines.ready import windows

ROUNDS = 100
ROUND_S = 6
PATIENCE_S = 600
_START_NS = 1_790_000_040_000_000_000


class Windows:
    """A log of many topics, the same rows in Parquet files, and the aggregation of the pipeline `windows` over both."""

    def __init__(self, root: str, topics: int, events: int) -> None:
        self.root = Path(root)
        self.topics = [f"shop/{number}/orders" for number in range(topics)]
        self.each = events // topics // ROUNDS
        self.events = self.each * ROUNDS * topics
        self.checkpoints = itertools.count()
        self.spark = session("bench")
        self.spark.sparkContext.setLogLevel("ERROR")
        self.pipeline = windows.make(windows.Options())

    def __enter__(self) -> Self:
        self._fill()
        whole = self.spark.read.format("echomesh").options(subscribe="**", path=str(self.root / "data")).load()
        whole.write.parquet(str(self.root / "parquet"))
        self.schema = self.spark.read.parquet(str(self.root / "parquet")).schema
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spark.stop()

    def log(self) -> float:
        """Rows a second from the log, from the first event to the last."""
        path, columns = self.root / "data", self.pipeline.columns
        return self._streamed(stream_topic(self.spark, "**", columns=columns, path=path, startingOffsets="earliest"))

    def parquet(self) -> float:
        """The same from Parquet files."""
        events = self.spark.readStream.schema(self.schema).parquet(str(self.root / "parquet"))
        return self._streamed(events.withColumn("size", F.octet_length("data").cast("long")))

    def _streamed(self, events: DataFrame) -> float:
        frame = self.pipeline(events)
        assert isinstance(frame, DataFrame)
        place = str(self.root / f"checkpoint-{next(self.checkpoints)}")
        writer = frame.writeStream.format("noop").outputMode("append").option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(PATIENCE_S)
        batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
        rows = sum(batch["numInputRows"] for batch in batches)
        if rows != self.events:
            raise MeasurementFailed(f"{rows} rows of {self.events} came")
        return float(1000 * rows / sum(batch["durationMs"]["addBatch"] for batch in batches))

    def _fill(self) -> None:
        now_ns = _START_NS
        options = LogOptions(clock=lambda: now_ns, parquet_after_s=None, duplicate_bytes=0)
        chance, numbers = random.Random(7), itertools.count()
        with TopicLog(self.root / "data", options) as log:
            for topic in self.topics:
                log.create(topic, level="os")
            for at in range(ROUNDS):
                now_ns = _START_NS + at * ROUND_S * 1_000_000_000
                for topic in self.topics:
                    log.append_many(topic, [_event(next(numbers), now_ns, chance) for _ in range(self.each)])


def _event(number: int, now_ns: int, chance: random.Random) -> Event:
    note = chance.randbytes(70).hex().encode()
    return Event(
        type="order.created",
        source="/shop/eu",
        id=f"{number:012d}",
        time=datetime.fromtimestamp(now_ns // 1_000_000_000, UTC) - timedelta(milliseconds=chance.expovariate(0.01)),
        subject=f"customer/{chance.randrange(100_000)}",
        datacontenttype="application/json",
        data=b'{"id":%d,"amount":%d,"note":"%s"}' % (number, chance.randrange(10_000), note),
    )
