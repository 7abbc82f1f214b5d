"""Repetitions: ours and the peers back to back, the order turned around each time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.harness.machine import OtherLoad, wait_until_quiet
from bench.harness.pairs import MeasurementFailed, measure
from bench.harness.peer import Contestant, Flow
from bench.harness.rows import Row, compare

Say = Callable[[str], None]


@dataclass(frozen=True)
class Claim:
    """A row to be made of a comparison: ours against the best of some peers."""

    case: str
    ours: Contestant
    peers: tuple[Contestant, ...]
    target: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Contestants that carry the same messages, and the claims that their figures are for."""

    flow: Flow
    size: int
    claims: tuple[Claim, ...]

    @property
    def contestants(self) -> list[Contestant]:
        return list(dict.fromkeys(one for claim in self.claims for one in (claim.ours, *claim.peers)))


class Patience:
    """Seconds that a part may spend on waiting for a quiet machine, in all."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def wait(self) -> None:
        if self.left > 0:
            self.left -= wait_until_quiet(self.left)


@dataclass
class _Rounds:
    figures: list[dict[Contestant, float]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)


def compared(comparison: Comparison, repetitions: int, seconds: float, patience: Patience, say: Say) -> list[Row]:
    """Measures all contestants `repetitions` times and makes the rows."""
    rounds = _Rounds()
    for repetition in range(repetitions):
        order = comparison.contestants
        if repetition % 2:
            order.reverse()
        patience.wait()
        figures = {}
        for contestant in order:
            say(f"{comparison.claims[0].case}: {contestant.name} ({repetition + 1} of {repetitions})")
            load = OtherLoad()
            try:
                figures[contestant] = measure(contestant, comparison.flow, comparison.size, seconds).value
            except MeasurementFailed as failure:
                rounds.failures.append(str(failure))
            rounds.loads.append(load.cpus())
        rounds.figures.append(figures)
    return [_row(comparison, claim, rounds) for claim in comparison.claims]


def _row(comparison: Comparison, claim: Claim, rounds: _Rounds) -> Row:
    less_is_better = comparison.flow != "stream"
    best_of = min if less_is_better else max
    ours, theirs, winners = [], [], []
    for figures in rounds.figures:
        there = [peer for peer in claim.peers if peer in figures]
        if claim.ours in figures and len(there) == len(claim.peers):
            best = best_of(there, key=lambda peer: figures[peer])
            ours.append(figures[claim.ours])
            theirs.append(figures[best])
            winners.append(best.name)
    return compare(
        claim.case,
        ours,
        _most_frequent(winners) if winners else " or ".join(peer.name for peer in claim.peers),
        theirs,
        unit="µs" if less_is_better else "messages/s",
        target=claim.target,
        less_is_better=less_is_better,
        other_cpus=round(statistics.fmean(rounds.loads), 2),
        notes=rounds.failures,
    )


def _most_frequent(names: Sequence[str]) -> str:
    return max(dict.fromkeys(names), key=names.count)
