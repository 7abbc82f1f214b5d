"""`echomesh pipeline retry-dead`: dead letters, once more on their old topics."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from echomesh.cli.common import JsonOption, say, say_json, state, stoppable
from echomesh.cli.pipeline_common import (
    ClientOption,
    DataOption,
    EnvironmentOption,
    HomeOption,
    PasswordFileOption,
    ServerOption,
)
from echomesh.cli.pipeline_options import text
from echomesh.cli.text import plural


def retry_dead(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Old topics, or filters of them; all when not given.", show_default=False),
    ] = None,
    data: DataOption = None,
    server: ServerOption = None,
    client: ClientOption = None,
    password_file: PasswordFileOption = None,
    environment: EnvironmentOption = None,
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
        data=text(data),
        server=server,
        client_id=client,
        password_file=text(password_file),
        environment=environment,
        home=text(home),
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
