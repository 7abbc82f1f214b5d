"""`echomesh log append`: events from the command line, a file or standard input."""

from __future__ import annotations

import mimetypes
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from echomesh.cli.common import JsonOption, state, warn
from echomesh.cli.events_in import Done, attributes_of, event_of, events_of_lines, whole_event
from echomesh.cli.log_common import DataOption, EnvironmentOption, TopicArgument, disk_errors
from echomesh.errors import UsageError
from echomesh.events import Event
from echomesh.log import TopicLog
from echomesh.log.reader import ENVIRONMENT
from echomesh.topics import parse_topic


class Level(StrEnum):
    """How durable a topic is."""

    DISK = "disk"
    OS = "os"
    NONE = "none"


def append(
    topic: TopicArgument,
    data: DataOption,
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE", help="Data of one event; without it, each line of standard input is one."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Data of one event, from a file.", show_default=False)
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Lines are whole events in CloudEvents' JSON format, or those of `cat`.")
    ] = False,
    type: Annotated[str, typer.Option(metavar="TYPE", help="What happened.")] = "message",
    source: Annotated[
        str | None, typer.Option(metavar="URI", help="Where; this host when not given.", show_default=False)
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="ID", help="Of one event; a new one when not given.", show_default=False)
    ] = None,
    subject: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is about.", show_default=False)] = None,
    content_type: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="Of the data. Objects and arrays in JSON are JSON, the rest is text.",
            show_default=False,
        ),
    ] = None,
    extension: Annotated[
        list[str] | None, typer.Option("--extension", "-x", metavar="NAME=VALUE", help="One more attribute.")
    ] = None,
    level: Annotated[
        Level | None, typer.Option(help="Of a new topic: disk, page cache, or memory.", show_default=False)
    ] = None,
    environment: EnvironmentOption = ENVIRONMENT,
    as_json: JsonOption = False,
) -> None:
    """Append events to a topic, and say their offsets once they are on disk. Only one process may write to a log."""
    state.json = as_json
    topic = parse_topic(topic)
    attributes = attributes_of(type, source, subject, extension)
    one = value is not None or file is not None
    if value is not None and file is not None:
        raise UsageError("give the data as VALUE or by --file, not both")
    if events and one:
        raise UsageError("--events takes lines of standard input: give neither VALUE nor --file")
    if id is not None and not one:
        raise UsageError("--id is for one event: give VALUE or --file")
    if id is not None:
        attributes["id"] = id
    with disk_errors():
        chunks: Iterator[list[Event]]
        if file is not None:
            kind = content_type or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            chunks = iter([[Event(**attributes, data=file.read_bytes(), datacontenttype=kind)]])
        elif value is not None:
            chunks = iter([[event_of(value, content_type, attributes)]])
        elif events:
            chunks = _standard_input(whole_event)
        else:
            chunks = _standard_input(lambda line: event_of(line.decode(), content_type, attributes))
        if not (data / "log-id").exists():
            warn(f"new log in {data}")
        with TopicLog(data) as log:
            if level is not None:
                log.create(topic, level=level.value, environment=environment)
            done = _append(log, topic, environment, chunks)
    done.report(topic, as_json, "nothing to append")


def _standard_input(parse: Callable[[bytes], Event]) -> Iterator[list[Event]]:
    return events_of_lines(sys.stdin.fileno(), parse, "standard input", "appended")


def _append(log: TopicLog, topic: str, environment: str, chunks: Iterator[list[Event]]) -> Done:
    done = Done()
    for chunk in chunks:
        done.add(log.append_many(topic, chunk, environment=environment))
    return done
