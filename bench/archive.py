"""Part `archive`: from a live log to a committed Delta table, beside Spark's own Parquet sink on the same rows; and the
memory of the driver over millions of events with duplicates.

Both are streams of one Spark session that read the same log from its first event to its last, in turns.
"""

from __future__ import annotations

import itertools
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.harness.bouts import bouts
from bench.harness.machine import OtherLoad
from bench.harness.pairs import MeasurementFailed
from bench.harness.progress import progress
from bench.harness.rounds import Patience, Say
from bench.harness.rows import Row
from bench.limits.disk import on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS: Final = "archive"
PARQUET: Final = "Spark's Parquet sink"
DUPLICATES: Final = 0.1
BATCH: Final = 250_000
AT_ONCE: Final = 20_000


class Plan:
    """How often and how much."""

    def __init__(self, quick: bool) -> None:
        self.repetitions = 3 if quick else 7
        self.warm = 1 if quick else 5  # the JVM compiles what it has seen often
        self.rows = 300_000 if quick else 2_000_000
        self.events = 500_000 if quick else 10_000_000
        self.patience = Patience(10.0 if quick else 60.0)

    @property
    def steps(self) -> int:
        """Sentences that the progress bar will get."""
        return self.repetitions * 2 + 1


def run(quick: bool) -> list[Row]:
    """All rows of the part."""
    from echomesh.spark import session

    plan = Plan(quick)
    with progress(plan.steps) as say, on_disk() as root:
        spark = session("bench", master="local[2]", config={"spark.sql.warehouse.dir": f"{root}/warehouse"})
        spark.sparkContext.setLogLevel("ERROR")
        try:
            return [_rates(plan, spark, Path(root), say), _memory(plan, spark, Path(root), say)]
        finally:
            spark.stop()


def _rates(plan: Plan, spark: SparkSession, root: Path, say: Say) -> Row:
    from bench.spark_loads import _fill

    _fill(root / "log", plan.rows)
    numbers = itertools.count()

    def ours() -> float:
        place = root / f"archive-{next(numbers)}"
        return _streamed(spark, root / "log", place, plan.rows, _archive(place))

    def parquet() -> float:
        place = root / f"parquet-{next(numbers)}"
        return _streamed(spark, root / "log", place, plan.rows, lambda writer: writer.format("parquet"), "rows")

    for _ in range(plan.warm):
        ours()
        parquet()
    figures = bouts({OURS: ours, PARQUET: parquet}, plan.repetitions, plan.patience, say)
    return figures.row("archive, log to committed Delta table", OURS, PARQUET, unit="rows/s", target=0.8)


def _archive(place: Path) -> Callable[[Any], Any]:
    from echomesh.spark.pipelines.ready.archive import Tables, archive_batch
    from echomesh.spark.tables import open_table

    tables = Tables(open_table(place / "table"), open_table(place / "quarantine"))

    def batch(rows: Any, epoch: int) -> None:
        archive_batch(rows, epoch, "bench", tables)

    return lambda writer: writer.foreachBatch(batch)


def _streamed(
    spark: SparkSession, log: Path, place: Path, rows: int, sink: Callable[[Any], Any], where: str | None = None
) -> float:
    """Rows a second of a stream over the whole log."""
    from echomesh.spark import stream_topic

    frame = stream_topic(spark, "orders", path=log, startingOffsets="earliest")
    writer = frame.writeStream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
    chosen = sink(writer)
    query = chosen.start(str(place / where)) if where else chosen.start()
    query.awaitTermination()
    found = [progress for progress in query.recentProgress if progress["numInputRows"]]
    if sum(progress["numInputRows"] for progress in found) != rows:
        raise MeasurementFailed(f"not all of {rows} rows came")
    shutil.rmtree(place)
    return float(1000 * rows / sum(progress["durationMs"]["addBatch"] for progress in found))


def _memory(plan: Plan, spark: SparkSession, root: Path, say: Say) -> Row:
    """How the memory of driver, JVM and workers grows from the first third to the last."""
    from echomesh.spark.pipelines.place import Place
    from echomesh.spark.pipelines.ready.archive import Options, make
    from echomesh.spark.pipelines.runner import RunOptions
    from echomesh.spark.pipelines.runner import run as run_pipeline

    say(f"memory over {plan.events:,} events")
    distinct = _with_duplicates(root / "large", plan.events)
    options = {"maxOffsetsPerTrigger": str(BATCH)}
    made = make(Options(distinct="10 minutes", table=str(root / "large-table")))
    archive = _replaced(made, options)
    load, watch = OtherLoad(), _Watch()
    with watch:
        run_pipeline(archive, Place(data=str(root / "large"), home=str(root / "home")), RunOptions(once=True))
    from deltalake import DeltaTable

    stored = DeltaTable(root / "large-table").to_pyarrow_dataset().count_rows()
    if stored != distinct:
        raise MeasurementFailed(f"{stored} rows are stored of {distinct}")
    third = max(1, len(watch.seen) // 3)
    early, late = max(watch.seen[:third]), max(watch.seen[-third:])
    return Row(
        case=f"archive of {plan.events:,} events with duplicates: memory, last third to first",
        ours=late / early,
        peer=None,
        peer_value=None,
        unit="x",
        ratio=None,
        target="flat: 1.1 or less",
        repetitions=1,
        spread=[min(watch.seen) / early, max(watch.seen) / early],
        other_cpus=round(load.cpus(), 2),
        notes=[f"{late / 2**20:.0f} MiB at most in the last third; {plan.events - stored:,} duplicates left out"],
    )


def _replaced(pipeline: Any, options: dict[str, str]) -> Any:
    from dataclasses import replace

    return replace(pipeline, options=options)


def _with_duplicates(directory: Path, events: int) -> int:
    """Fills a log in which some events come again soon after; how many different ones there are."""
    from echomesh.events import Event
    from echomesh.log import LogOptions, TopicLog

    chance, distinct = random.Random(9), 0
    with TopicLog(directory, LogOptions(parquet_after_s=None, duplicate_bytes=0)) as log:
        log.create("orders", level="os")
        for first in range(0, events, AT_ONCE):
            fresh = round(min(AT_ONCE, events - first) * (1 - DUPLICATES))
            made = [
                Event(type="order", source="/bench", id=str(at), data=chance.randbytes(40).hex().encode())
                for at in range(distinct, distinct + fresh)
            ]
            distinct += fresh
            log.append_many("orders", made + chance.choices(made, k=min(AT_ONCE, events - first) - fresh))
    return distinct


class _Watch:
    """Looks at the memory of this process and all that it has started, again and again."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        import psutil

        own = psutil.Process()
        while not self._ended.wait(0.5):
            total = 0
            for process in (own, *own.children(recursive=True)):
                with suppress(psutil.Error):
                    total += process.memory_info().rss
            self.seen.append(total)
