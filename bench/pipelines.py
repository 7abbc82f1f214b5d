"""Part `pipelines`: ready pipelines over a log, beside the same on Spark's own Parquet source."""

from __future__ import annotations

import importlib.util

from bench.harness.bouts import bouts
from bench.harness.pairs import MeasurementFailed
from bench.harness.progress import progress
from bench.harness.rounds import Patience
from bench.harness.rows import Row, compare
from bench.limits.disk import on_disk

TOPICS = 100
PARQUET = "Parquet source"
CASE = f"windows over {TOPICS} topics"
TARGET = 0.7


def run(quick: bool) -> list[Row]:
    """The rows of this part."""
    if importlib.util.find_spec("pyspark") is None:
        return [compare(CASE, [], PARQUET, [], unit="rows/s", target=TARGET, notes=["no pyspark here"])]
    from bench.pipelines_loads import Windows

    warm, repetitions = (2, 3) if quick else (5, 9)
    with progress(1 + (warm + repetitions) * 4) as say, on_disk() as root:
        say("filling a log and Parquet files")
        with Windows(root, TOPICS, 100_000 if quick else 2_000_000) as windows:
            cases = {CASE: windows.log, PARQUET: windows.parquet}
            try:
                for _ in range(warm):
                    for name, once in cases.items():
                        say(f"{name} (warming up)")
                        once()
                figures = bouts(cases, repetitions, Patience(5.0 if quick else 60.0), say)
            except MeasurementFailed as failure:
                return [compare(CASE, [], PARQUET, [], unit="rows/s", target=TARGET, notes=[str(failure)])]
    return [figures.row(CASE, CASE, PARQUET, unit="rows/s", target=TARGET)]
