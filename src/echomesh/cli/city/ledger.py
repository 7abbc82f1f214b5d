"""The ledger: what the publishers know, held against what readers that are not ours find in the tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from echomesh.cli.city.traffic import Account
from echomesh.events import Event
from echomesh.log import LogReader

Key = tuple[str, str]
_COLUMNS: Final = ("source", "id", "topic", "timestamp")


@dataclass(frozen=True)
class Row:
    """What a table says of an event."""

    key: Key
    topic: str
    appended: datetime


@dataclass
class Ledger:
    """The figures, and what is wrong with them."""

    published: int
    duplicates: int
    stored: int
    quarantined: int
    missing: int
    twice: int
    strange: int
    """Rows of events that nobody published."""
    by_pyarrow: int
    """Rows of both tables, as pyarrow counts the files that belong to them."""
    delays_s: list[float]
    """From append to the commit of the table that has the event."""
    by_second: Counter[int]
    """How many events a table got in each second of wall-clock time."""
    windows: int = 0
    windows_wrong: list[str] = field(default_factory=list)
    late: int = 0
    fired: int = 0
    resolved: int = 0
    alerts_wrong: int = 0
    alerts: list[str] = field(default_factory=list)

    @property
    def adds_up(self) -> bool:
        """Whether each event is in one place."""
        together = self.stored + self.quarantined + self.duplicates
        return self.published == together and self.by_pyarrow == self.stored + self.quarantined


def files_of(table: Path) -> list[tuple[str, float]]:
    """The files of a Delta table, by `deltalake`, and when each was added, in seconds of the epoch."""
    import pyarrow as pa
    from deltalake import DeltaTable

    if not (table / "_delta_log").exists():
        return []
    added = pa.table(DeltaTable(table).get_add_actions(flatten=True)).to_pylist()
    return [(str(table / each["path"]), _seconds(each["modification_time"])) for each in added]


def _seconds(value: Any) -> float:
    return value.timestamp() if isinstance(value, datetime) else float(value) / 1e3


def _rows(table: Path) -> list[Row]:
    from deltalake import DeltaTable

    if not (table / "_delta_log").exists():
        return []
    found = DeltaTable(table).to_pyarrow_table(columns=list(_COLUMNS)).to_pylist()
    return [Row((each["source"], each["id"]), each["topic"], each["timestamp"]) for each in found]


def stored_in(tables: Path) -> int:
    """How many events the two tables have by now."""
    from deltalake import DeltaTable

    names = ("archive", "archive-quarantine")
    return sum(DeltaTable(tables / name).count() for name in names if (tables / name / "_delta_log").exists())


def newest_window(tables: Path) -> float:
    """When the newest window that is finished begins, in seconds of the epoch; 0 when there is none."""
    from deltalake import DeltaTable

    if not (tables / "windows" / "_delta_log").exists():
        return 0.0
    rows = DeltaTable(tables / "windows").to_pyarrow_table(columns=["window_start"]).to_pylist()
    return max((_seconds(row["window_start"]) for row in rows), default=0.0)


def count(account: Account, data: Path, tables: Path, window_s: float) -> Ledger:
    """All of it."""
    archive, quarantine = _rows(tables / "archive"), _rows(tables / "archive-quarantine")
    found = Counter(row.key for row in (*archive, *quarantine))
    ledger = Ledger(
        published=account.acknowledged,
        duplicates=account.acknowledged - len(account.events),
        stored=len(archive),
        quarantined=len(quarantine),
        missing=sum(key not in found for key in account.events),
        twice=sum(times > 1 for times in found.values()),
        strange=sum(key not in account.events for key in found),
        by_pyarrow=0,
        delays_s=[],
        by_second=Counter(),
    )
    for name in ("archive", "archive-quarantine"):
        _files(ledger, tables / name)
    _windows(ledger, account, {row.key: row for row in (*archive, *quarantine)}, tables / "windows", window_s)
    _alerts(ledger, data)
    return ledger


def _files(ledger: Ledger, table: Path) -> None:
    import pyarrow.parquet as pq

    for path, at in files_of(table):
        appended = pq.read_table(path, columns=["timestamp"], partitioning=None).column("timestamp").to_pylist()
        ledger.by_pyarrow += len(appended)
        ledger.by_second[int(at)] += len(appended)
        ledger.delays_s += [at - each.timestamp() for each in appended if each is not None]


def _windows(ledger: Ledger, account: Account, rows: dict[Key, Row], table: Path, window_s: float) -> None:
    """Each finished window has as many events, and late ones, as plain Python counts."""
    from deltalake import DeltaTable

    if not (table / "_delta_log").exists():
        return
    events: Counter[tuple[str, datetime]] = Counter()
    late: Counter[tuple[str, datetime]] = Counter()
    span = timedelta(seconds=window_s)
    for key, row in rows.items():
        made = account.events.get(key)
        time = made.event.time if made is not None else None
        if time is None:
            continue
        start = _start(time, window_s)
        if row.appended >= start + 2 * span:  # the watermark is as long as a window
            late[row.topic, _start(row.appended, window_s)] += 1
        else:
            events[row.topic, start] += 1
    seen: Counter[tuple[str, datetime]] = Counter()
    for each in DeltaTable(table).to_pyarrow_table().to_pylist():
        place = (each["topic"], each["window_start"])
        seen[place] += 1
        ledger.windows += 1
        ledger.late += each["late"]
        if (each["events"], each["late"]) != (events[place], late[place]) or seen[place] > 1:
            ledger.windows_wrong.append(f"{place[0]} at {place[1]:%H:%M:%S}")


def _start(time: datetime, window_s: float) -> datetime:
    seconds = time.timestamp()
    return datetime.fromtimestamp(seconds - seconds % window_s, time.tzinfo)


def _alerts(ledger: Ledger, data: Path) -> None:
    """Of each rule and key they take turns: it fires, it is well again."""
    states: dict[tuple[str, str], str] = {}
    for topic, event in alerts_in(data):
        told = json.loads(event.data) if isinstance(event.data, bytes) else dict(event.data)
        state, key = str(told.get("state")), (topic, str(told.get("key")))
        ledger.fired += state == "firing"
        ledger.resolved += state == "resolved"
        before = states.get(key, "resolved")
        ledger.alerts_wrong += state == before
        states[key] = state
        rule = topic.rpartition("/")[2]
        ledger.alerts.append(f"{rule}: {key[1]} {state}" + (f" at {told['value']}" if told.get("value") else ""))


def alerts_in(data: Path) -> Iterator[tuple[str, Event]]:
    """The alerts in the log, topic by topic."""
    with LogReader(data) as log:
        for name in log.topics():
            if name.name.startswith("alerts/"):
                topic = log.topic(name.name)
                for records in topic.follow(topic.earliest, timeout=0):
                    yield from ((name.name, Event.decode(raw)) for raw in records.events())
