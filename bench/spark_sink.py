"""Part `spark_sink`: the Spark sink beside Spark's own Parquet sink, reads over TCP beside local ones, and how long an
event takes from its publication to the row of a derived topic.

One Spark session does it all, in turns; the rows are the same on both sides.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.harness.bouts import bouts
from bench.harness.machine import OtherLoad
from bench.harness.progress import progress
from bench.harness.rounds import Patience, Say
from bench.harness.rows import Row
from bench.limits.disk import on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET: Final = "Spark's Parquet sink"
PATH: Final = "echomesh, into a directory"
SERVER: Final = "echomesh, over a server"
LOCAL: Final = "echomesh, where the log lies"
LOCAL_PYTHON: Final = "echomesh, where the log lies, by Python"
TCP: Final = "echomesh, over TCP"
TCP_PYTHON: Final = "echomesh, over TCP, by Python"
RATE: Final = 1000
# About 300 bytes a row, and as random as payloads are.
ROW: Final = (
    "cast(concat(sha2(cast(id as string), 512), sha2(cast(id + 1 as string), 256)) as binary) as data",
    "cast(id as string) as id",
    "'/bench' as source",
    "'bench.row' as type",
    "timestamp_micros(1790000000000000 + id) as time",
)


class Plan:
    """How often, how long and how much."""

    def __init__(self, quick: bool) -> None:
        self.repetitions = 3 if quick else 7
        self.warm = 1 if quick else 5
        self.rows = 300_000 if quick else 2_000_000
        self.seconds = 10.0 if quick else 60.0
        self.patience = Patience(10.0 if quick else 60.0)

    @property
    def steps(self) -> int:
        """Sentences that the progress bar will get."""
        return self.repetitions * 7 + 1


class Server:
    """A node of its own, open to this machine."""

    def __init__(self, place: Path) -> None:
        self.data = place / "node"
        self.password = place / "password"
        self.password.write_text("none\n")
        self.password.chmod(0o600)
        command = [sys.executable, "-m", "echomesh", "up", "--data", str(self.data), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = next(word for word in line.replace(",", " ").split() if word.startswith("127.0.0.1:"))

    @property
    def options(self) -> dict[str, str]:
        """Of a source or sink."""
        return {"server": self.address, "clientId": "bench", "passwordFile": str(self.password)}

    def close(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.communicate()


@contextmanager
def _spark(place: Path) -> Iterator[SparkSession]:
    from echomesh.spark import session

    made = session("bench", master="local[2]", config={"spark.sql.warehouse.dir": place / "warehouse"})
    made.sparkContext.setLogLevel("ERROR")
    try:
        yield made
    finally:
        made.stop()


def run(quick: bool) -> list[Row]:
    """All rows of the part."""
    plan = Plan(quick)
    with progress(plan.steps) as say, on_disk() as root, _spark(Path(root)) as spark:
        server = Server(Path(root))
        try:
            return [*_sinks(plan, spark, server, Path(root), say), *_reads(plan, spark, server, say),
                    _latency(plan, spark, server, Path(root), say)]  # fmt: skip
        finally:
            server.close()


def _rate(rows: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return rows / (time.perf_counter() - began)


def _sinks(plan: Plan, spark: SparkSession, server: Server, place: Path, say: Say) -> list[Row]:
    frame = spark.range(0, plan.rows, 1, 2).selectExpr(*ROW).cache()
    frame.count()
    numbers = count()

    def ours(**options: str) -> float:
        writer = frame.write.format("echomesh").mode("append").options(**options)
        return _rate(plan.rows, writer.option("topic", f"sink/{next(numbers)}").save)

    def parquet() -> float:
        return _rate(plan.rows, lambda: frame.write.parquet(str(place / f"parquet-{next(numbers)}")))

    ours(path=str(place / "log"))  # the first of each starts workers and compiles plans
    parquet()
    figures = bouts(
        {PATH: lambda: ours(path=str(place / "log")), SERVER: lambda: ours(**server.options), PARQUET: parquet},
        plan.repetitions,
        plan.patience,
        say,
    )
    frame.unpersist()
    case, note = "sink, synced and visible", "Parquet is not synced"
    return [figures.row(case, name, PARQUET, unit="rows/s", target=0.9, notes=[note]) for name in (PATH, SERVER)]


def _reads(plan: Plan, spark: SparkSession, server: Server, say: Say) -> list[Row]:
    frame = spark.range(0, plan.rows, 1, 2).selectExpr(*ROW)
    frame.write.format("echomesh").mode("append").options(**server.options).option("topic", "reads").save()

    def read(**options: str) -> float:
        def all_of_it() -> None:
            found: DataFrame = spark.read.format("echomesh").options(subscribe="reads", **options).load()
            found.write.format("noop").mode("overwrite").save()

        return _rate(plan.rows, all_of_it)

    cases: dict[str, Callable[[], float]] = {
        LOCAL: lambda: read(path=str(server.data)),
        LOCAL_PYTHON: lambda: read(path=str(server.data), reader="python"),
        TCP: lambda: read(**server.options),
        TCP_PYTHON: lambda: read(**server.options, reader="python"),
    }
    for _ in range(plan.warm):  # the JVM compiles what it has seen often
        for once in cases.values():
            once()
    figures = bouts(cases, plan.repetitions, plan.patience, say)
    case = "fetch over TCP against local"
    return [
        figures.row(case, TCP, LOCAL, unit="rows/s", target=0.6),
        figures.row(f"{case}, both by Python", TCP_PYTHON, LOCAL_PYTHON, unit="rows/s"),
    ]


def _latency(plan: Plan, spark: SparkSession, server: Server, place: Path, say: Say) -> Row:
    say(f"latency, {RATE} events a second")
    options = {"subscribe": "live/in", "path": str(server.data), "startingOffsets": "earliest"}
    source = spark.readStream.format("echomesh").options(**options).load()
    writer = source.selectExpr("data", "id").writeStream.format("echomesh").options(topic="live/out", **server.options)
    query = writer.option("checkpointLocation", str(place / "live")).trigger(processingTime="0 seconds").start()
    load, taken = OtherLoad(), _times(server, plan.seconds)
    query.stop()
    taken.sort()
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    return Row(
        case=f"event published to row in a derived topic, {RATE} a second: p50",
        ours=p50,
        peer=None,
        peer_value=None,
        unit="s",
        ratio=None,
        target="p50 0.6 s, p99 1.5 s",
        repetitions=1,
        spread=[taken[0], taken[-1]],
        other_cpus=round(load.cpus(), 2),
        notes=[f"p99 {p99:.2f} s of {len(taken)} events"],
    )


def _times(server: Server, seconds: float) -> list[float]:
    """From before each publish until a subscriber has the row, without the first third.

    It begins when the first row has come: starting a query takes seconds.
    """
    from echomesh import Event, sync

    taken: list[float] = []
    wanted = round(seconds * RATE)

    def event() -> Event:
        return Event(type="live", source="/bench", data=repr(time.time()).encode())

    with sync.session(server.address, client_id="bench") as session:
        subscription = session.subscribe("live/out")
        session.publish("live/in", event())
        next(iter(subscription))

        def publish() -> None:
            began = time.monotonic()
            for number in range(wanted):
                time.sleep(max(0.0, began + number / RATE - time.monotonic()))
                session.publish_soon("live/in", event())

        publisher = threading.Thread(target=publish)
        publisher.start()
        for received in subscription:
            taken.append(time.time() - float(received.data))
            if len(taken) == wanted:
                break
        publisher.join()
    return taken[wanted // 3 :]
