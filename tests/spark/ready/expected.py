"""What the ready pipelines have to find, computed in plain Python; and what independent readers see of it."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from echomesh.events import Event
from tests.spark.ready.city import Seen, micros

Key = tuple[str, int]  # topic and beginning of a window
Alert = tuple[str, str, str, int, int]  # topic, key, state, since, at
SKEW_US = 2_000_000
FIGURES = ("events", "late", "bytes", "max_bytes", "max_ms")


def table(path: Path) -> list[dict[str, Any]]:
    """The rows of a Delta table, by a reader that is not Spark."""
    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return rows


def windows(seen: Iterable[Seen], window_us: int, watermark_us: int) -> dict[Key, dict[str, Any]]:
    """The figures of every window that has ended."""
    found: dict[Key, list[tuple[Seen, bool]]] = defaultdict(list)
    newest = 0
    for one in seen:
        end = one.happened_us - one.happened_us % window_us + window_us
        late = one.at_us >= end + watermark_us
        counted_us = one.at_us if late else one.happened_us
        newest = max(newest, counted_us)
        found[one.topic, counted_us - counted_us % window_us].append((one, late))
    closed = newest - watermark_us - SKEW_US
    return {key: _figures(rows) for key, rows in found.items() if key[1] + window_us <= closed}


def _figures(rows: list[tuple[Seen, bool]]) -> dict[str, Any]:
    timely = [one for one, late in rows if not late]
    sizes = [len(one.data) for one in timely]
    latencies = sorted(max(0, one.at_us - one.time_us) / 1000 for one in timely if one.time_us is not None)
    return {
        "events": len(timely),
        "late": len(rows) - len(timely),
        "bytes": sum(sizes),
        "max_bytes": max(sizes, default=None),
        "max_ms": latencies[-1] if latencies else None,
        "latencies": latencies,
    }


def same_figures(row: dict[str, Any], figures: dict[str, Any]) -> None:
    """Checks a row of the table, or an event, of `windows`."""
    assert {name: row.get(name) for name in FIGURES} == {name: figures[name] for name in FIGURES}
    latencies = figures["latencies"]
    for name, part in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        if not latencies:
            assert row.get(name) is None
            continue
        low, high = math.floor(part * len(latencies)) - 2, math.ceil(part * len(latencies)) + 1  # about that rank
        assert latencies[max(0, low)] <= row[name] <= latencies[min(len(latencies) - 1, high)]


def latest(seen: Iterable[Seen], key: Callable[[Seen], str | None]) -> dict[tuple[str, str], Seen]:
    """The last event of each topic and key, by its time, then by offset."""
    found: dict[tuple[str, str], Seen] = {}
    for one in sorted(seen, key=lambda one: (one.happened_us, one.offset)):
        if (named := key(one)) is not None:
            found[one.topic, named] = one
    return found


def number(one: Seen, name: str) -> float | None:
    """A number of the payload."""
    try:
        value = json.loads(one.data)[name]
        return float(value)
    except (ValueError, KeyError, TypeError):
        return None


def _alternating(topic: str, key: str, flags: Sequence[tuple[int, bool]]) -> list[Alert]:
    found: list[Alert] = []
    since = None
    for at_us, fires in flags:
        if fires and since is None:
            since = at_us
            found.append((topic, key, "firing", at_us, at_us))
        elif not fires and since is not None:
            found.append((topic, key, "resolved", since, at_us))
            since = None
    return found


def by_key(seen: Iterable[Seen]) -> dict[tuple[str, str], list[Seen]]:
    """The events of sensors in the order of the log, by topic and subject."""
    found: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for one in seen:
        if one.topic.startswith("sensors/") and one.event.subject is not None:
            found[one.topic, one.event.subject].append(one)
    return found


def above(seen: Iterable[Seen], bound: float) -> list[Alert]:
    """Alerts of sensors that are above a bound."""
    found: list[Alert] = []
    for (topic, key), events in by_key(seen).items():
        values = [(one.at_us, number(one, "celsius")) for one in events]
        found += _alternating(topic, key, [(at_us, value > bound) for at_us, value in values if value is not None])
    return sorted(found)


def unusual(seen: Iterable[Seen], sigma: float, window_us: int, least: int) -> list[Alert]:
    """Alerts of values that are far from those of the window before them."""
    found: list[Alert] = []
    for (topic, key), events in by_key(seen).items():
        all_of = [(one.at_us, value) for one in events if (value := number(one, "celsius")) is not None]
        flags = []
        for at, (at_us, value) in enumerate(all_of):
            before = [each for time, each in all_of[:at] if time > at_us - window_us]
            fires = len(before) >= least and (abs(value - statistics.fmean(before)) > sigma * statistics.pstdev(before))
            flags.append((at_us, fires))
        found += _alternating(topic, key, flags)
    return sorted(found)


def silent(seen: Sequence[Seen], after_us: int) -> list[Alert]:
    """Alerts of sensors that said nothing for so long."""
    end_us = max(one.at_us for one in seen) - SKEW_US
    found: list[Alert] = []
    for (topic, key), events in by_key(seen).items():
        times = [one.at_us for one in events]
        for before, after in zip(times, [*times[1:], None], strict=True):
            if (after or end_us) > before + after_us:
                found.append((topic, key, "firing", before + after_us, before + after_us))
                if after is not None:
                    found.append((topic, key, "resolved", before + after_us, after))
    return sorted(found)


def alerts(events: Iterable[Event]) -> list[Alert]:
    """Alerts as they were published."""
    found = []
    for event in events:
        body = event.data
        assert event.time is not None
        assert event.subject == body["key"]
        assert event.type == f"alert.{body['state']}"
        since = micros(Event(type="t", source="/t", time=body["since"]).time)  # type: ignore[arg-type]
        found.append((body["topic"], body["key"], body["state"], since, micros(event.time)))
    return sorted(found)
