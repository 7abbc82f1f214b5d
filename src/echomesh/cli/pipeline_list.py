"""`echomesh pipeline ls`, `status` and `stop`: what runs, how it fares, and its end."""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from echomesh.cli.common import JsonOption, out, say, say_json, state
from echomesh.cli.pipeline_common import STYLES, DataOption, HomeOption, NameArgument, ago, headline, plain, queries
from echomesh.cli.text import rate_text
from echomesh.spark.pipelines.place import home_of
from echomesh.spark.pipelines.registry import Entry, Registry


def ls(data: DataOption = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the pipelines that run or ran: state, events read in this run, rate and lag."""
    state.json = as_json
    place = home_of(home, data)
    found = Registry(place).entries()
    if as_json:
        say_json({"home": str(place), "pipelines": [msgspec.to_builtins(entry) for entry in found]})
        return
    if not found:
        out().print(Text(f"No pipelines in {place}. `echomesh pipeline run` starts one."))
        return
    table = plain()
    table.add_column("pipeline", overflow="fold")
    table.add_column("state", no_wrap=True)
    for title in ("process", "read this run", "rate", "lag", "restarts", "last"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in found:
        table.add_row(*_row(entry))
    console = out()
    console.print(table)
    for entry in found:
        if text := why(entry):
            console.print(Text(f"{entry.name}: {text}", style="yellow" if entry.alive else "red"), soft_wrap=True)


def _row(entry: Entry) -> tuple[str | Text, ...]:
    sums = [sum(getattr(each, name) for each in entry.queries) for name in ("rows", "rows_per_s", "lag", "restarts")]
    rows, rate, lag, restarts = sums
    return (
        Text(entry.name, style="bold"),
        Text(entry.state, style=STYLES[entry.state]),
        str(entry.pid) if entry.alive else "",
        f"{rows:,.0f}",
        rate_text(rate) if entry.alive else "",
        f"{lag:,.0f}",
        f"{restarts:,.0f}" if restarts else "",
        Text(ago(entry.updated), style="dim"),
    )


def why(entry: Entry) -> str:
    """What went wrong with it, the last time that something did."""
    return "its process was killed" if entry.state == "died" and not entry.why else entry.why


def status(name: NameArgument, data: DataOption = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show one pipeline: each output, the topics with most lag, and why it failed."""
    state.json = as_json
    entry = Registry(home_of(home, data)).entry(name)
    if as_json:
        say_json(msgspec.to_builtins(entry))
        return
    console = out()
    console.print(headline(entry))
    if text := why(entry):
        said, style = (f"last failure: {text}", "yellow") if entry.alive else (text, "red")
        console.print(Text(f"  {said}", style=style), soft_wrap=True)
    console.print(queries(entry))
    topics = [(topic, lag) for each in entry.queries for topic, lag in each.topics]
    if topics:
        table = plain()
        table.add_column("  most lag", overflow="fold")
        table.add_column("events", justify="right")
        for topic, lag in sorted(topics, key=lambda pair: -pair[1])[:20]:
            table.add_row(f"  {topic}", f"{lag:,}")
        console.print(table)
    facts = {"watermark": " ".join(each.watermark for each in entry.queries), "checkpoint": entry.checkpoint,
             "log": entry.log, "file": entry.file}  # fmt: skip
    for key, value in facts.items():
        if value.strip():
            console.print(Text(f"  {key:<11}", style="dim").append(value, style="default"), soft_wrap=True)


def stop(
    name: NameArgument,
    data: DataOption = None,
    home: HomeOption = None,
    wait: Annotated[float, typer.Option(min=0, metavar="S", help="For how long to wait until it has.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Stop a pipeline that runs on this machine; it goes on from its checkpoint when it is run again."""
    state.json = as_json
    registry = Registry(home_of(home, data))
    ran = registry.entry(name).alive
    with contextlib.suppress(KeyboardInterrupt):
        entry = registry.stop(name, wait)
        if as_json:
            say_json(msgspec.to_builtins(entry))
        else:
            say(f"{name} has stopped." if ran else f"{name} does not run: it is {entry.state}.")
