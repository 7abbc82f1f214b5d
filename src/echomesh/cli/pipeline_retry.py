"""`echomesh pipeline retry-dead`: dead letters, once more on their old topics."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from echomesh.cli.common import JsonOption, say, say_json, state, stoppable
from echomesh.cli.pipeline_common import DataOption, HomeOption
from echomesh.cli.text import plural


def retry_dead(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Old topics, or filters of them; all when not given.", show_default=False),
    ] = None,
    data: DataOption = None,
    server: Annotated[
        str | None, typer.Option("--server", "-s", envvar="ECHOMESH_SERVER", metavar="HOST:PORT", help="A server.")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", "-c", envvar="ECHOMESH_CLIENT", metavar="ID", help="Who you are there.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its first line is the password there.")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option("--environment", "-e", metavar="NAME", help="Of the topics; TST when not given."),
    ] = None,
    home: HomeOption = None,
    prefix: Annotated[str, typer.Option(metavar="TOPIC", help="Dead letters are below it.")] = "dead",
    as_json: JsonOption = False,
) -> None:
    """Publish dead letters again on their old topics, each once: those that came since the last time."""
    from echomesh.spark.pipelines.place import Place
    from echomesh.spark.pipelines.retry import retry
    from echomesh.spark.pipelines.runner import RunOptions, run

    state.json = as_json
    place = Place(
        data=None if data is None else str(data),
        server=server,
        client_id=client,
        password_file=None if password_file is None else str(password_file),
        environment=environment,
        home=None if home is None else str(home),
    )
    with stoppable() as asked:
        stop = threading.Event()
        asked.then(stop.set)
        entry = run(retry(topics or ["**"], prefix), place, RunOptions(once=True), stop=stop)
    rows = entry.queries[0].rows
    if as_json:
        say_json({"retried": rows})
    else:
        say(f"{plural(rows, 'dead letter')} published again." if rows else "No dead letters since the last time.")
