"""Where a task's events stand, as the reader inside the JVM is told: one string of bytes, which Place.java reads.

There may be thousands of places in a partition. As objects they would take longer to be made, pickled and sent to the
task than their events take to be read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from echomesh.native.spark_places import NO_RECORDS, Spot

if TYPE_CHECKING:
    from echomesh.log.place import Place

_NUMBERS: Final = struct.Struct("<iqqqqqqi")


def spot_of(topic: str, place: Place, good_until: float = 0.0) -> Spot:
    """The same of a place, or of none that is known."""
    named = _named(topic, place.path or "", place.head)
    return Spot(place.position, place.first, place.shift, place.time_ns, named, good_until)


def spot_at_server(topic: str) -> Spot:
    """Of a topic that is fetched."""
    return Spot(0, 0, 0, -1, _named(topic, "", b""))


def _named(topic: str, path: str, head: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "little") + part for part in (topic.encode(), path.encode(), head))


class Places:
    """Of the ranges of a task, each with its number among them."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.known = 0
        self.unknown = 0  # events that Python has to look for

    def add(self, number: int, start: int, until: int, spot: Spot, *, known: bool = True) -> None:
        """Some offsets of a range."""
        numbers = spot.position, spot.first, spot.shift, spot.time_ns, len(spot.named)
        self.pieces += (_NUMBERS.pack(number, start, until, *numbers), spot.named, NO_RECORDS)
        if known:
            self.known += until - start
        else:
            self.unknown += until - start

    def packed(self) -> bytes:
        """All of them."""
        return b"".join(self.pieces)
