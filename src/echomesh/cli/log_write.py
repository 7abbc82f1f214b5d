"""`echomesh log append`: events from the command line, a file or standard input."""

from __future__ import annotations

import mimetypes
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from echomesh.cli.common import JsonOption, say, say_json, state, warn
from echomesh.cli.log_common import DataOption, EnvironmentOption, TopicArgument, disk_errors
from echomesh.cli.text import plural
from echomesh.errors import BadEvent, UsageError
from echomesh.events import Event
from echomesh.log import TopicLog
from echomesh.log.reader import ENVIRONMENT
from echomesh.topics import parse_topic

_READ_BYTES = 1 << 20
_JSON = "application/json"


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
    attributes: dict[str, Any] = {
        "type": type,
        "source": source or f"//{socket.gethostname()}",
        "subject": subject,
        "extensions": dict(map(_pair, extension or [])),
    }
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
            chunks = iter([[_event(value, content_type, attributes)]])
        elif events:
            chunks = _lines(_whole_event)
        else:
            chunks = _lines(lambda line: _event(line.decode(), content_type, attributes))
        if not (data / "log-id").exists():
            warn(f"new log in {data}")
        with TopicLog(data) as log:
            if level is not None:
                log.create(topic, level=level.value, environment=environment)
            done = _append(log, topic, environment, chunks)
    _report(topic, done, as_json)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no extension: write NAME=VALUE")
    return name, value


def _event(text: str, content_type: str | None, attributes: dict[str, Any]) -> Event:
    kind = content_type
    if kind is None:
        kind = _JSON if text.lstrip()[:1] in ("{", "[") and _is_json(text) else "text/plain"
    return Event(**attributes, data=text, datacontenttype=kind)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


class _Envelope(msgspec.Struct):
    event: msgspec.Raw


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def _whole_event(line: bytes) -> Event:
    with suppress(msgspec.MsgspecError):
        inner = bytes(_decode_envelope(line).event)
        # An attribute of this name would be no object.
        if inner.startswith(b"{"):
            return Event.from_json(inner)
    return Event.from_json(line)


def _lines(parse: Any) -> Iterator[list[Event]]:
    """The events of standard input, as many together as come together."""
    rest, number = b"", 0
    while True:
        chunk = os.read(sys.stdin.fileno(), _READ_BYTES)
        *whole, rest = (rest + chunk).split(b"\n") if chunk else [rest, b""]
        found: list[Event] = []
        for line in whole:
            number += 1
            if not line.strip():
                continue
            try:
                found.append(parse(line.rstrip(b"\r")))
            except (BadEvent, UnicodeDecodeError) as error:
                if found:
                    yield found
                raise UsageError(f"line {number} of standard input: {error}; what was before it is appended") from None
        if found:
            yield found
        if not chunk:
            return


class _Done:
    """What was appended."""

    def __init__(self) -> None:
        self.events = 0
        self.duplicates = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, offsets: list[int]) -> None:
        for offset in offsets:
            self.first = offset if self.first is None else self.first
            # The event was there already: the log says where.
            self.duplicates += self.last is not None and offset <= self.last
            self.last = offset if self.last is None else max(self.last, offset)
        self.events += len(offsets)


def _append(log: TopicLog, topic: str, environment: str, chunks: Iterator[list[Event]]) -> _Done:
    done = _Done()
    for chunk in chunks:
        done.add(log.append_many(topic, chunk, environment=environment))
    return done


def _report(topic: str, done: _Done, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "topic": topic,
                "events": done.events,
                "duplicates": done.duplicates,
                "first": done.first,
                "last": done.last,
            }
        )
    elif not done.events:
        say(f"{topic}: nothing to append")
    elif done.events == 1:
        say(f"{topic}: offset {done.first}")
    else:
        again = f", {plural(done.duplicates, 'duplicate')} among them" if done.duplicates else ""
        say(f"{topic}: {plural(done.events, 'event')}{again}, offsets {done.first} to {done.last}")
