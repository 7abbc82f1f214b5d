"""The options that every `echomesh pipeline run` has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from echomesh.cli.pipeline_common import (
    ClientOption,
    DataOption,
    EnvironmentOption,
    HomeOption,
    PasswordFileOption,
    ServerOption,
)


def _where(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help, show_default=False)


def _how(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_HOW, **more)


_HOW: Final = "How"


@dataclass(frozen=True, kw_only=True)
class Given:
    """What was said on the command line, besides the options of a ready pipeline. Its fields are the options."""

    data: DataOption = None
    server: ServerOption = None
    client: ClientOption = None
    password_file: PasswordFileOption = None
    environment: EnvironmentOption = None
    home: HomeOption = None
    tables: Annotated[str | None, _where("DIR", "Where tables are; tables in the data directory when not given.")] = (
        None
    )
    checkpoint: Annotated[str | None, _where("DIR", "Where checkpoints are, if not in --home: a path or address.")] = (
        None
    )
    master: Annotated[str, _how(metavar="MASTER", help="This machine, or a cluster as in spark://host:7077.")] = (
        "local[*]"
    )
    conf: Annotated[
        list[str] | None, _how("--conf", metavar="KEY=VALUE", help="A setting of Spark.", show_default=False)
    ] = None
    shared: Annotated[bool, _how("--shared", help="All machines of the cluster see the paths given.")] = False
    once: Annotated[bool, _how("--once", help="Do what there is now, and end.")] = False
    start: Annotated[
        str | None,
        _how(
            "--from", metavar="TIME", help="Begin with what was appended then: a time, or 15m ago.", show_default=False
        ),
    ] = None
    new_checkpoint: Annotated[
        bool, _how("--new-checkpoint", help="Put the old checkpoint aside; what it wrote is written again.")
    ] = False
    metrics: Annotated[
        str | None, _how(metavar="HOST:PORT", help="Serve metrics for Prometheus there.", show_default=False)
    ] = None
    restarts: Annotated[int, _how(min=0, metavar="N", help="Give up after so many failures in a row.")] = 10
    print_submit: Annotated[bool, _how("--print-submit", help="Print commands for YARN and Kubernetes instead.")] = (
        False
    )
    as_json: Annotated[bool, _how("--json", help="Print progress as lines of JSON.")] = False

    @property
    def settings(self) -> list[str]:
        """The settings of Spark, each as KEY=VALUE."""
        return self.conf or []


def text(path: Path | None) -> str | None:
    """A path as pipelines take it."""
    return None if path is None else str(path)
