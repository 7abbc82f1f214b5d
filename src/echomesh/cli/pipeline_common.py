"""What the commands of `echomesh pipeline` share: where pipelines are, and how they are shown."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from echomesh.cli.log_common import age_text
from echomesh.cli.text import plural, rate_text, size_text, time_text
from echomesh.spark.pipelines.registry import Entry, Figures

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", envvar="ECHOMESH_DATA", metavar="DIR", help="The data directory of a log.", show_default=False
    ),
]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="ECHOMESH_PIPELINES",
        metavar="DIR",
        help="Where pipelines keep checkpoints and state; pipelines in the data directory when not given.",
        show_default=False,
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        envvar="ECHOMESH_SERVER",
        metavar="HOST:PORT",
        help="A server. With --data too, events are read from the directory and written over the server.",
        show_default=False,
    ),
]
ClientOption = Annotated[
    str | None,
    typer.Option(
        "--client", "-c", envvar="ECHOMESH_CLIENT", metavar="ID", help="Who you are there.", show_default=False
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="Its first line is the password there.", show_default=False),
]
EnvironmentOption = Annotated[
    str | None,
    typer.Option(
        "--environment",
        "-e",
        envvar="ECHOMESH_ENVIRONMENT",
        metavar="NAME",
        help="Of the topics; TST when not given.",
        show_default=False,
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.", show_default=False)]

STYLES: Final = {
    "starting": "cyan",
    "running": "green",
    "waiting": "yellow",
    "stopped": "dim",
    "finished": "green",
    "failed": "red",
    "died": "red",
}


def plain() -> Table:
    """A table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def headline(entry: Entry) -> Text:
    """Name, state and who runs it."""
    line = Text(entry.name, style="bold")
    line.append(f"  {entry.state}", style=f"not bold {STYLES[entry.state]}")
    if entry.alive:
        line.append(f"  process {entry.pid} on {entry.host}, {entry.master}", style="not bold dim")
    line.append(f"  {ago(entry.started)}", style="not bold dim")
    return line


def queries(entry: Entry) -> Table:
    """A row for each output, with its figures."""
    table = plain()
    table.add_column("  output", overflow="fold")
    for title in ("rows", "rate", "lag", "batch", "took", "state", "late"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in entry.queries:
        table.add_row(Text(f"  {each.target}"), *_figures(each))
    return table


def _figures(each: Figures) -> tuple[str | Text, ...]:
    if each.batch < 0:
        return ("", "", "", Text("none yet", style="dim"), "", "", "")
    lag = Text(f"{each.lag:,}", style="yellow" if each.lag else "dim")
    state = f"{plural(each.state_rows, 'row')}, {size_text(each.state_bytes)}" if each.state_bytes else ""
    late = Text(f"{each.late:,}", style="yellow") if each.late else ""
    took = time_text(each.batch_ms * 1e6)
    return f"{each.rows:,}", rate_text(each.rows_per_s), lag, f"{each.batch:,}", took, state, late


def ago(text: str) -> str:
    """How long ago a moment of an entry was."""
    return age_text(round(datetime.fromisoformat(text).timestamp() * 1e9), time.time_ns()) if text else ""
