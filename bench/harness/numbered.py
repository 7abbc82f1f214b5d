"""Events that are like no other: made by number, and checked by it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from bench.harness.pairs import MeasurementFailed
from echomesh.events import Event

END = (1 << 64) - 1
"""The number of the event behind the last one of a run."""

_ID = "0" * 16
_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # the same in all processes


def halves(size: int) -> tuple[bytes, bytes]:
    """What stands before and behind the id, 16 hexadecimal digits, in an event of `size` bytes on the wire."""
    filled = 40
    # Twice, since the length of the length of data may change.
    for _ in range(2):
        filled += size - len(_event(filled))
    body = _event(filled)
    if len(body) != size:
        raise ValueError(f"{len(body)} bytes are not {size}")
    head, _, tail = body.partition(_ID.encode())
    return head, tail


def encoded(size: int) -> Callable[[int], bytes]:
    """Makes events of `size` bytes as they are on the wire, each with the id of its number."""
    head, tail = halves(size)
    return lambda number: b"%b%016x%b" % (head, number, tail)


def _event(filled: int) -> bytes:
    return Event(type="order.created", source="/shop/1", id=_ID, time=_TIME, data=b"x" * filled).encode()


class InOrder:
    """Checks that what comes are the events of a run: each of them once, in order, byte for byte."""

    def __init__(self, size: int) -> None:
        self._make = encoded(size)
        self.count = 0

    def check(self, event: bytes) -> bool:
        """Whether the run is over."""
        if event == self._make(self.count):
            self.count += 1
            return False
        if event == self._make(END):
            return True
        raise MeasurementFailed(f"not event {self.count}, but {event[:100]!r} with {len(event)} bytes")
