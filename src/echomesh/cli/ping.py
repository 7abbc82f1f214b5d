"""`echomesh ping`: round trips through an Echo nukleus."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from echomesh.cli.common import (
    FAILED,
    DirOption,
    JsonOption,
    Wait,
    WaitOption,
    out,
    say,
    say_json,
    state,
    stoppable,
)
from echomesh.cli.process import EchoProcess
from echomesh.cli.text import amount_text, bar, plural, rate_text, size_text, time_text
from echomesh.errors import NukleusGone
from echomesh.nukleus.directory import Directory
from echomesh.nukleus.histogram import Histogram
from echomesh.nukleus.ping import PingSession, Trips

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_ROWS = 14
_CHART_COLUMNS: tuple[JustifyMethod, ...] = ("right", "left", "right", "left", "right", "right")
# Preferred numbers: even steps on a logarithmic scale, easy to read. The finest that fits is taken.
_SERIES = (
    (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0),
    (1.0, 1.6, 2.5, 4.0, 6.3),
    (1.0, 2.0, 5.0),
    (1.0,),
)


def ping(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The echo to send to.")] = "echo",
    count: Annotated[int, typer.Option(min=0, metavar="N", help="How many; 0: until Ctrl-C.")] = 10_000,
    size: Annotated[int, typer.Option(min=0, metavar="BYTES", help="Of each payload.")] = 64,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="R/S", help="So many a second; when not given, the next when the last is back."
        ),
    ] = None,
    wait: WaitOption = Wait.BALANCED,
    timeout: Annotated[float, typer.Option(min=0.01, metavar="S", help="How long to wait for an answer.")] = 5.0,
    start: Annotated[bool, typer.Option("--start", help="Run an echo in the background for as long.")] = False,
    directory: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure round trips through an echo; every payload is checked byte for byte."""
    state.json = as_json
    where = Directory(directory)
    with contextlib.ExitStack() as held:
        stop = held.enter_context(stoppable())
        if start:
            held.enter_context(EchoProcess(name, where, wait))
        session = held.enter_context(_session(name, where, timeout, wait))
        progress = _Progress(count)
        held.callback(progress.clear)
        stop.then(session.stop)
        trips = Trips(size, interrupted=True)
        if not stop.asked:
            trips = session.measure(count=count or None, size=size, rate=rate, progress=progress)
    if as_json:
        say_json(as_dict(name, where, trips))
    else:
        show(out(), name, trips)
    if not trips.ok:
        raise typer.Exit(FAILED)


def _session(name: str, where: Directory, timeout: float, wait: Wait) -> PingSession:
    try:
        return PingSession(name, directory=where, timeout=timeout, spin=wait.spin_s)
    except NukleusGone as error:
        named = "" if name == "echo" else f" --name {name}"
        error.args = (
            f"no nukleus {name!r} runs in {where.root}: "
            f"start one with `echomesh echo{named}` in another terminal, or add --start",
        )
        raise


