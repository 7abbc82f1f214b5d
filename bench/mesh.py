"""Part `mesh`: servers of the mesh beside Redis Streams and NATS JetStream.

Servers and clients are processes of their own that talk over TCP, their data are on a real disk. Every system has the
same events, the same number of them in flight, and one client that publishes; each delivered event is checked.

Targets are set against what a Python program can have of the others: redis-py and nats-py. Beside them stands what
their servers give to a bare client, which is no library but prepared bytes on a socket: nobody can use it, and nothing
is quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench import mesh_trials as trials
from bench.harness.bouts import bouts
from bench.harness.progress import progress
from bench.harness.rounds import Patience, Say
from bench.harness.rows import Row
from bench.limits.disk import on_disk

SIZES = {200: "200 B", 1024: "1 KiB"}
WINDOW = 256
SUBSCRIBERS = (1, 10)
PER_SECOND = 1000
LATENCY_MS = 5.0
BRIDGED_RATE = 0.45
BRIDGED_CPU = 2.2
CLIENTS = 2000
CLIENT_IDS = 20
CLIENT_PROCESSES = 2
RECONNECT_SECONDS = 10.0

ECHOMESH = "echomesh"
ALWAYS = "Redis Streams, always, bare client"
ALWAYS_PY = "Redis Streams, always, redis-py"
EVERYSEC = "Redis Streams, everysec, bare client"
EVERYSEC_PY = "Redis Streams, everysec, redis-py"
JETSTREAM = "NATS JetStream, bare client"
JETSTREAM_PY = "NATS JetStream, nats-py"
ALONE = "one server"
BRIDGED = "over a bridge"

PUBLISHING = {
    ECHOMESH: trials.OURS,
    ALWAYS: trials.REDIS_ALWAYS,
    ALWAYS_PY: trials.REDIS_PY_ALWAYS,
    EVERYSEC: trials.REDIS_EVERYSEC,
    EVERYSEC_PY: trials.REDIS_PY_EVERYSEC,
    JETSTREAM: trials.JETSTREAM,
    JETSTREAM_PY: trials.JETSTREAM_PY,
}
DELIVERING = {ECHOMESH: trials.OURS, EVERYSEC: trials.REDIS_EVERYSEC, EVERYSEC_PY: trials.REDIS_PY_EVERYSEC}


class Plan:
    """How often and how long."""

    def __init__(self, quick: bool) -> None:
        self.repetitions = 2 if quick else 7
        self.reconnections = 1 if quick else 3
        self.seconds = 0.5 if quick else 2.0
        self.latency_seconds = 1.0 if quick else 4.0
        self.patience = Patience(10.0 if quick else 60.0)

    @property
    def steps(self) -> int:
        """Sentences that the progress bar will get."""
        each = len(PUBLISHING) + len(SUBSCRIBERS) * len(DELIVERING) + 3 + 2
        return self.repetitions * len(SIZES) * each + self.reconnections


def run(quick: bool) -> list[Row]:
    return measured(Plan(quick))


def measured(plan: Plan) -> list[Row]:
    """All rows of the part."""
    rows: list[Row] = []
    with progress(plan.steps) as say, on_disk() as root:
        for case in (_acknowledged, _delivered, _latencies, _bridged):
            for size in SIZES:
                rows += case(plan, root, size, say)
        rows += _reconnected(plan, root, say)
    return rows


def _figure(root: str, trial: Callable[..., float], *arguments: object) -> Callable[[], float]:
    """Makes a trial, in a directory of its own."""

    def once() -> float:
        with on_disk(root) as place:
            return trial(place, *arguments)

    return once


def _figures(
    root: str, names: tuple[str, str], trial: Callable[..., tuple[float, float]], *arguments: object
) -> Callable[[], Mapping[str, float]]:
    """Makes a trial that has two figures."""

    def once() -> Mapping[str, float]:
        with on_disk(root) as place:
            return dict(zip(names, trial(place, *arguments), strict=True))

    return once


def _acknowledged(plan: Plan, root: str, size: int, say: Say) -> list[Row]:
    figures = bouts(
        {
            name: _figure(root, trials.acknowledged, system, plan.seconds, size, WINDOW)
            for name, system in PUBLISHING.items()
        },
        plan.repetitions,
        plan.patience,
        say,
    )
    case, unit = f"acknowledged publishes of {SIZES[size]}, {WINDOW} in flight", "events/s"
    return [
        figures.row(case, ECHOMESH, ALWAYS_PY, unit=unit, target=1.5),
        figures.row(case, ECHOMESH, ALWAYS, unit=unit),
        figures.row(case, ECHOMESH, EVERYSEC_PY, unit=unit, target=1.3),
        figures.row(case, ECHOMESH, EVERYSEC, unit=unit),
        figures.row(case, ECHOMESH, JETSTREAM_PY, unit=unit, target=15.0),
        figures.row(case, ECHOMESH, JETSTREAM, unit=unit),
    ]


def _delivered(plan: Plan, root: str, size: int, say: Say) -> list[Row]:
    rows = []
    for subscribers in SUBSCRIBERS:
        arguments = (plan.seconds, size, WINDOW, subscribers)
        figures = bouts(
            {name: _figure(root, trials.delivered, system, *arguments) for name, system in DELIVERING.items()},
            plan.repetitions,
            plan.patience,
            say,
        )
        whom = "to one subscriber" if subscribers == 1 else f"to each of {subscribers} subscribers"
        case = f"delivered {whom}, {SIZES[size]}"
        rows.append(figures.row(case, ECHOMESH, EVERYSEC_PY, unit="events/s", target=1.5))
        rows.append(figures.row(case, ECHOMESH, EVERYSEC, unit="events/s"))
    return rows


def _latencies(plan: Plan, root: str, size: int, say: Say) -> list[Row]:
    arguments = (plan.latency_seconds, size, PER_SECOND)
    systems = {ECHOMESH: trials.OURS, ALWAYS_PY: trials.REDIS_PY_ALWAYS, ALWAYS: trials.REDIS_ALWAYS}
    figures = bouts(
        {
            name: _figures(root, (name, f"{name} p99"), trials.latency, system, *arguments)
            for name, system in systems.items()
        },
        plan.repetitions,
        plan.patience,
        say,
    )
    case, p99 = f"publish to delivery at {PER_SECOND:,}/s, {SIZES[size]}", f"{ECHOMESH} p99"
    wanted = figures.row(
        f"{case}, p99", p99, ECHOMESH, named="wanted", theirs=lambda found: LATENCY_MS, unit="ms", target=1.0,
        less_is_better=True,
    )  # fmt: skip
    return [
        figures.row(f"{case}, p50", ECHOMESH, ALWAYS_PY, unit="ms", target=1.0, less_is_better=True),
        figures.row(f"{case}, p50", ECHOMESH, ALWAYS, unit="ms", less_is_better=True),
        wanted,
        figures.row(f"{case}, p99", p99, f"{ALWAYS_PY} p99", named=ALWAYS_PY, unit="ms", less_is_better=True),
        figures.row(f"{case}, p99", p99, f"{ALWAYS} p99", named=ALWAYS, unit="ms", less_is_better=True),
    ]


def _bridged(plan: Plan, root: str, size: int, say: Say) -> list[Row]:
    arguments = (plan.seconds, size, WINDOW)
    figures = bouts(
        {
            ALONE: _figures(root, (ALONE, f"{ALONE} cpu"), trials.alone, *arguments),
            BRIDGED: _figures(root, (BRIDGED, f"{BRIDGED} cpu"), trials.bridged, *arguments),
        },
        plan.repetitions,
        plan.patience,
        say,
    )
    case = f"over one bridge, {SIZES[size]}"
    return [
        figures.row(case, BRIDGED, ALONE, unit="events/s", target=BRIDGED_RATE),
        figures.row(
            f"{case}: processor time of the servers", f"{BRIDGED} cpu", f"{ALONE} cpu", named=ALONE,
            unit="µs an event", target=round(1 / BRIDGED_CPU, 2), less_is_better=True,
        ),
    ]  # fmt: skip


def _reconnected(plan: Plan, root: str, say: Say) -> list[Row]:
    case = f"{CLIENTS:,} clients reconnect at once"
    once = _figure(root, trials.reconnected, CLIENTS, CLIENT_IDS, CLIENT_PROCESSES)
    figures = bouts({case: once}, plan.reconnections, plan.patience, say)
    return [
        figures.row(
            case, case, case, named="wanted", theirs=lambda found: RECONNECT_SECONDS, unit="s", target=1.0,
            less_is_better=True,
        )
    ]  # fmt: skip
