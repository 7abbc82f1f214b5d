"""Which commands there are, and where. Their modules are loaded when they are wanted: some take long."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import typer

from echomesh.cli.common import examples


class Command(NamedTuple):
    """A command, or a group of them, by the name of its module and its own there."""

    module: str
    name: str
    examples: tuple[str, ...] = ()
    help: str = ""  # of a group; a command has its docstring

    def add_to(self, app: typer.Typer, name: str) -> None:
        """Loads it."""
        found = getattr(importlib.import_module(f"echomesh.cli.{self.module}"), self.name)
        epilog = examples(*self.examples) if self.examples else None
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, help=self.help, epilog=epilog)
        else:
            app.command(name, epilog=epilog)(found)


COMMANDS: Final = {
    "echo": Command(
        "echo",
        "echo",
        (
            "echomesh echo",
            "echomesh echo --name mirror --wait spin",
        ),
    ),
    "ping": Command(
        "ping",
        "ping",
        (
            "echomesh ping --start                      runs an echo meanwhile",
            "echomesh ping mirror --size 4096",
            "echomesh ping --rate 1000 --count 60000    a minute of steady traffic",
            "echomesh ping --json | jq .round_trip_us",
        ),
    ),
    "control": Command(
        "control",
        "control",
        (
            "echomesh control echo capture client",
            "echomesh control echo bind client",
            "echomesh control echo unbind 2 --json",
        ),
        "Send a command to a nukleus and print its response.",
    ),
    "streams": Command(
        "streams",
        "streams",
        (
            "echomesh streams",
            "echomesh streams --watch --interval 0.5",
            "echomesh streams --json | jq '.nuklei[].name'",
        ),
    ),
    "participant": Command(
        "participant",
        "participant",
        (
            "echomesh participant",
            "echomesh participant --peer robot-2.local --peer 10.0.0.7      where broadcasts get lost",
            "echomesh participant --domain lab --beacon-port 7341 --port 7342",
        ),
    ),
    "participants": Command(
        "participant",
        "participants",
        (
            "echomesh participants",
            "echomesh participants --json | jq '.participants[].publishers[].topic'",
        ),
    ),
    "log": Command(
        "log",
        "log",
        (
            "echomesh log ls --data /var/lib/echomesh",
            "echomesh log append orders '{\"id\": 7}' --data ./data",
            "echomesh log cat orders --since 15m --data ./data | jq .event.data",
            "echomesh log tail 'orders/**' --data ./data",
            "ECHOMESH_DATA=./data echomesh log verify",
        ),
        "Read, write and check the topic log in a data directory.",
    ),
    "clients": Command(
        "clients",
        "clients",
        (
            "echomesh clients add shop --publish 'orders/**' --data ./data",
            "echomesh clients ls --data ./data",
            "echomesh clients passwd shop --data ./data",
        ),
        "Who may publish and subscribe to what, in the access file of a server.",
    ),
    "up": Command(
        "up",
        "up",
        (
            "echomesh up --data ./data",
            "echomesh up --listen 0.0.0.0:4889 --access access.toml",
            "echomesh up --config echomesh.toml",
        ),
    ),
    "config": Command(
        "up",
        "config",
        (
            "echomesh config > echomesh.toml",
            "echomesh config --check echomesh.toml",
        ),
    ),
    "pub": Command(
        "pub",
        "pub",
        (
            "echomesh pub orders/created '{\"id\": 7}' --type order.created --source /shop",
            "echomesh pub sensors/7 --count 60 --rate 1          numbers, one a second",
            "journalctl -o json -f | echomesh pub journal",
            "echomesh sub 'orders/**' --json | echomesh pub copies --events --server elsewhere",
            "echomesh pub camera/front --peer --file frame.jpg --every 0.1",
        ),
    ),
    "sub": Command(
        "sub",
        "sub",
        (
            "echomesh sub 'orders/**'",
            "echomesh sub orders --start earliest --count 10 --json | jq .event.data",
            "echomesh sub orders --client billing                goes on where it was",
            "echomesh sub orders --group workers                 shares the events with others",
            "echomesh sub 'camera/*' --peer --to ./frames        saves each as a file",
        ),
    ),
    "record": Command(
        "peer",
        "record",
        (
            "echomesh record 'camera/**' drive.mcap",
            "echomesh record telemetry one.mcap --count 1000",
        ),
    ),
    "replay": Command(
        "peer",
        "replay",
        (
            "echomesh replay drive.mcap",
            "echomesh replay drive.mcap --filter 'camera/*' --speed 2",
        ),
    ),
    "topics": Command(
        "mesh",
        "topics",
        (
            "echomesh topics",
            "echomesh topics 'sensors/**' --server mesh.example --client admin --json",
        ),
    ),
    "bridge": Command(
        "mesh",
        "bridge",
        (
            "echomesh bridge add mesh-2.example --topics 'orders/**'",
            "echomesh bridge ls",
            "echomesh bridge rm mesh-2.example",
        ),
        "Bridge servers, so that each has what is published at the others.",
    ),
    "pipeline": Command(
        "pipeline",
        "pipeline",
        (
            "echomesh pipeline run big_orders.py --data ./data",
            "echomesh pipeline ls --data ./data",
            "echomesh pipeline stop big_orders --data ./data",
        ),
        "Run data pipelines on Spark, and see how they fare.",
    ),
    "table": Command(
        "table",
        "table",
        (
            "echomesh table compact ./data/tables/archive",
            "echomesh table vacuum ./data/tables/archive --older-than 2d",
        ),
        "Keep tables of pipelines in order.",
    ),
    "demo": Command(
        "demo",
        "demo",
    ),
}


def wanted(arguments: Sequence[str]) -> list[str]:
    """The commands that a command line needs to know: the one that it names, none for the version, else all."""
    named = next((word for word in arguments if not word.startswith("-")), None)
    if named in COMMANDS:
        return [named]
    return [] if "--version" in arguments else list(COMMANDS)