class _Progress:
    """A line that is written over, in plain characters: to draw more would take time from the measurement."""

    def __init__(self, count: int) -> None:
        self._of = f" of {count:,}" if count else ""
        self._shown = False

    def __call__(self, trips: Trips) -> None:
        if sys.stderr.isatty():
            self._shown = True
            p50 = time_text(trips.times.percentile(50))
            sys.stderr.write(f"\r\x1b[2K{trips.received:,}{self._of} round trips, half of them within {p50}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def as_dict(name: str, where: Directory, trips: Trips) -> dict[str, Any]:
    """What `--json` prints."""
    times = trips.times
    round_trip = {f"p{percent:g}": times.percentile(percent) / 1000 for percent in PERCENTILES}
    return {
        "echo": name,
        "directory": str(where.root),
        "size": trips.size,
        "sent": trips.sent,
        "received": trips.received,
        "lost": trips.lost,
        "wrong": trips.wrong,
        "reset": trips.reset,
        "interrupted": trips.interrupted,
        "ok": trips.ok,
        "elapsed_s": round(trips.elapsed_s, 6),
        "per_second": round(trips.per_second, 1),
        "round_trip_us": {
            "min": times.min_ns / 1000,
            "mean": round(times.mean_ns / 1000, 3),
            **round_trip,
            "max": times.max_ns / 1000,
        },
        "histogram": [
            {"from_us": low / 1000, "to_us": high / 1000, "count": number} for low, high, number in times.buckets()
        ],
    }


def show(console: Console, name: str, trips: Trips) -> None:
    """What people get to see."""
    payloads = f"{plural(trips.received, 'round trip')} of {size_text(trips.size)} through {name}"
    say(f"{payloads} in {trips.elapsed_s:.2f} s" + (", interrupted" if trips.interrupted else ""))
    if trips.times.count:
        console.print()
        console.print(_figures(trips))
        console.print()
        console.print(chart(trips.times, console.width))
        console.print()
    flow = trips.per_second * trips.size
    each_way = f", {amount_text(flow)}/s each way" if flow >= 1 else ""
    verdict = "every byte came back as it was sent" if trips.ok and trips.received else trouble(trips)
    console.print(
        f"{rate_text(trips.per_second)}{each_way}; {verdict}.",
        style=None if trips.ok else "bold red",
        soft_wrap=True,
    )


def trouble(trips: Trips) -> str:
    """What was not right, for a sentence."""
    parts = []
    if trips.wrong:
        parts.append(f"{plural(trips.wrong, 'answer')} with wrong bytes")
    if trips.lost:
        parts.append(f"{plural(trips.lost, 'payload')} without an answer")
    if trips.reset:
        parts.append("the stream was reset: the echo is gone or gave up")
    return ", ".join(parts) or "nothing was sent"


def _figures(trips: Trips) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    times = trips.times
    columns = [
        ("min", times.min_ns),
        *((f"p{p:g}", times.percentile(p)) for p in PERCENTILES),
        ("max", times.max_ns),
    ]
    for title, _ in columns:
        table.add_column(title, justify="right", header_style="dim", min_width=8, no_wrap=True)
    table.add_row(*(Text(time_text(value), style="bold" if title == "p50" else "") for title, value in columns))
    return table


def rows(times: Histogram) -> list[tuple[float, float | None, int]]:
    """The histogram in a screen's worth of rows: from, to (None: no end) in nanoseconds, and how many.

    The slowest hundredth may be slower by far: it gets rows of a decade, so as not to squeeze the others.
    """
    edges: list[float] = []
    for series in _SERIES:
        edges = _edges(series, times.min_ns, times.percentile(99))
        if len(edges) <= _ROWS + 1:
            break
    edges += [10.0**exponent for exponent in range(12) if edges[-1] < 10**exponent <= times.max_ns]
    counts = [0] * len(edges)
    for low, high, number in times.buckets():
        middle = (low + high - 1) / 2
        counts[max(0, sum(edge <= middle for edge in edges) - 1)] += number
    ends: list[float | None] = [*edges[1:], None]
    found = list(zip(edges, ends, counts, strict=True))
    return found if counts[-1] else found[:-1]


def _edges(series: tuple[float, ...], low: float, high: float) -> list[float]:
    steps = [digit * 10**exponent for exponent in range(12) for digit in series]
    first = max((i for i, step in enumerate(steps) if step <= low), default=0)
    last = next((i for i, step in enumerate(steps) if step > high), len(steps) - 1)
    return steps[first : last + 1]


def _share(number: int, count: int) -> str:
    percent = 100 * number / count
    return "" if not number else f"{percent:.1f} %" if percent >= 0.05 else "<0.1 %"


def chart(times: Histogram, width: int) -> Table:
    """The histogram as a chart for the terminal."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    for justify in _CHART_COLUMNS:
        table.add_column(justify=justify, no_wrap=True)
    found = rows(times)
    most = max(number for _, _, number in found)
    length = max(10, min(60, width - 42))
    for low, high, number in found:
        to = ("–", time_text(high)) if high is not None else ("and", "more")
        table.add_row(
            time_text(low),
            Text(to[0], style="dim"),
            Text(to[1]),
            Text(bar(number / most, length), style="cyan"),
            f"{number:,}" if number else Text("·", style="dim"),
            Text(_share(number, times.count), style="dim"),
        )
    return table
