"""`echomesh control`: any command to any nukleus."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from echomesh.cli.common import DirOption, JsonOption, say, say_json, state
from echomesh.nukleus.commands import COMMANDS, Aimed, Bind, Message, Named, Referring
from echomesh.nukleus.directory import check_name
from echomesh.nukleus.sync import Controller

control = typer.Typer(no_args_is_help=True)

Nukleus = Annotated[str, typer.Argument(metavar="NUKLEUS", help="The other nukleus.", show_default=False)]
Reference = Annotated[int, typer.Argument(metavar="REFERENCE", help="One of its own.", show_default=False)]
OtherReference = Annotated[int, typer.Argument(metavar="REFERENCE", help="One of the other nukleus.")]
Timeout = Annotated[float, typer.Option(min=0.0, metavar="S", help="How long to wait for the answer.")]


@control.callback()
def to(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The nukleus that is to do it.", show_default=False)],
) -> None:
    """Send a command to a nukleus and print its response."""
    context.obj = name


def _send(context: typer.Context, command: Message, timeout: float, where: DirOption, as_json: bool) -> None:
    state.json = as_json
    if isinstance(command, Named):
        check_name(command.nukleus)
    with Controller(context.obj, directory=where, timeout=timeout) as controller:
        answer = controller.call(command)
    if not as_json:
        say(str(answer))
        return
    fields = {f.name: getattr(answer, f.name) for f in dataclasses.fields(answer) if f.name != "correlation"}
    say_json({"nukleus": context.obj, "command": command.title, "response": answer.title, **fields})


def _add_named(kind: type[Named]) -> None:
    def send(
        context: typer.Context,
        nukleus: Nukleus,
        timeout: Timeout = 5.0,
        directory: DirOption = None,
        as_json: JsonOption = False,
    ) -> None:
        _send(context, kind(0, nukleus), timeout, directory, as_json)

    control.command(kind.title.lower(), help=kind.__doc__)(send)


def _add_aimed(kind: type[Aimed]) -> None:
    # BIND keeps the source's reference and does not look at it; PREPARE can do nothing without one.
    default: Any = 0 if kind is Bind else ...

    def send(
        context: typer.Context,
        nukleus: Nukleus,
        reference: OtherReference = default,
        timeout: Timeout = 5.0,
        directory: DirOption = None,
        as_json: JsonOption = False,
    ) -> None:
        _send(context, kind(0, nukleus, reference), timeout, directory, as_json)

    control.command(kind.title.lower(), help=kind.__doc__)(send)


def _add_referring(kind: type[Referring]) -> None:
    def send(
        context: typer.Context,
        reference: Reference,
        timeout: Timeout = 5.0,
        directory: DirOption = None,
        as_json: JsonOption = False,
    ) -> None:
        _send(context, kind(0, reference), timeout, directory, as_json)

    control.command(kind.title.lower(), help=kind.__doc__)(send)


for _kind in COMMANDS.values():
    if issubclass(_kind, Aimed):
        _add_aimed(_kind)
    elif issubclass(_kind, Named):
        _add_named(_kind)
    elif issubclass(_kind, Referring):
        _add_referring(_kind)
