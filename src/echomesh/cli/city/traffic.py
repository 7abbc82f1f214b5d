"""Publishes what happens in the city through a session, and keeps account of what was acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from echomesh.cli.city.events import City, Kind, Made
from echomesh.errors import EchomeshError
from echomesh.mesh.client import Session, session

TICK_S: Final = 0.05
_MOST_IN_FLIGHT: Final = 4000


@dataclass
class Account:
    """What the publishers know: nobody else is asked for it."""

    acknowledged: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)
    events: dict[tuple[str, str], Made] = field(default_factory=dict)
    """By source and id, those that were acknowledged at least once."""
    refused: list[str] = field(default_factory=list)
    delays_ms: list[float] = field(default_factory=list)
    """From publish to acknowledgement."""
    by_second: Counter[int] = field(default_factory=Counter)
    """How many were acknowledged in each second."""


class Traffic:
    """So many events a second, until `stop`. While the node is away they wait; the session comes back by itself."""

    def __init__(self, address: str, seconds: float, per_second: float) -> None:
        self.address = address
        self.seconds = seconds
        self.per_second = per_second
        self.account = Account()
        self.began = time.monotonic()
        self._city = City()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    async def run(self) -> None:
        """Publishes for its time, and waits until all is acknowledged."""
        async with session(self.address, client_id="city") as city:
            self.began = due = time.monotonic()
            owed = 0.0
            while (passed := self.elapsed) < self.seconds:
                owed += self.per_second * TICK_S
                if len(self._tasks) < _MOST_IN_FLIGHT:
                    self._publish(city, int(owed), passed / self.seconds)
                owed -= int(owed)
                due = max(due + TICK_S, time.monotonic() - 1.0)
                await asyncio.sleep(due - time.monotonic())
            while self._tasks:
                await asyncio.wait(self._tasks)

    def _publish(self, city: Session, number: int, part: float) -> None:
        for made in self._city.some(number, datetime.now(UTC), part):
            task = asyncio.create_task(self._one(city, made))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self, city: Session, made: Made) -> None:
        account, began = self.account, time.monotonic()
        try:
            await city.publish(made.topic, made.event)
        except EchomeshError as error:
            account.refused.append(str(error))
            return
        ended = time.monotonic()
        account.acknowledged += 1
        account.kinds[made.kind] += 1
        account.events.setdefault((made.event.source, made.event.id), made)
        account.delays_ms.append((ended - began) * 1e3)
        account.by_second[int(ended - self.began)] += 1
