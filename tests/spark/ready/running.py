"""Runs ready pipelines over what a log has, in many small batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from echomesh.spark.pipelines.define import Pipeline
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.ready import alerts, latest, windows
from echomesh.spark.pipelines.runner import RunOptions, run

WINDOW_S, WATERMARK_S = 10, 10
CITY = "sensors/**,shops/**,city/**"  # not what `alerts` publishes meanwhile, with times of today
ALERTS = (
    "hot threshold topics=sensors/** field=$.celsius above=30",
    "odd zscore topics=sensors/*,shops/none field=$.celsius sigma=2 window='30 seconds' least=5",
    "gone silence topics=sensors/**,city/** after='20 seconds'",
)


def in_batches(pipeline: Pipeline, rows: int = 250) -> Pipeline:
    """The same with so many rows a batch."""
    return dataclasses.replace(pipeline, options={**pipeline.options, "maxOffsetsPerTrigger": str(rows)})


def all_three() -> list[Pipeline]:
    """The pipelines, as the tests know what they have to find."""
    made = (
        windows.make(windows.Options(topics=CITY, window=f"{WINDOW_S} seconds", watermark=f"{WATERMARK_S} seconds")),
        latest.make(latest.Options(topics="sensors/**")),
        alerts.make(alerts.Options(rule=list(ALERTS))),
    )
    return [in_batches(each) for each in made]


def finish(pipeline: Pipeline, data: Path) -> None:
    """Runs it to the end of what there is."""
    entry = run(pipeline, Place(data=str(data)), RunOptions(once=True, restarts=0))
    assert entry.state == "finished"
