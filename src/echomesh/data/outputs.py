"""What a participant's core asks its shell to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from echomesh.data.membership import Close, Dial


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send a beacon to everybody that can be reached."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Send bytes on a connection."""

    connection: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Streamed:
    """How a stream was wired: id and prepare reference at the publisher's end, bind reference at the subscriber's."""

    stream: int
    prepared: int
    bound: int


@dataclass(frozen=True, slots=True)
class Wire:
    """Make a stream from a publisher's nukleus to a subscriber's; with `made` it is there already."""

    reference: int
    publisher: str
    subscriber: str
    made: Streamed | None = None


@dataclass(frozen=True, slots=True)
class Unwire:
    """Nobody needs that stream any more."""

    reference: int


Output: TypeAlias = Broadcast | Send | Dial | Close | Wire | Unwire

__all__ = ["Broadcast", "Close", "Dial", "Output", "Send", "Streamed", "Unwire", "Wire"]
