"""The text of server-sent events."""

from __future__ import annotations

from typing import Final

import msgspec

from echomesh.events import Event, formats


def block(data: bytes, token: str = "", event: str = "") -> bytes:
    """One event of this kind (`message` where none is said), and the place behind it. Without data a browser takes only
    the place from it.
    """
    lines = []
    if token:
        lines.append(b"id: " + token.encode() + b"\n")
    if event:
        lines.append(b"event: " + event.encode() + b"\n")
    if data:
        lines.append(b"data: " + data + b"\n")
    return b"".join((*lines, b"\n"))


def notice(event: str, token: str = "", **facts: object) -> bytes:
    """An event of the server's own."""
    return block(msgspec.json.encode(facts), token, event)


def lost(topic: str, first: int, behind: int, reason: str, token: str = "") -> bytes:
    """Tells that the events [first, behind) can't be had any more."""
    facts = {"topic": topic, "from": first, "to": behind, "reason": reason}
    return block(msgspec.json.encode(facts), token, "lost")


class Rendered:
    """Events that were rendered lately: readers of one topic are mostly at the same place."""

    KEPT_BYTES: Final = 1 << 20

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, int, bool], bytes] = {}
        self._bytes = 0

    def get(self, environment: str, topic: str, offset: int, position: bool, stored: bytes) -> bytes:
        """The event in the JSON format, as `render` has it."""
        key = (environment, topic, offset, position)
        data = self._kept.get(key)
        if data is None:
            data = render(stored, topic, offset if position else None)
            self._kept[key] = data
            self._bytes += len(data)
            while self._bytes > self.KEPT_BYTES:
                self._bytes -= len(self._kept.pop(next(iter(self._kept))))
        return data


def render(stored: bytes, topic: str, offset: int | None) -> bytes:
    """An event in the JSON format, on one line; with an offset, its place is added as extension attributes."""
    event = Event.decode(stored)
    if offset is None:
        return event.to_json()
    return formats.to_json({**event.attributes(), "meshtopic": topic, "meshoffset": str(offset)}, event.payload)
