"""Part `data`: publishers and subscribers on one machine against the peers, by the same checker."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping

from bench.harness.bouts import Figures, bouts
from bench.harness.fans import measure_fan
from bench.harness.pairs import measure
from bench.harness.peer import Contestant, Flow
from bench.harness.progress import progress
from bench.harness.rounds import Patience
from bench.harness.rows import Row

OURS = "echomesh"
MIB = 1 << 20
FAN = 10

# Repetitions, seconds for each measurement, seconds to wait for a quiet machine.
QUICK = (3, 0.5, 10.0)
FULL = (9, 1.0, 60.0)

SINGLE = Contestant("mesh_data", "single", "send")
MANY = Contestant("mesh_data", "many", "send_many")
LOAN = Contestant("mesh_data", "loan", "loan")
SPIN = Contestant("mesh_data", "spin", "spinning")
SLEEP = Contestant("mesh_data", "sleep", "sleeping")
LOOP = Contestant("mesh_data_asyncio", "", "asyncio")
ZEROMQ = Contestant("zeromq", "ipc", "pyzmq ipc PUSH/PULL")
ZEROMQ_LOOP = Contestant("zeromq_asyncio", "", "pyzmq asyncio")
ZENOH = Contestant("eclipse_zenoh", "shm", "Zenoh shared memory")
ICEORYX_POLL = Contestant("iceoryx", "poll", "iceoryx2 poll")
ICEORYX_EVENT = Contestant("iceoryx", "event", "iceoryx2 event")
ICEORYX_LOAN = Contestant("iceoryx", "loan", "iceoryx2 loan")
UNIX = Contestant("raw", "unix", "raw unix socket")


SPINNING = 0.7  # of iceoryx2's time


def run(quick: bool) -> list[Row]:
    repetitions, seconds, patience_seconds = QUICK if quick else FULL
    patience = Patience(patience_seconds)
    measurements = _measurements(seconds)
    with progress(repetitions * len(measurements)) as say:
        return rows(bouts(measurements, repetitions, patience, say))


Measure = Callable[[], float | Mapping[str, float]]


def _measurements(seconds: float) -> dict[str, Measure]:
    def exchange(one: Contestant, flow: Flow, size: int) -> Callable[[], float]:
        return lambda: measure(one, flow, size, seconds).value

    def stream(one: Contestant, name: str) -> Callable[[], Mapping[str, float]]:
        def measured() -> Mapping[str, float]:
            found = measure(one, "stream", 64, seconds)
            return {name: found.value, f"{name} CPU": found.cpu_us or 0.0}

        return measured

    return {
        "64 B": stream(SINGLE, "64 B"),
        "64 B pyzmq": stream(ZEROMQ, "64 B pyzmq"),
        "64 B many": stream(MANY, "64 B many"),
        "64 KiB": exchange(SINGLE, "stream", 64 << 10),
        "64 KiB poll": exchange(ICEORYX_POLL, "stream", 64 << 10),
        "64 KiB event": exchange(ICEORYX_EVENT, "stream", 64 << 10),
        "1 MiB": exchange(SINGLE, "stream", MIB),
        "1 MiB memcpy": lambda: memcpy_rate(MIB, seconds),
        "1 MiB loan": exchange(LOAN, "stream", MIB),
        "1 MiB iceoryx2 loan": exchange(ICEORYX_LOAN, "stream", MIB),
        "fan": lambda: measure_fan(SINGLE, FAN, MIB, seconds),
        "fan Zenoh": lambda: measure_fan(ZENOH, FAN, MIB, seconds),
        "spin": exchange(SPIN, "round trip", 64),
        "spin poll": exchange(ICEORYX_POLL, "round trip", 64),
        "talk": exchange(SLEEP, "round trip", 64),
        "talk unix": exchange(UNIX, "round trip", 64),
        "sleep": exchange(SLEEP, "paced round trip", 64),
        "sleep unix": exchange(UNIX, "paced round trip", 64),
        "loop": exchange(LOOP, "round trip", 64),
        "loop pyzmq": exchange(ZEROMQ_LOOP, "round trip", 64),
    }


def figures() -> list[str]:
    """The names of all figures that a run has."""
    return [*_measurements(0.0), "64 B CPU", "64 B pyzmq CPU", "64 B many CPU"]


def rows(figures: Figures) -> list[Row]:
    """The table of what was to be reached."""
    rate = "messages/s"

    def best(found: Mapping[str, float]) -> float:
        return max(found["64 KiB poll"], found["64 KiB event"])

    def lap(case: str, ours: str, theirs: str, peer: Contestant, target: float = 1.0) -> Row:
        return figures.row(case, ours, theirs, named=peer.name, unit="µs", target=target, less_is_better=True)

    return [
        figures.row("64 B, send one by one", "64 B", "64 B pyzmq", named=ZEROMQ.name, unit=rate, target=3.0),
        figures.row("64 B, send_many", "64 B many", "64 B pyzmq", named=ZEROMQ.name, unit=rate, target=6.0),
        figures.row(
            "64 KiB, copied in",
            "64 KiB",
            "64 KiB event",
            named="best of iceoryx2 event and poll",
            theirs=best,
            unit=rate,
            target=1.2,
        ),
        figures.row("1 MiB, copied in", "1 MiB", "1 MiB memcpy", named="memcpy", unit=rate, target=0.9),
        figures.row("1 MiB, loan", "1 MiB loan", "1 MiB iceoryx2 loan", named=ICEORYX_LOAN.name, unit=rate, target=1.0),
        figures.row(f"1 MiB to {FAN} subscribers", "fan", "fan Zenoh", named=ZENOH.name, unit=rate, target=5.0),
        lap("round trip 64 B, spinning", "spin", "spin poll", ICEORYX_POLL, round(1 / SPINNING, 2)),
        lap("round trip 64 B, sleeping, one behind the other", "talk", "talk unix", UNIX),
        lap("round trip 64 B, sleeping, one a millisecond", "sleep", "sleep unix", UNIX),
        lap("round trip 64 B, asyncio", "loop", "loop pyzmq", ZEROMQ_LOOP),
        lap("CPU a message of 64 B, both sides", "64 B CPU", "64 B pyzmq CPU", ZEROMQ),
    ]


def memcpy_rate(size: int, seconds: float) -> float:
    """Copies a second of one buffer into another, by the C library."""
    source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    copy, clock = ctypes.memmove, time.perf_counter
    copies, begun = 0, clock()
    while clock() - begun < seconds:
        for _ in range(10):
            copy(target, source, size)
        copies += 10
    return copies / (clock() - begun)
