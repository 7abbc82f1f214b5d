"""Time that passes only when nothing is left to do, and the one source of chance of a run."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

Action = Callable[[], None]

EPOCH_NS = 1_700_000_000_000_000_000


class Clock:
    """What is to happen, by its time; `random` decides everything that is left to chance."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.tracing = False
        self.trace: list[str] = []
        self._queue: list[tuple[float, int, Action]] = []
        self._number = 0

    def after(self, delay: float, action: Action) -> None:
        """Does something so many seconds from now; what is due at the same time happens in order."""
        self._number += 1
        heapq.heappush(self._queue, (self.now + delay, self._number, action))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Lets time pass, at most until something has come true; whether it has."""
        end = self.now + seconds
        queue = self._queue
        while not until():
            if not queue or queue[0][0] > end:
                self.now = end
                return until()
            self.now, _, action = heapq.heappop(queue)
            action()
        return True

    def time_ns(self) -> int:
        """The time of day."""
        return EPOCH_NS + int(self.now * 1e9)

    def note(self, who: str, what: str) -> None:
        """Writes down what happened, when somebody wants to know."""
        if self.tracing:
            self.trace.append(f"{self.now:10.4f} {who:12} {what}")

    def between(self, low: float, high: float) -> float:
        """Some number, small ones as likely as large ones of the same ratio."""
        return low * float((high / low) ** self.random.random())

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.random.random() < probability
