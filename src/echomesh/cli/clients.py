"""`echomesh clients`: who may what, in the access file of a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from echomesh.cli import clients_file
from echomesh.cli.common import JsonOption, examples, out, say, say_json, state, warn
from echomesh.cli.log_common import disk_errors
from echomesh.errors import UsageError
from echomesh.mesh.access import Client, ClientRights, parse_client_id
from echomesh.mesh.access_file import loose
from echomesh.mesh.codes import ENVIRONMENTS
from echomesh.mesh.passwords import MAX_PASSWORD_BYTES, PasswordHash
from echomesh.node.config import ACCESS_FILE
from echomesh.topics import parse_filter

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The client's id.", show_default=False)]
AccessOption = Annotated[
    Path | None,
    typer.Option(
        "--access",
        envvar="ECHOMESH_ACCESS",
        metavar="FILE",
        help=f"The access file; {ACCESS_FILE} in the data directory when not given.",
        show_default=False,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", envvar="ECHOMESH_DATA", metavar="DIR", help="The data directory.", show_default=False),
]
StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="The password is a line of standard input, also from a terminal.")
]

clients = typer.Typer(no_args_is_help=True)


def _path(access: Path | None, data: Path | None) -> Path:
    if access is not None:
        return access
    if data is not None:
        return data / ACCESS_FILE
    raise UsageError(f"say where the access file is: --access FILE, or --data DIR for DIR/{ACCESS_FILE}")


def _environment(text: str) -> str:
    if text not in ENVIRONMENTS:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(ENVIRONMENTS)}")
    return text


@clients.command(
    epilog=examples(
        "echomesh clients add shop --publish 'orders/**' --subscribe 'orders/**' --data ./data",
        "echomesh clients add sensor-7 --publish sensors/7 --environment PRD --rate 100",
        "pass show mesh/shop | echomesh clients add shop --publish 'orders/**' --access access.toml",
    )
)
def add(
    name: NameArgument,
    publish: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="Topics it may publish to; * and ** work.")
    ] = None,
    subscribe: Annotated[list[str] | None, typer.Option(metavar="FILTER", help="Topics it may subscribe to.")] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            parser=_environment,
            metavar="|".join(ENVIRONMENTS),
            help="Environments it may use.",
            show_default=ENVIRONMENTS[0],
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e9, metavar="N", help="Publishes a second at most.", show_default=False),
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="It may manage bridges.")] = False,
    server: Annotated[bool, typer.Option("--server", help="It may connect as a bridged server.")] = False,
    password_stdin: StdinOption = False,
    access: AccessOption = None,
    data: DataOption = None,
) -> None:
    """Add a client. The password is asked for; it is never an argument, where everybody on the machine could see it."""
    path = _path(access, data)
    rights = ClientRights(
        environments=tuple(environment or ENVIRONMENTS[:1]),
        publish=tuple(map(parse_filter, publish or [])),
        subscribe=tuple(map(parse_filter, subscribe or [])),
        publishes_per_second=rate,
        admin=admin,
        server=server,
    )
    parse_client_id(name)
    with disk_errors():
        if path.exists():
            clients_file.refuse_known(clients_file.read(path), name, path)
        stored = PasswordHash.of(_ask(name, password_stdin))
        clients_file.add(path, name, {"password": stored.text, **_entry(rights)})
    say(f"{name} is in {path}: {_sentence(rights)}.")


@clients.command(
    epilog=examples(
        "echomesh clients ls --data ./data",
        "echomesh clients ls --json | jq '.clients[] | select(.admin).client_id'",
    )
)
def ls(access: AccessOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """List the clients and their rights."""
    state.json = as_json
    path = _path(access, data)
    with disk_errors():
        found = sorted(clients_file.read(path), key=lambda client: client.client_id)
        if (warning := loose(path)) is not None:
            warn(f"warning: {warning}", style="yellow")
    if as_json:
        say_json({"access": str(path), "clients": [_facts(client) for client in found]})
    elif found:
        out().print(_table(found))
    else:
        say(f"No clients in {path}.")


@clients.command(epilog=examples("echomesh clients rm shop --data ./data"))
def rm(name: NameArgument, access: AccessOption = None, data: DataOption = None) -> None:
    """Remove a client."""
    path = _path(access, data)
    with disk_errors():
        clients_file.remove(path, name)
    say(f"{name} is no longer in {path}.")


@clients.command(
    epilog=examples(
        "echomesh clients passwd shop --data ./data",
        "openssl rand -hex 24 | tee secret | echomesh clients passwd shop",
    )
)
def passwd(
    name: NameArgument, password_stdin: StdinOption = False, access: AccessOption = None, data: DataOption = None
) -> None:
    """Give a client another password; the old one is worth nothing within a second."""
    path = _path(access, data)
    with disk_errors():
        clients_file.refuse_unknown(clients_file.read(path), name, path)
        stored = PasswordHash.of(_ask(name, password_stdin))
        clients_file.set_password(path, name, stored.text)
    say(f"{name} has a new password in {path}.")


def _ask(name: str, from_stdin: bool) -> str:
    if from_stdin or not sys.stdin.isatty():
        line = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES + 3).decode(errors="surrogateescape")
        return line.removesuffix("\n").removesuffix("\r")
    answer: str = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt="Once more", err=True)
    return answer


def _entry(rights: ClientRights) -> dict[str, Any]:
    """The keys of a new entry; what says nothing is left out, but for the filters, which want to be seen."""
    entry: dict[str, Any] = {
        "environments": list(rights.environments),
        "publish": list(rights.publish),
        "subscribe": list(rights.subscribe),
    }
    if (rate := rights.publishes_per_second) is not None:
        entry["publishes_per_second"] = int(rate) if rate == int(rate) else rate
    return entry | {key: True for key in ("admin", "server") if getattr(rights, key)}


def _sentence(rights: ClientRights) -> str:
    said = [
        f"in {' '.join(rights.environments)} it may publish to {', '.join(rights.publish) or 'nothing'}",
        f"and subscribe to {', '.join(rights.subscribe) or 'nothing'}",
    ]
    if rights.publishes_per_second is not None:
        said.append(f"at most {rights.publishes_per_second:,.10g} publishes a second")
    return ", ".join(said)


def _facts(client: Client) -> dict[str, Any]:
    rights = client.rights
    return {
        "client_id": client.client_id,
        "environments": list(rights.environments),
        "publish": list(rights.publish),
        "subscribe": list(rights.subscribe),
        "publishes_per_second": rights.publishes_per_second,
        "admin": rights.admin,
        "server": rights.server,
    }


def _table(found: list[Client]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("client", "environments", "publish", "subscribe"):
        table.add_column(title, overflow="fold")
    table.add_column("publishes/s", justify="right", no_wrap=True)
    table.add_column("rights", no_wrap=True)
    for client in found:
        rights = client.rights
        rate = rights.publishes_per_second
        table.add_row(
            Text(client.client_id, style="bold"),
            " ".join(rights.environments),
            Text("\n".join(rights.publish)),
            Text("\n".join(rights.subscribe)),
            "" if rate is None else f"{rate:,.10g}",
            " ".join(key for key in ("admin", "server") if getattr(rights, key)),
        )
    return table
