"""`echomesh sub`: events of a subscription, as they come."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echomesh.cli.common import warn
from echomesh.cli.log_common import EnvironmentOption, moment
from echomesh.cli.peer import Format, FormatOption, PeerOption, SaveOption, subscribe
from echomesh.cli.session import (
    SERVER,
    CaOption,
    ClientOption,
    Interrupt,
    Login,
    PasswordFileOption,
    ServerOption,
    TlsOption,
)

if TYPE_CHECKING:
    from echomesh.mesh.client import Lost, Received, Session, Subscription

_NAMED = ("now", "acknowledged", "earliest", "last")


def _start(text: str) -> Any:
    """A name, an offset, or a time."""
    if text in _NAMED:
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromtimestamp(moment(text) / 1e9, UTC)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text!r} is none of {', '.join(_NAMED)}, no offset and no time: 2026-07-01T12:00:00Z, or 15m for that ago"
        ) from None


def sub(
    filters: Annotated[
        list[str], typer.Argument(metavar="FILTER", help="Topics, or filters with * and **.", show_default=False)
    ],
    start: Annotated[
        Any,
        typer.Option(
            parser=_start,
            metavar="START",
            help=f"{', '.join(_NAMED)}, an offset, or a time: 15m ago, 2026-07-01T12:00:00Z. Without it, after what "
            "this client acknowledged before, else now.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Share the events with others of this group.", show_default=False),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Lines of JSON, with all attributes.")] = False,
    peer: PeerOption = False,
    format: FormatOption = Format.TEXT,
    to: SaveOption = None,
    server: ServerOption = SERVER,
    client: ClientOption = None,
    password_file: PasswordFileOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
    environment: EnvironmentOption = "TST",
) -> None:
    """Print events as they come, until Ctrl-C, and acknowledge them.

    With --client or --group the server remembers how far it was, and the next time it goes on there. With --peer there
    is no server: messages come straight from the processes of this machine that publish them.
    """
    if peer:
        subscribe(filters, Format.JSON if as_json else format, to, count)
        return
    login = Login(server, client, password_file, tls, ca, environment)
    keep = client is not None or group is not None
    login.run(lambda session: _subscribe(session, filters, start, group, count, as_json, keep))


async def _subscribe(
    session: Session, filters: list[str], start: Any, group: str | None, count: int | None, as_json: bool, keep: bool
) -> None:
    subscription = await session.subscribe(*filters, start=start, group=group, ack="manual", on_lost=_tell)
    try:
        await Interrupt().before(_print(subscription, count, as_json))
    finally:
        if not keep:
            await subscription.unsubscribe()


async def _print(subscription: Subscription, count: int | None, as_json: bool) -> None:
    left = sys.maxsize if count is None else count
    write = _json_line if as_json else _line
    async for event in subscription:
        sys.stdout.buffer.write(write(event))
        sys.stdout.buffer.flush()
        await event.ack()
        left -= 1
        if not left:
            return


def _json_line(event: Received) -> bytes:
    head = f'{{"topic":{json.dumps(event.topic)},"offset":{event.offset},"event":'
    return head.encode() + event.event.to_json() + b"}\n"


def _line(event: Received) -> bytes:
    return f"{event.topic} {event.offset}: {event.type} {_data_text(event)}\n".encode(errors="replace")


def _data_text(event: Received) -> str:
    data = event.data
    if isinstance(data, bytes | memoryview):
        return f"{len(data)} bytes"
    text = data if isinstance(data, str) else "" if data is None else json.dumps(data, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


def _tell(lost: Lost) -> None:
    warn(f"lost: {lost.topic} {lost.first} to {lost.last} can't be had any more", style="yellow")
