"""Events from the command line: of a value, of lines of input, and what became of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from echomesh.cli.common import say, say_json
from echomesh.cli.text import plural
from echomesh.errors import BadEvent, UsageError
from echomesh.events import Event

_READ_BYTES = 1 << 20
_JSON = "application/json"


def attributes_of(type: str, source: str | None, subject: str | None, extension: list[str] | None) -> dict[str, Any]:
    """What all events of a command share; the source is this host unless it is given."""
    return {
        "type": type,
        "source": source or f"//{socket.gethostname()}",
        "subject": subject,
        "extensions": dict(map(_pair, extension or [])),
    }


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no extension: write NAME=VALUE")
    return name, value


def event_of(text: str, content_type: str | None, attributes: dict[str, Any]) -> Event:
    """An event with this data: objects and arrays in JSON are JSON, the rest is text, unless its type is given."""
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


def whole_event(line: bytes) -> Event:
    """The event of a line that is one in CloudEvents' JSON format, or what `log cat` and `sub --json` print."""
    with suppress(msgspec.MsgspecError):
        inner = bytes(_decode_envelope(line).event)
        # An attribute of this name would be no object.
        if inner.startswith(b"{"):
            return Event.from_json(inner)
    return Event.from_json(line)


def events_of_lines(handle: int, parse: Callable[[bytes], Event], where: str, done: str) -> Iterator[list[Event]]:
    """The events of lines of a file, as many together as come together; `where` and `done` are for the error."""
    rest, number = b"", 0
    while True:
        chunk = os.read(handle, _READ_BYTES)
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
                raise UsageError(f"line {number} of {where}: {error}; what was before it is {done}") from None
        if found:
            yield found
        if not chunk:
            return


class Done:
    """Which offsets the events got."""

    def __init__(self) -> None:
        self.events = 0
        self.duplicates = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, offsets: list[int]) -> None:
        """Counts."""
        for offset in offsets:
            self.first = offset if self.first is None else self.first
            # The event was there already: the log says where.
            self.duplicates += self.last is not None and offset <= self.last
            self.last = offset if self.last is None else max(self.last, offset)
        self.events += len(offsets)

    def report(self, topic: str, as_json: bool, nothing: str) -> None:
        """Says it."""
        if as_json:
            told = {"topic": topic, "events": self.events, "duplicates": self.duplicates}
            say_json({**told, "first": self.first, "last": self.last})
        elif not self.events:
            say(f"{topic}: {nothing}")
        elif self.events == 1:
            say(f"{topic}: offset {self.first}")
        else:
            again = f", {plural(self.duplicates, 'duplicate')} among them" if self.duplicates else ""
            say(f"{topic}: {plural(self.events, 'event')}{again}, offsets {self.first} to {self.last}")
