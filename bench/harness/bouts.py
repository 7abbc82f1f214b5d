"""Measurements that belong together, taken in turns: each repetition has all, the order turned around each time."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.harness.machine import OtherLoad
from bench.harness.pairs import MeasurementFailed
from bench.harness.rounds import Patience, Say
from bench.harness.rows import Row, compare

TRIES = 2


@dataclass
class Figures:
    """What was measured: for each repetition a figure by name."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    failures: dict[str, list[str]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def row(
        self,
        case: str,
        ours: str,
        peer: str,
        *,
        unit: str,
        target: float | None = None,
        named: str | None = None,
        theirs: Callable[[Mapping[str, float]], float] | None = None,
        less_is_better: bool = False,
        notes: Sequence[str] = (),
    ) -> Row:
        """Ours beside the figure `peer`, or beside what `theirs` makes of a repetition's figures."""
        pairs = [
            (found[ours], theirs(found) if theirs else found[peer])
            for found in self.rounds
            if ours in found and peer in found
        ]
        return compare(
            case,
            [pair[0] for pair in pairs],
            named or peer,
            [pair[1] for pair in pairs],
            unit=unit,
            target=target,
            less_is_better=less_is_better,
            other_cpus=round(statistics.fmean(self.loads), 2) if self.loads else None,
            notes=[*notes, *self.failures.get(ours, []), *self.failures.get(peer, [])],
        )


Measurement = Callable[[], float | Mapping[str, float]]


def bouts(measurements: Mapping[str, Measurement], repetitions: int, patience: Patience, say: Say) -> Figures:
    """Takes all measurements `repetitions` times. One that fails is noted; one that failed twice is not tried again.

    A measurement gives a figure, or several by names of their own; a failure is noted under the measurement's name.
    """
    figures = Figures()
    for repetition in range(repetitions):
        order = list(measurements)
        if repetition % 2:
            order.reverse()
        patience.wait()
        found: dict[str, float] = {}
        for name in order:
            say(f"{name} ({repetition + 1} of {repetitions})")
            if len(figures.failures.get(name, [])) == TRIES:
                continue
            os.sync()  # what the one before has left to the kernel is not written in this one's time
            load = OtherLoad()
            try:
                measured = measurements[name]()
                found.update(measured if isinstance(measured, Mapping) else {name: measured})
            except MeasurementFailed as failure:
                # Of a traceback the last line says what was wrong; the others name files of this machine.
                said = str(failure).strip().splitlines()[-1]
                figures.failures.setdefault(name, []).append(f"{said} (repetition {repetition + 1})")
            figures.loads.append(load.cpus())
        figures.rounds.append(found)
    return figures
