"""The commands, put together, and what becomes of their errors."""

from __future__ import annotations

import logging
import signal
from typing import Annotated

import typer

from echomesh._version import __version__
from echomesh.cli import control, demo, echo, log, ping, streams
from echomesh.cli.common import examples, fail, say, state
from echomesh.errors import EchomeshError

_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "echomesh demo                       see it work, in a quarter of a minute",
        "echomesh echo                       run an echo in one terminal",
        "echomesh ping --count 50000         and measure it from another",
        "echomesh streams --watch            what is in the rings, live",
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"echomesh {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, show_default=False, help="Log more; -vv: everything."),
    ] = 0,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (or set ECHOMESH_DEBUG=1).")
    ] = False,
) -> None:
    """The event mesh for Python and Spark."""
    state.debug = state.debug or debug
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")


app.command(
    epilog=examples(
        "echomesh echo",
        "echomesh echo --name mirror --wait spin",
    )
)(echo.echo)
app.command(
    epilog=examples(
        "echomesh ping --start                      runs an echo meanwhile",
        "echomesh ping mirror --size 4096",
        "echomesh ping --rate 1000 --count 60000    a minute of steady traffic",
        "echomesh ping --json | jq .round_trip_us",
    )
)(ping.ping)
app.add_typer(
    control.control,
    name="control",
    help="Send a command to a nukleus and print its response.",
    epilog=examples(
        "echomesh control echo capture client",
        "echomesh control echo bind client",
        "echomesh control echo unbind 2 --json",
    ),
)
app.command(
    epilog=examples(
        "echomesh streams",
        "echomesh streams --watch --interval 0.5",
        "echomesh streams --json | jq '.nuklei[].name'",
    )
)(streams.streams)
app.add_typer(
    log.log,
    name="log",
    help="Read, write and check the topic log in a data directory.",
    epilog=examples(
        "echomesh log ls --data /var/lib/echomesh",
        "echomesh log append orders '{\"id\": 7}' --data ./data",
        "echomesh log cat orders --since 15m --data ./data | jq .event.data",
        "echomesh log tail 'orders/**' --data ./data",
        "ECHOMESH_DATA=./data echomesh log verify",
    ),
)
app.command()(demo.demo)


def _terminated(number: int, frame: object) -> None:
    # As an exception it passes through all that has something to tidy up.
    raise SystemExit(_TERMINATED)


def run(arguments: list[str] | None = None) -> int:
    """Runs a command and gives the exit code; errors of ours become a sentence."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app(arguments, prog_name="echomesh")
    except EchomeshError as error:
        return fail(error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0
