"""The rows as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bench.harness.rows import Row


def table(part: str, rows: Sequence[Row]) -> Table:
    """One line for each row; a doubtful one says so."""
    made = Table(title=part, title_justify="left")
    for name in ("case", "ours", "peer", "peer value", "unit", "ratio", "target", "met?"):
        made.add_column(name, justify="left" if name in ("case", "peer", "unit") else "right")
    for name in ("repetitions", "spread", "other CPUs"):
        made.add_column(name, justify="right")
    for row in rows:
        made.add_row(
            row.case,
            _figure(row.ours),
            row.peer or "",
            _figure(row.peer_value),
            row.unit,
            _ratio(row.ratio),
            _ratio(row.target),
            _verdict(row),
            str(row.repetitions),
            _spread(row.spread),
            _load(row),
        )
    return made


def _verdict(row: Row) -> str:
    if row.met is None:
        return ""
    word = "yes" if row.met else "no"
    if row.noisy:  # neither is shown by figures that others had a hand in
        return f"[yellow]{word}?"
    return f"[green]{word}" if row.met else f"[red]{word}"


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ratio(value: float | str | None) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else f"{value:.2f}"


def _spread(spread: list[float] | float | None) -> str:
    if isinstance(spread, list):
        return " – ".join(f"{value:.2f}" for value in spread)
    return _ratio(spread)


def _load(row: Row) -> str:
    if row.other_cpus is None:
        return ""
    return f"{row.other_cpus:.2f}" + (" [yellow]noisy" if row.noisy else "")
