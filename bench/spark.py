"""Part `spark`: streams and batches read from a log, beside Spark reading the same rows from its own Parquet files.

One session for both sides, with the settings that `echomesh.spark.session` gives; figures are taken in turns.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bench.harness.bouts import Figures, bouts
from bench.harness.pairs import MeasurementFailed
from bench.harness.progress import progress
from bench.harness.rounds import Patience, Say
from bench.harness.rows import Row, compare
from bench.limits.disk import on_disk

if TYPE_CHECKING:
    from bench.spark_loads import Reads

TOPICS = 10_000
PARQUET = "Parquet"


class Plan:
    """How often and how much."""

    def __init__(self, quick: bool) -> None:
        self.repetitions = 3 if quick else 21
        self.warm = 2 if quick else 12  # the JVM compiles what it has seen often
        self.patience = Patience(5.0 if quick else 60.0)
        self.events = 100_000 if quick else 2_000_000
        self.topics = 1000 if quick else TOPICS

    @property
    def steps(self) -> int:
        """Sentences that the progress bar will get."""
        return 3 + (self.warm + self.repetitions) * 12


def run(quick: bool) -> list[Row]:
    if importlib.util.find_spec("pyspark") is None:
        return [compare("streaming read", [], PARQUET, [], unit="rows/s", target=0.9, notes=["no pyspark here"])]
    from bench.spark_loads import Reads

    plan = Plan(quick)
    rows: list[Row] = []
    with progress(plan.steps) as say, on_disk() as root:
        say("filling a log and Parquet files")
        with Reads(root, plan.events) as reads:
            for title, part in (("reads", _reads), ("many topics", _topics)):
                try:
                    rows += part(plan, reads, say)
                except MeasurementFailed as failure:
                    rows.append(compare(title, [], "", [], unit="", target=1.0, notes=[str(failure)]))
    return rows


def _measured(plan: Plan, cases: dict[str, Callable[[], float]], say: Say) -> Figures:
    for _ in range(plan.warm):
        for name, once in cases.items():
            say(f"{name} (warming up)")
            once()
    return bouts(cases, plan.repetitions, plan.patience, say)


def _reads(plan: Plan, reads: Reads, say: Say) -> list[Row]:
    rows = []
    for case, ours, theirs, target in (
        (
            f"streaming read of live segments, rows of about {reads.row_bytes} B",
            reads.stream,
            reads.parquet_stream,
            0.9,
        ),
        ("read_topic of sealed segments", reads.sealed, reads.sealed_parquet, 0.9),
    ):
        figures = _measured(plan, {case: ours, PARQUET: theirs}, say)
        rows.append(figures.row(case, case, PARQUET, unit="rows/s", target=target))
    for case, aggregate, columns, targets in (
        ("count", reads.counted, ["offset"], (0.25, 0.6)),
        ("window aggregation", reads.windows, ["timestamp"], (0.6, 1.0)),
    ):
        whole, pruned = f"streaming {case}", f"streaming {case}, pruned by .schema()"
        figures = _measured(
            plan,
            {
                whole: partial(reads.stream, aggregate),
                pruned: partial(reads.stream, aggregate, columns),
                PARQUET: partial(reads.parquet_stream, aggregate),
            },
            say,
        )
        rows += [
            figures.row(name, name, PARQUET, unit="rows/s", target=target)
            for name, target in zip((whole, pruned), targets, strict=True)
        ]
    return rows


def _topics(plan: Plan, reads: Reads, say: Say) -> list[Row]:
    case, one = f"batch time with {plan.topics:,} topics", "one topic"
    with reads.batches("many", plan.topics) as many, reads.batches("single", 1) as single:
        figures = _measured(plan, {case: lambda: many(plan.topics), one: lambda: single(plan.topics)}, say)
    return [figures.row(case, case, one, unit="ms", target=round(1 / 1.5, 3), less_is_better=True)]
