"""Part `log`: the topic log beside what the disk alone can do, and beside Redis Streams.

All of it on a real disk, in a directory that is gone afterwards; every figure is of processes of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Callable
from statistics import fmean

from bench import filters, log_loads
from bench.harness.apart import Apart, apart
from bench.harness.bouts import bouts
from bench.harness.machine import OtherLoad
from bench.harness.pairs import MeasurementFailed
from bench.harness.progress import progress
from bench.harness.rounds import Patience, Say
from bench.harness.rows import Row, compare
from bench.limits.disk import fdatasyncs, on_disk
from bench.peers import redis_streams

SIZE = 200
WINDOW = 256
TOPICS = 1000
MOST = 500_000  # appends a second: with a faster disk than that, Python is what is measured
SCAN_TARGET = 3e6
SCAN_LARGE_BYTES = 4096
SCAN_LARGE_TARGET = 2.5  # GB/s
READERS = 10
PACED = 10_000
LARGE_EVENT_BYTES = 140
LARGE_TURNS = 4

BARE = "bare fdatasync"
ONE_TOPIC = "echomesh log"
MANY_TOPICS = "echomesh log, 1,000 topics"
ALONE = "echomesh log, one at a time"
ALWAYS = "Redis Streams, appendfsync always"
EVERYSEC = "Redis Streams, appendfsync everysec"


class Plan:
    """How often, how long and how much."""

    def __init__(self, quick: bool) -> None:
        self.repetitions = 3 if quick else 9
        self.seconds = 0.5 if quick else 2.0
        self.patience = Patience(10.0 if quick else 60.0)
        self.scanned = 400_000 if quick else 2_000_000
        self.scanned_large = 40_000 if quick else 200_000
        # The whole of 100 million where disk and time allow it; else as many as there is time for, and the row says so.
        self.large = 2_000_000 if quick else 100_000_000
        self.large_seconds = 15.0 if quick else 600.0

    @property
    def steps(self) -> int:
        """Sentences that the progress bar will get."""
        return self.repetitions * 6 + 2 * (1 + self.repetitions) + 2 * self.repetitions + 3


def run(quick: bool) -> list[Row]:
    plan = Plan(quick)
    rows: list[Row] = []
    with progress(plan.steps) as say, on_disk() as root:
        for title, part in (
            ("appends", _appends),
            ("scans", _scans),
            (f"{READERS} readers", _readers),
            ("appends to a large topic", _large),
        ):
            try:
                rows += part(plan, root, say)
            except MeasurementFailed as failure:
                rows.append(compare(title, [], "", [], unit="", target=1.0, notes=[str(failure)]))
        say("filter matching")
    return [*rows, filters.row(quick)]


def _appends(plan: Plan, root: str, say: Say) -> list[Row]:
    def measured(function: Callable[..., float], *arguments: object) -> Callable[[], float]:
        def once() -> float:
            with on_disk(root) as place:
                return float(apart(function, place, plan.seconds, *arguments, seconds=plan.seconds))

        return once

    figures = bouts(
        {
            BARE: measured(fdatasyncs),
            ONE_TOPIC: measured(log_loads.in_flight, SIZE, WINDOW, 1),
            MANY_TOPICS: measured(log_loads.in_flight, SIZE, WINDOW, TOPICS),
            ALONE: measured(log_loads.one_at_a_time, SIZE),
            ALWAYS: measured(redis_streams.appends, "always", SIZE, WINDOW),
            EVERYSEC: measured(redis_streams.appends, "everysec", SIZE, WINDOW),
        },
        plan.repetitions,
        plan.patience,
        say,
    )
    case, unit = f"appends of {SIZE} B on disk, {WINDOW} in flight", "appends/s"
    return [
        figures.row(
            case,
            ONE_TOPIC,
            BARE,
            named=f"lesser of {WINDOW} x bare fdatasync and {MOST:,}/s",
            theirs=lambda found: min(WINDOW * found[BARE], MOST),
            unit=unit,
            target=0.7,
        ),
        figures.row(case, ONE_TOPIC, ALWAYS, unit=unit),
        figures.row(case, ONE_TOPIC, EVERYSEC, unit=unit),
        figures.row(
            f"the same over {TOPICS:,} topics", MANY_TOPICS, ONE_TOPIC, named="one topic", unit=unit, target=0.7
        ),
        figures.row(f"appends of {SIZE} B, one at a time", ALONE, BARE, unit=unit, target=0.8),
    ]


def _scans(plan: Plan, root: str, say: Say) -> list[Row]:
    cases = (
        (f"scan into Arrow, {SIZE} B, warm", SIZE, plan.scanned, 1.0, SCAN_TARGET, "events/s"),
        (
            f"scan into Arrow, {SCAN_LARGE_BYTES // 1024} KiB, warm",
            SCAN_LARGE_BYTES,
            plan.scanned_large,
            SCAN_LARGE_BYTES / 1e9,
            SCAN_LARGE_TARGET,
            "GB/s",
        ),
    )
    rows = []
    for case, size, count, scale, wanted, unit in cases:
        if importlib.util.find_spec("pyarrow") is None:
            rows.append(compare(case, [], "wanted", [], unit=unit, target=1.0, notes=["no pyarrow here"]))
            continue
        with on_disk(root) as place:
            say(f"{case}: filling")
            apart(log_loads.fill, place, "scanned", size, count, 120.0, seconds=120.0)

            def once(place: str = place, scale: float = scale) -> float:
                found = apart(log_loads.arrow_scan, place, "scanned", plan.seconds, seconds=plan.seconds)
                return float(found) * scale

            figures = bouts({case: once}, plan.repetitions, plan.patience, say)
            rows.append(figures.row(case, case, case, named="wanted", theirs=_always(wanted), unit=unit, target=1.0))
    return rows


def _always(value: float) -> Callable[[object], float]:
    return lambda found: value


def _readers(plan: Plan, root: str, say: Say) -> list[Row]:
    ours, alone, writer, undisturbed, loads = [], [], [], [], []
    with on_disk(root) as place:
        apart(log_loads.fill, place, "read", SIZE, plan.scanned, 120.0, seconds=120.0)
        for repetition in range(plan.repetitions):
            figures = {}
            plan.patience.wait()
            for count in (1, READERS) if repetition % 2 else (READERS, 1):
                say(f"{count} readers ({repetition + 1} of {plan.repetitions})")
                load = OtherLoad()
                figures[count] = _read_together(plan, place, count)
                loads.append(load.cpus())
            ours.append(figures[READERS][0])
            alone.append(figures[1][0])
            writer.append(figures[READERS][1])
            undisturbed.append(PACED)
    other_cpus = round(fmean(loads), 2)
    return [
        compare(
            f"{READERS} readers on two cores, together", ours, "one alone", alone,
            unit="events/s", target=1.6, other_cpus=other_cpus,
        ),
        compare(
            f"a writer beside {READERS} readers", writer, "what it wants", undisturbed,
            unit="appends/s", target=0.95, other_cpus=other_cpus,
        ),
    ]  # fmt: skip


def _read_together(plan: Plan, place: str, count: int) -> tuple[float, float]:
    # The writer is there in both cases, so that only the number of readers differs.
    with contextlib.ExitStack() as held:
        writer = held.enter_context(Apart(log_loads.paced, place, plan.seconds, PACED, SIZE))
        writer.wait_ready()
        readers = [held.enter_context(Apart(log_loads.read_round, place, "read", plan.seconds)) for _ in range(count)]
        for reader in readers:
            reader.wait_ready()
        for process in (writer, *readers):
            process.go()
        total = sum(reader.result(plan.seconds) for reader in readers)
        return total, writer.result(plan.seconds)


def _large(plan: Plan, root: str, say: Say) -> list[Row]:
    with on_disk(root) as place:
        say(f"a topic with {plan.large:,} events")
        # Events are written twice for a while, and half of the disk is not ours to fill.
        room = shutil.disk_usage(place).free // 2 // (LARGE_EVENT_BYTES + 40)
        wanted = min(plan.large, room)
        seconds = plan.large_seconds
        there = apart(log_loads.fill, place, "large", LARGE_EVENT_BYTES, wanted, seconds, seconds=seconds)
        load = OtherLoad()
        say("appends to it, and to an empty one")
        seconds = plan.seconds * 2 * LARGE_TURNS
        pairs = apart(
            log_loads.large_and_empty, place, "large", plan.seconds, SIZE, WINDOW, LARGE_TURNS, seconds=seconds
        )
    return [
        compare(
            f"appends with {there:,} events in the topic",
            [large for large, _ in pairs],
            "with none",
            [empty for _, empty in pairs],
            unit="appends/s",
            target=0.9,
            other_cpus=round(load.cpus(), 2),
        )
    ]
