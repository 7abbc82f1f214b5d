"""Figures of a query out of what Spark says after each batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from echomesh.spark.pipelines.registry import Figures, now

TOPICS: Final = 20  # those with most lag are told apart, and no others: there may be many thousands


def update(figures: Figures, progress: Mapping[str, Any]) -> None:
    """Takes in the progress of one batch, as the JSON of Spark has it."""
    figures.query = str(progress["id"])
    done = int(progress["numInputRows"])
    if done or int(progress["batchId"]) > figures.batch:
        figures.batch = int(progress["batchId"])
        figures.batch_ms = int(progress.get("batchDuration", progress["durationMs"].get("triggerExecution", 0)))
    figures.rows += done
    figures.batch_rows = done
    figures.rows_per_s = _number(progress.get("processedRowsPerSecond")) if done else 0.0
    operators = progress.get("stateOperators") or []
    figures.state_rows = sum(int(each["numRowsTotal"]) for each in operators)
    figures.state_bytes = sum(int(each["memoryUsedBytes"]) for each in operators)
    figures.late += sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in operators)
    figures.watermark = _watermark(progress.get("eventTime") or {})
    lags: dict[str, int] = {}
    figures.lost = 0
    for source in progress["sources"]:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        figures.lost += int(latest.get("lost", 0))
        for topic, until in latest.get("topics", {}).items():
            lags[topic] = lags.get(topic, 0) + max(0, until - end.get("topics", {}).get(topic, 0))
    figures.lag = sum(lags.values())
    most = sorted(lags.items(), key=lambda pair: (-pair[1], pair[0]))[:TOPICS]
    figures.topics = [(topic, lag) for topic, lag in most if lag]
    figures.at = now()


def _offsets(found: Any) -> dict[str, Any]:
    # Spark shows them as JSON within its JSON, or as text, by version.
    if isinstance(found, str):
        found = json.loads(found)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _watermark(times: Mapping[str, Any]) -> str:
    # Spark has 1970 there until an event came.
    found = str(times.get("watermark", ""))
    return "" if found.startswith("1970-") else found
