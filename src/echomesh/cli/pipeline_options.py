"""The options that every `echomesh pipeline run` has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from echomesh.cli.pipeline_common import DataOption, HomeOption

_WHERE: Final = "Options"
_HOW: Final = "How"


@dataclass(frozen=True)
class Given:
    """What was said on the command line, besides the options of a ready pipeline."""

    data: Path | None
    server: str | None
    client: str | None
    password_file: Path | None
    environment: str | None
    home: Path | None
    tables: str | None
    checkpoint: str | None
    master: str
    conf: list[str]
    shared: bool
    once: bool
    start: str | None
    new_checkpoint: bool
    metrics: str | None
    restarts: int
    print_submit: bool
    as_json: bool


def common(
    data: DataOption = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "-s",
            envvar="ECHOMESH_SERVER",
            metavar="HOST:PORT",
            rich_help_panel=_WHERE,
            show_default=False,
            help="A server. With --data too, events are read from the directory and written over the server.",
        ),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(
            "--client",
            "-c",
            envvar="ECHOMESH_CLIENT",
            metavar="ID",
            help="Who you are there.",
            rich_help_panel=_WHERE,
            show_default=False,
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Its first line is the password there.", rich_help_panel=_WHERE, show_default=False
        ),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            "--environment",
            "-e",
            envvar="ECHOMESH_ENVIRONMENT",
            metavar="NAME",
            rich_help_panel=_WHERE,
            help="Of the topics; TST when not given.",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
    tables: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where tables are; tables in the data directory when not given.",
            rich_help_panel=_WHERE,
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where checkpoints are, if not in --home: a path or address.",
            rich_help_panel=_WHERE,
            show_default=False,
        ),
    ] = None,
    master: Annotated[
        str,
        typer.Option(
            metavar="MASTER", help="This machine, or a cluster as in spark://host:7077.", rich_help_panel=_HOW
        ),
    ] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf", metavar="KEY=VALUE", help="A setting of Spark.", rich_help_panel=_HOW, show_default=False
        ),
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="All machines of the cluster see the paths given.", rich_help_panel=_HOW)
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Do what there is now, and end.", rich_help_panel=_HOW)] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Begin with what was appended then: a time, or 15m ago.",
            rich_help_panel=_HOW,
            show_default=False,
        ),
    ] = None,
    new_checkpoint: Annotated[
        bool,
        typer.Option(
            "--new-checkpoint",
            help="Put the old checkpoint aside; what it wrote is written again.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve metrics for Prometheus there.", rich_help_panel=_HOW, show_default=False
        ),
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, metavar="N", help="Give up after so many failures in a row.", rich_help_panel=_HOW)
    ] = 10,
    print_submit: Annotated[
        bool,
        typer.Option("--print-submit", help="Print commands for YARN and Kubernetes instead.", rich_help_panel=_HOW),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print progress as lines of JSON.", rich_help_panel=_HOW)
    ] = False,
) -> Given:
    """Its parameters are the options of every run."""
    return Given(
        data,
        server,
        client,
        password_file,
        environment,
        home,
        tables,
        checkpoint,
        master,
        conf or [],
        shared,
        once,
        start,
        new_checkpoint,
        metrics,
        restarts,
        print_submit,
        as_json,
    )
