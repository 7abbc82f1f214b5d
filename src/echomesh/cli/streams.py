"""`echomesh streams`: which nuklei there are, and what is in their rings."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from echomesh.cli.common import DirOption, JsonOption, Stop, is_terminal, out, say_json, state, stoppable
from echomesh.cli.text import amount_text, bar, rate_text, size_text
from echomesh.nukleus.directory import Directory
from echomesh.nukleus.snapshot import Life, NukleusState, RingState, Snapshot, take

_SILENT_S = 2.0
_LOOK_S = 0.05
_STYLES = {Life.ALIVE: "green", Life.DEAD: "red", Life.FOREIGN: "yellow"}


def streams(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it live, with rates, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, metavar="S", help="Between two looks of --watch.")] = 1.0,
    directory: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show nuklei, their rings and counters, without disturbing anyone."""
    state.json = as_json
    where = Directory(directory)
    if not watch:
        seen = take(where)
        say_json(as_dict(seen, None)) if as_json else out().print(view(seen, None, out().width))
        return
    with stoppable() as stop:
        if as_json:
            _each(where, interval, stop, lambda seen, before: say_json(as_dict(seen, before)))
        elif is_terminal():
            _watch(where, interval, stop)
        else:
            console = out()
            _each(where, interval, stop, lambda seen, before: console.print(view(seen, before, console.width)))


def _watch(where: Directory, interval: float, stop: Stop) -> None:
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        _each(
            where,
            interval,
            stop,
            lambda seen, before: live.update(view(seen, before, console.width), refresh=True),
        )


def _each(where: Directory, interval: float, stop: Stop, show: Callable[[Snapshot, Snapshot | None], None]) -> None:
    before: Snapshot | None = None
    while not stop.asked:
        seen = take(where)
        show(seen, before)
        before = seen
        while not stop.asked and time.monotonic() < seen.time + interval:
            time.sleep(_LOOK_S)


class Rates:
    """What changed between two looks, a second."""

    def __init__(self, now: Snapshot, before: Snapshot | None) -> None:
        self._passed_s = now.time - before.time if before else 0.0
        # By process too: a nukleus that came back counts from 0 again.
        self._before = {(n.name, n.pid): n for n in before.nuklei} if before else {}

    def read(self, nukleus: NukleusState, ring: RingState) -> float | None:
        """Bytes a second that were read from a ring; None when it was not there before."""
        past = self._before.get((nukleus.name, nukleus.pid))
        for old in (*past.streams, past.commands) if past else ():
            if old is not None and old.name == ring.name and old.head <= ring.head and self._passed_s > 0:
                return (ring.head - old.head) / self._passed_s
        return None

    def counted(self, nukleus: NukleusState, label: str) -> float | None:
        """How often a second a counter was raised."""
        past = self._before.get((nukleus.name, nukleus.pid))
        if past is None or self._passed_s <= 0:
            return None
        return (nukleus.counters[label] - past.counters.get(label, 0)) / self._passed_s


def as_dict(seen: Snapshot, before: Snapshot | None) -> dict[str, Any]:
    """What `--json` prints."""
    rates = Rates(seen, before)

    def ring(nukleus: NukleusState, one: RingState) -> dict[str, Any]:
        return {
            **dataclasses.asdict(one),
            "in_flight": one.in_flight,
            "fill": round(one.fill, 6),
            "bytes_per_second": rates.read(nukleus, one),
        }

    nuklei = [
        {
            "name": n.name,
            "state": n.life.value,
            "pid": n.pid,
            "silent_s": n.silent_s if n.silent_s is None else round(n.silent_s, 3),
            "problem": n.problem,
            "commands": ring(n, n.commands) if n.commands else None,
            "streams": [ring(n, each) for each in n.streams],
            "counters": n.counters,
        }
        for n in seen.nuklei
    ]
    return {"directory": seen.directory, "nuklei": nuklei}


def view(seen: Snapshot, before: Snapshot | None, width: int) -> RenderableType:
    """What people get to see."""
    if not seen.nuklei:
        return Text(f"No nukleus in {seen.directory}. `echomesh echo` starts one.")
    rates = Rates(seen, before)
    parts: list[RenderableType] = [Text(seen.directory, style="dim")]
    for nukleus in seen.nuklei:
        parts += [Text(), _headline(nukleus)]
        table = _rings(nukleus, rates, width)
        if table.row_count:
            parts.append(table)
        parts += [Text(f"  from {r.name}: {r.problem}", style="red") for r in nukleus.streams if r.problem]
        if nukleus.counters:
            parts.append(_counters(nukleus, rates))
    return Group(*parts)


def _headline(nukleus: NukleusState) -> Text:
    line = Text(nukleus.name, style="bold")
    line.append(f"  {nukleus.life.value}", style=f"not bold {_STYLES[nukleus.life]}")
    if nukleus.pid is not None:
        line.append(f"  pid {nukleus.pid}", style="not bold dim")
    if nukleus.life is Life.DEAD:
        line.append("  its files go when the next nukleus starts", style="not bold dim")
    elif nukleus.life is Life.FOREIGN:
        line.append("  not ours: nobody can tell whether it lives", style="not bold dim")
    elif nukleus.silent_s is not None and nukleus.silent_s > _SILENT_S:
        line.append(f"  no sign of life for {nukleus.silent_s:.0f} s: stopped?", style="not bold yellow")
    if nukleus.problem:
        line.append(f"\n  {nukleus.problem}", style="not bold red")
    return line


def _rings(nukleus: NukleusState, rates: Rates, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    blocks = 10 if width < 100 else 24
    table.add_column("  ring", no_wrap=True, min_width=18, max_width=18 if width < 100 else 30)
    table.add_column("in flight", justify="right", no_wrap=True, min_width=9)
    table.add_column("of", justify="right", no_wrap=True, min_width=7)
    table.add_column("fill", no_wrap=True, min_width=blocks + 5)
    table.add_column("read so far", justify="right", no_wrap=True, min_width=11)
    table.add_column("now", justify="right", no_wrap=True, min_width=9)
    for ring in (*((nukleus.commands,) if nukleus.commands else ()), *nukleus.streams):
        label = Text("  commands" if ring is nukleus.commands else f"  from {ring.name}")
        if ring.problem:
            continue
        rate = rates.read(nukleus, ring)
        table.add_row(
            label,
            size_text(ring.in_flight),
            size_text(ring.capacity),
            _fill(ring.fill, blocks),
            amount_text(ring.head),
            "" if rate is None else f"{amount_text(rate)}/s",
        )
    return table


def _fill(part: float, blocks: int) -> Text:
    style = "green" if part < 0.5 else "yellow" if part < 0.9 else "red"
    text = Text(bar(part, blocks), style=f"{style} on grey23")
    text.append(f" {100 * part:3.0f}%", style="default on default")
    return text


def _counters(nukleus: NukleusState, rates: Rates) -> Text:
    line = Text("  ")
    for i, (label, value) in enumerate(nukleus.counters.items()):
        line.append(" · " if i else "", style="dim")
        line.append(label.replace(" ", "\N{NO-BREAK SPACE}"), style="dim")
        line.append(f"\N{NO-BREAK SPACE}{value:,}")
        rate = rates.counted(nukleus, label)
        if rate:
            line.append(f"\N{NO-BREAK SPACE}(+{rate_text(rate)})".replace(" ", "\N{NO-BREAK SPACE}"), style="cyan")
    return line
