"""`echomesh participant` and `echomesh participants`: the one of this machine, and all that it knows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from echomesh.cli.common import DirOption, JsonOption, out, say, say_json, state
from echomesh.cli.text import plural
from echomesh.data.config import DataOptions

if TYPE_CHECKING:
    from echomesh.data.messages import LookInit, Seen
    from echomesh.data.participant import Participant

DomainOption = Annotated[
    str | None,
    typer.Option(help="Only participants of the same domain talk.", envvar="ECHOMESH_DOMAIN", show_default="default"),
]


def data_options(domain: str | None, directory: Path | None, **given: Any) -> DataOptions:
    """The options of the data plane: what the command line gives, else the environment, else the usual."""
    chosen = {"domain": domain, "directory": directory, **given}
    return DataOptions(**{name: value for name, value in chosen.items() if value is not None})


def participant(
    domain: DomainOption = None,
    directory: DirOption = None,
    beacon_port: Annotated[
        int | None, typer.Option(envvar="ECHOMESH_BEACON_PORT", help="UDP port of the beacons.", show_default="7331")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            envvar="ECHOMESH_PARTICIPANT_PORT", help="Port of 127.0.0.1 for this machine.", show_default="7332"
        ),
    ] = None,
    link_port: Annotated[
        int | None,
        typer.Option(envvar="ECHOMESH_LINK_PORT", help="Port for other participants.", show_default="any free one"),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="Send it beacons too; may be given several times."),
    ] = None,
    group: Annotated[
        str | None, typer.Option(envvar="ECHOMESH_GROUP", help="Multicast group; '' for none.", show_default=False)
    ] = None,
    broadcast: Annotated[
        bool | None, typer.Option(help="Whether beacons are broadcast on every interface.", show_default="yes")
    ] = None,
) -> None:
    """Run the participant of this machine until it is stopped.

    Publishers and subscribers start one by themselves, which ends with the last of them. Run one by hand to have it
    stay, or to give it static peers.
    """
    from echomesh.data.serving import serve

    options = data_options(
        domain,
        directory,
        beacon_port=beacon_port,
        participant_port=port,
        link_port=link_port,
        peers=tuple(peer) if peer else None,
        group=group,
        broadcast=broadcast,
    )
    serve(options, _ready, service=True)
    say("The participant stopped.")


def _ready(participant: Participant) -> None:
    hello = participant.core.hello
    say(
        f"participant {hello.id.hex()[:8]} of domain {hello.domain}: beacons on UDP {participant.options.beacon_port},"
        f" participants on TCP {hello.port}, processes on 127.0.0.1:{participant.port}. Ctrl-C stops it."
    )


def participants(
    domain: DomainOption = None,
    directory: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the participants that the one of this machine knows, with their publishers and subscribers."""
    from echomesh.data.looking import look

    state.json = as_json
    found = look(data_options(domain, directory))
    if as_json:
        say_json(facts(found))
    else:
        out().print(_table(found))


def facts(found: LookInit) -> dict[str, Any]:
    """What `--json` prints; the first participant is the one that was asked."""

    def ends(listed: list[Any]) -> list[dict[str, Any]]:
        return [{"id": end.id.hex(), "topic": end.topic, "port": end.port} for end in listed]

    return {
        "participants": [
            {
                "id": seen.hello.id.hex(),
                "domain": seen.hello.domain,
                "ip": seen.ip,
                "port": seen.hello.port,
                "started": seen.hello.started / 1e9,
                "silent_s": seen.silent_ms / 1000,
                "linked": seen.linked,
                "publishers": ends(seen.publishers),
                "subscribers": ends(seen.subscribers),
            }
            for seen in found.participants
        ],
        "counters": found.counters,
    }


def _table(found: LookInit) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("participant", "address", "up", "state", "publishes", "subscribes to"):
        table.add_column(title, overflow="fold")
    for number, seen in enumerate(found.participants):
        words, style = ("this machine", "green") if number == 0 else _state(seen)
        table.add_row(
            seen.hello.id.hex()[:8],
            f"{seen.ip}:{seen.hello.port}",
            _age(time.time() - seen.hello.started / 1e9),
            Text(words, style=style),
            _topics(seen.publishers),
            _topics(seen.subscribers),
        )
    return table


def _state(seen: Seen) -> tuple[str, str]:
    if seen.linked:
        return "linked", "green"
    return f"heard {seen.silent_ms / 1000:.1f} s ago", "yellow"


def _topics(ends: list[Any]) -> str:
    counts: dict[str, int] = {}
    for end in ends:
        counts[end.topic] = counts.get(end.topic, 0) + 1
    return "\n".join(topic if number == 1 else f"{topic} ×{number}" for topic, number in sorted(counts.items()))


def _age(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return plural(int(seconds // size), unit)
    return plural(max(0, int(seconds)), "second")
