"""Where a task's events stand, as the reader inside the JVM is told: one string of bytes, which Place.java reads.

There may be thousands of places in a partition. As objects they would take longer to be made, pickled and sent to the
task than their events take to be read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from echomesh.log.place import Place

_NUMBERS: Final = struct.Struct("<iqqqqqqi")


class Spot(NamedTuple):
    """Where a file has a record of a topic; what follows it may be there too."""

    position: int
    first: int
    shift: int
    time_ns: int
    size: int
    named: bytes  # topic, file and how that begins, in so many bytes


def spot_of(topic: str, place: Place) -> Spot:
    """The same of a place, or of none that is known."""
    return _spot(topic, place.path or "", place.head, place.position, place.first, place.shift, place.time_ns)


def spot_at_server(topic: str) -> Spot:
    """Of a topic that is fetched."""
    return _spot(topic, "", b"", 0, 0, 0, -1)


def _spot(topic: str, path: str, head: bytes, position: int, first: int, shift: int, time_ns: int) -> Spot:
    named = b"".join(len(part).to_bytes(4, "little") + part for part in (topic.encode(), path.encode(), head))
    return Spot(position, first, shift, time_ns, len(named), named)


class Places:
    """Of the ranges of a task, each with its number among them."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.known = 0
        self.unknown = 0  # events that Python has to look for

    def add(self, number: int, start: int, until: int, spot: Spot, *, known: bool = True) -> None:
        """Some offsets of a range."""
        position, first, shift, time_ns, size, named = spot
        self.pieces += (_NUMBERS.pack(number, start, until, position, first, shift, time_ns, size), named)
        if known:
            self.known += until - start
        else:
            self.unknown += until - start

    def packed(self) -> bytes:
        """All of them."""
        return b"".join(self.pieces)
