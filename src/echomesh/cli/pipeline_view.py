"""What a running pipeline shows: figures that stand still on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from echomesh.cli.common import is_terminal, out, say, say_json, warn
from echomesh.cli.pipeline_common import headline, plain, queries
from echomesh.cli.text import plural, rate_text
from echomesh.spark.pipelines.registry import Entry

_LINE_S: Final = 5.0  # between lines of progress where nothing can be drawn
_REDRAW_S: Final = 0.25
_TOPICS: Final = 5


@contextlib.contextmanager
def shown(as_json: bool) -> Iterator[Callable[[Entry], None]]:
    """Gives what has to be called with each change of the entry."""
    import msgspec

    if as_json:
        lines = _Lines(lambda entry: say_json(msgspec.to_builtins(entry)))
        yield lines.tell
    elif is_terminal():
        with Live(console=out(), refresh_per_second=4, transient=True) as live:
            yield _Drawing(live).tell
    else:
        yield _Lines(lambda entry: say(_line(entry))).tell


class _Drawing:
    """The figures, drawn over and over; what happened stays above them."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.at = 0.0
        self.said = _Said(lambda text, style: live.console.print(Text(text, style=style), soft_wrap=True))

    def tell(self, entry: Entry) -> None:
        """Draws."""
        self.said.look(entry)
        if not entry.alive:
            self.live.update(Text(), refresh=True)
            self.live.console.print(_picture(entry))
        elif time.monotonic() - self.at >= _REDRAW_S:
            self.at = time.monotonic()
            self.live.update(_picture(entry))


class _Lines:
    """A line now and then, and when the state changes."""

    def __init__(self, put: Callable[[Entry], None]) -> None:
        self.put = put
        self.at = 0.0
        self.state = ""
        self.rows = -1
        self.said = _Said(lambda text, style: warn(text, style=style))

    def tell(self, entry: Entry) -> None:
        """Prints, if there is something new."""
        self.said.look(entry)
        rows = sum(each.rows for each in entry.queries)
        changed = entry.state != self.state
        if changed or (rows != self.rows and time.monotonic() - self.at >= _LINE_S):
            self.at, self.state, self.rows = time.monotonic(), entry.state, rows
            self.put(entry)


class _Said:
    """What has to be told once: a failure, and where all of it can be read."""

    def __init__(self, put: Callable[[str, str], None]) -> None:
        self.put = put
        self.restarts = 0

    def look(self, entry: Entry) -> None:
        """Tells what is new."""
        restarts = sum(each.restarts for each in entry.queries)
        if restarts > self.restarts and entry.why:
            self.put(f"a query failed and starts again in {entry.retry_s:g} s: {entry.why}", "yellow")
        self.restarts = restarts


def _picture(entry: Entry) -> RenderableType:
    parts: list[RenderableType] = [headline(entry), queries(entry)]
    if entry.state == "waiting":
        parts.insert(1, Text(f"  {entry.why}", style="yellow", overflow="ellipsis", no_wrap=True))
    late = {topic: lag for each in entry.queries for topic, lag in each.topics}
    if late and entry.alive:
        table = plain()
        table.add_column("  most lag", overflow="fold")
        table.add_column("events", justify="right")
        for topic, lag in sorted(late.items(), key=lambda pair: -pair[1])[:_TOPICS]:
            table.add_row(f"  {topic}", f"{lag:,}")
        parts.append(table)
    return Group(*parts)


def _line(entry: Entry) -> str:
    rows = sum(each.rows for each in entry.queries)
    rate = sum(each.rows_per_s for each in entry.queries)
    lag = sum(each.lag for each in entry.queries)
    state = sum(each.state_rows for each in entry.queries)
    figures = f"{plural(rows, 'row')}, {rate_text(rate)}, lag {lag:,}, batch {max(q.batch for q in entry.queries)}"
    kept = f", state {plural(state, 'row')}" if state else ""
    return (
        f"{entry.updated} {entry.name} {entry.state}: {figures}{kept}"
        if rows
        else f"{entry.updated} {entry.name} {entry.state}"
    )
