"""What the progress of a query tells of its topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def lost_events(progress: Mapping[str, Any]) -> int:
    """How many events a batch of a stream with `failOnDataLoss=false` went on without; of all its echomesh sources.

    `progress` is what Spark tells of the batch, as in `query.lastProgress`: how many events the batch was to have is
    compared with how many rows came. So it counts what any task found missing, for queries that read each source once.
    """
    return sum(_of(source) for source in progress["sources"])


def _of(source: Mapping[str, Any]) -> int:
    if source["startOffset"] == source["endOffset"]:
        return 0  # a batch without new events
    try:
        events = json.loads(source["endOffset"])["events"]
    except (KeyError, TypeError, ValueError):
        return 0  # a source of another kind
    return max(0, int(events) - int(source["numInputRows"]))
