"""What the clients of a server say of their part in a measurement. Times are of `time.perf_counter`, one for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Ready = Callable[[], None]


@dataclass(frozen=True)
class Published:
    """Events that a client published, each answered, from its first one to the last answer."""

    count: int
    begun: float
    ended: float

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.count / (self.ended - self.begun)


@dataclass(frozen=True)
class Delivered:
    """Events that a client got, all of them right; and when the last one was there."""

    count: int
    ended: float
