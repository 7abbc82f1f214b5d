"""Rows: what a comparison comes to, and the file they are written to."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.machine import NOISY_CPUS

RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio` and `target`: ours over the peer's, turned so that more is better."""

    case: str
    ours: float | None
    peer: str | None
    peer_value: float | None
    unit: str
    ratio: float | None
    target: float | str | None  # in words, where a part has no ratio to reach
    repetitions: int
    spread: list[float] | float | None  # the smallest and the largest ratio of one repetition
    other_cpus: float | None = None  # used by everybody else meanwhile
    notes: list[str] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.target is None or isinstance(self.target, str):
            return None
        return self.ratio is not None and self.ratio >= self.target

    @property
    def noisy(self) -> bool:
        """Whether others used the machine so much that the figures are doubtful."""
        return self.other_cpus is not None and self.other_cpus > NOISY_CPUS


_FIELDS = {field.name for field in dataclasses.fields(Row)}


def row_of(given: Row | Mapping[str, Any]) -> Row:
    """A row as it is, or one from a part that returns dicts: what they do not say is unknown."""
    if isinstance(given, Row):
        return given
    unknown: dict[str, Any] = dict.fromkeys(("ours", "peer", "peer_value", "ratio", "target", "spread"))
    known = {key: value for key, value in given.items() if key in _FIELDS}
    return Row(**{"unit": "", "repetitions": 1, **unknown, **known})


def compare(
    case: str,
    ours: Sequence[float],
    peer: str,
    theirs: Sequence[float],
    *,
    unit: str,
    target: float | None = None,
    less_is_better: bool = False,
    other_cpus: float | None = None,
    notes: Sequence[str] = (),
) -> Row:
    """The row of repetitions that measured both sides back to back: ours[i] and theirs[i] belong together."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} figures of ours and {len(theirs)} of {peer} make no pairs")
    if not ours:
        return Row(case, None, peer, None, unit, None, target, 0, None, other_cpus, list(notes))
    ratios = [b / a if less_is_better else a / b for a, b in zip(ours, theirs, strict=True)]
    return Row(
        case=case,
        ours=statistics.median(ours),
        peer=peer,
        peer_value=statistics.median(theirs),
        unit=unit,
        ratio=statistics.median(ratios),
        target=target,
        repetitions=len(ratios),
        spread=[min(ratios), max(ratios)],
        other_cpus=other_cpus,
        notes=list(notes),
    )


def write(part: str, machine: Mapping[str, Any], rows: Sequence[Row], directory: Path = RESULTS) -> Path:
    """Writes the results of a part; an interrupted run leaves the old ones."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{part}.json"
    fresh = path.with_suffix(".new")
    listed = [{**dataclasses.asdict(row), "met": row.met, "noisy": row.noisy} for row in rows]
    fresh.write_text(json.dumps({"machine": machine, "rows": listed}, indent=2) + "\n")
    fresh.replace(path)
    return path
