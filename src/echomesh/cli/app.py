"""The commands, put together, and what becomes of their errors."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from echomesh._version import __version__
from echomesh.cli.commands import COMMANDS, wanted
from echomesh.cli.common import examples, fail, say, state
from echomesh.errors import EchomeshError
from echomesh.spark.needs import pyspark_needed

_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"echomesh {__version__}")
        raise typer.Exit


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


def assembled(names: Iterable[str]) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=examples(
            "echomesh demo                       see it work, in half a minute",
            "echomesh up --data ./data           run a server in one terminal",
            "echomesh sub 'orders/**'            print events in another",
            "echomesh pub orders/new hello       and publish one from a third",
        ),
    )
    app.callback()(options)
    for name in names:
        COMMANDS[name].add_to(app, name)
    return app


def _terminated(number: int, frame: object) -> None:
    # As an exception it passes through all that has something to tidy up.
    raise SystemExit(_TERMINATED)


def run(arguments: list[str] | None = None) -> int:
    """Runs a command and gives the exit code; errors of ours become a sentence."""
    signal.signal(signal.SIGTERM, _terminated)
    given = sys.argv[1:] if arguments is None else arguments
    names = list(COMMANDS) if "_ECHOMESH_COMPLETE" in os.environ else wanted(given)
    try:
        with pyspark_needed():
            assembled(names)(given, prog_name="echomesh")
    except EchomeshError as error:
        return fail(error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0
