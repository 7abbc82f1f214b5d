"""`echomesh topics` and `echomesh bridge`: what a server has, and which servers it is bridged to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from echomesh.cli.common import JsonOption, examples, out, say, say_json, state
from echomesh.cli.log_common import EnvironmentOption
from echomesh.cli.session import SERVER, CaOption, ClientOption, Login, PasswordFileOption, ServerOption, TlsOption
from echomesh.errors import UsageError

if TYPE_CHECKING:
    from echomesh.mesh.bodies import BridgeState
    from echomesh.mesh.log_bodies import TopicState

BRIDGE_PASSWORD_VARIABLE = "ECHOMESH_BRIDGE_PASSWORD"

UrnArgument = Annotated[
    str, typer.Argument(metavar="URN[:PORT]", help="The other server's name or address.", show_default=False)
]

bridge = typer.Typer(no_args_is_help=True)


def topics(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="Only these; * and ** work.")] = "**",
    server: ServerOption = SERVER,
    client: ClientOption = None,
    password_file: PasswordFileOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
    environment: EnvironmentOption = "TST",
    as_json: JsonOption = False,
) -> None:
    """List the topics of a server that you may read."""
    state.json = as_json
    login = Login(server, client, password_file, tls, ca, environment)
    found = sorted(login.run(lambda session: session.topics(filter)), key=lambda topic: topic.topic)
    if as_json:
        say_json({"environment": environment, "topics": [_topic_facts(topic) for topic in found]})
    elif found:
        table = _table(("topic", "level"), ("earliest", "next", "events"))
        for topic in found:
            events = f"{topic.latest - topic.earliest:,}"
            table.add_row(topic.topic, topic.level, f"{topic.earliest:,}", f"{topic.latest:,}", events)
        out().print(table)
    else:
        say(f"No topics in {environment} that match {filter}.")


def _topic_facts(topic: TopicState) -> dict[str, Any]:
    events = topic.latest - topic.earliest
    found = {"topic": topic.topic, "level": topic.level, "earliest": topic.earliest}
    return {**found, "next": topic.latest, "events": events}


@bridge.command(
    epilog=examples(
        "echomesh bridge add mesh-2.example",
        "echomesh bridge add 10.0.0.7:4890 --topics 'orders/**' --topics alerts",
        "echomesh bridge add mesh-3.example --as mesh-1 --as-password-file secret",
    )
)
def add(
    urn: UrnArgument,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", "-t", metavar="FILTER", help="Only these topics, both ways; all when not given."),
    ] = None,
    as_client: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="ID",
            help="Who the server is at the other one; the client of its configuration when not given.",
            show_default=False,
        ),
    ] = None,
    as_password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Its first line is the password for that. Else it is in {BRIDGE_PASSWORD_VARIABLE}, or asked for.",
            show_default=False,
        ),
    ] = None,
    server: ServerOption = SERVER,
    client: ClientOption = None,
    password_file: PasswordFileOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
) -> None:
    """Bridge a server to another one: each gets what is published at the other. It holds until `rm`."""
    login = Login(server, client, password_file, tls, ca)
    password = _password_there(urn, as_client, as_password_file)
    login.run(lambda session: session.add_bridge(urn, topics=topics, login=as_client, password=password))
    say(f"{server} is bridged to {urn}.")


@bridge.command(
    epilog=examples(
        "echomesh bridge ls",
        "echomesh bridge ls --json | jq '.bridges[] | select(.active | not)'",
    )
)
def ls(
    server: ServerOption = SERVER,
    client: ClientOption = None,
    password_file: PasswordFileOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the bridges that a server was told to make, and how they are."""
    state.json = as_json
    found = Login(server, client, password_file, tls, ca).run(lambda session: session.bridges())
    if as_json:
        say_json({"server": server, "bridges": [_bridge_facts(each) for each in found]})
    elif not found:
        say(f"{server} has made no bridges.")
    else:
        table = _table(("to", "state", "topics"), ("behind",), ("why",))
        for each in found:
            how = Text("up", style="green") if each.active else Text("down", style="bold red")
            table.add_row(_address(each), how, " ".join(each.topics), f"{each.behind:,}", each.reason)
        out().print(table)


@bridge.command(epilog=examples("echomesh bridge rm mesh-2.example"))
def rm(
    urn: UrnArgument,
    server: ServerOption = SERVER,
    client: ClientOption = None,
    password_file: PasswordFileOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
) -> None:
    """End a bridge."""
    Login(server, client, password_file, tls, ca).run(lambda session: session.remove_bridge(urn))
    say(f"{server} is no longer bridged to {urn}.")


def _password_there(urn: str, client: str | None, file: Path | None) -> str | None:
    from echomesh.node.secrets import password_from

    if client is None:
        if file is not None:
            raise UsageError("--as-password-file needs --as: who the server is at the other one")
        return None
    password = password_from(file, BRIDGE_PASSWORD_VARIABLE, "--as-password-file")
    if password is None and sys.stderr.isatty():
        password = typer.prompt(f"Password of {client} at {urn}", hide_input=True, err=True)
    return password


def _address(each: BridgeState) -> str:
    return f"[{each.urn}]:{each.port}" if ":" in each.urn else f"{each.urn}:{each.port}"


def _bridge_facts(each: BridgeState) -> dict[str, Any]:
    found = {"urn": each.urn, "port": each.port, "active": each.active, "topics": each.topics}
    return {**found, "behind": each.behind, "reason": each.reason}


def _table(*columns: tuple[str, ...]) -> Table:
    """Columns that are texts, then some that are figures, then texts again."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, titles in enumerate(columns):
        for title in titles:
            table.add_column(title, justify="right" if number == 1 else "left", no_wrap=number == 1)
    return table
