"""Runs one measurement: two processes, a directory in shared memory, and nothing left of them afterwards."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from bench.harness.machine import free_port
from bench.harness.peer import Contestant, Flow, Run
from bench.harness.roles import Failed, Laps, Outcome, Received, Sent, play

GRACE_SECONDS = 25.0
_SPAWN = multiprocessing.get_context("spawn")


class MeasurementFailed(Exception):
    """A measurement that does not count: an end failed or hung, or messages were wrong."""


@dataclass(frozen=True)
class Measured:
    """A figure: messages a second of a stream, or microseconds of a round trip (p50)."""

    value: float
    p99: float | None = None
    messages: int = 0
    cpu_us: float | None = None
    """Processor time of both ends for each message of a stream, in microseconds."""


def measure(contestant: Contestant, flow: Flow, size: int, seconds: float, *, count: int = 0) -> Measured:
    """One run of one contestant."""
    directory = Path(tempfile.mkdtemp(prefix="echomesh-bench-", dir="/dev/shm"))
    try:
        run = Run(contestant, flow, size, seconds, directory, free_port(), count)
        return _figure(contestant, *_outcomes(run))
    finally:
        remove(directory)


def _outcomes(run: Run) -> tuple[Outcome, Outcome]:
    links = _SPAWN.Pipe()
    processes = []
    results = []
    try:
        for role, link in zip(("a", "b"), links, strict=True):
            ours, theirs = _SPAWN.Pipe(duplex=False)
            process = _SPAWN.Process(target=play, args=(run, role, link, theirs), daemon=True)
            process.start()
            processes.append(process)
            results.append(ours)
            theirs.close()  # an end that dies is an end of file here, not a hang
        for link in links:
            link.close()
        outcomes: dict[int, Outcome] = {}
        deadline = time.monotonic() + run.seconds + GRACE_SECONDS
        while len(outcomes) < 2:
            waited = [result for i, result in enumerate(results) if i not in outcomes]
            ready = wait(waited, max(0.0, deadline - time.monotonic()))
            if not ready:
                raise MeasurementFailed(f"{run.contestant.name}: it hangs")
            for i, result in enumerate(results):
                if result in ready:
                    try:
                        outcomes[i] = result.recv()
                    except EOFError:
                        outcomes[i] = Failed(f"process {'ab'[i]} died")
                    failed = outcomes[i]
                    if isinstance(failed, Failed):
                        raise MeasurementFailed(f"{run.contestant.name}: {failed.trace}")
        for process in processes:
            process.join(2)
        return outcomes[0], outcomes[1]
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
        for end in (*links, *results):
            end.close()


def _figure(contestant: Contestant, a: Outcome, b: Outcome) -> Measured:
    if isinstance(a, Laps):
        if a.bad:
            raise MeasurementFailed(f"{contestant.name}: {a.bad} of {a.count} answers were wrong")
        return Measured(a.p50_us, a.p99_us, a.count)
    if not isinstance(a, Sent) or not isinstance(b, Received):
        raise MeasurementFailed(f"{contestant.name}: no figures")
    if b.bad or b.lost or b.good != a.messages:
        counts = f"{a.messages} sent, {b.good} good, {b.bad} bad, {b.lost} lost"
        raise MeasurementFailed(f"{contestant.name}: {counts}")
    if not b.seconds:
        raise MeasurementFailed(f"{contestant.name}: too few messages for a rate")
    return Measured(b.good / b.seconds, messages=b.good, cpu_us=(a.cpu_s + b.cpu_s) / b.good * 1e6)


def remove(directory: Path) -> None:
    # A peer that makes shared memory of its own names it after the directory.
    for path in directory.parent.glob(f"{directory.name}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
