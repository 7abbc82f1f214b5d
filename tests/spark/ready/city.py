"""A small city whose sensors and shops publish for two minutes: with late, duplicate, invalid and huge events."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from echomesh.events import Event
from echomesh.log import LogOptions, LogReader, TopicLog
from tests.spark.support import START_NS, Clock

MINUTES_S = 120
HUGE = 600_000


@dataclass(frozen=True)
class Seen:
    """An event as the log has it."""

    topic: str
    offset: int
    at_us: int  # when it was appended
    event: Event

    @property
    def time_us(self) -> int | None:
        """The event's own time."""
        time = self.event.time
        return None if time is None else micros(time)

    @property
    def happened_us(self) -> int:
        """Its own time, unless that is missing or lies in the future."""
        return self.at_us if self.time_us is None else min(self.time_us, self.at_us)

    @property
    def data(self) -> bytes:
        """What it carries, as bytes."""
        payload = self.event.payload
        return b"" if payload is None else payload if isinstance(payload, bytes) else payload.encode()


def micros(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class City:
    """Writes its events to a log, with append times of its own, and remembers them."""

    def __init__(self, data: Path, seed: int = 1) -> None:
        self.data = data
        self.seen: list[Seen] = []
        self.offsets: Counter[str] = Counter()
        self.known: set[tuple[str, str, str]] = set()
        self._chance = random.Random(seed)
        self._clock = Clock()

    def live(self, events: int = 700) -> None:
        """Two minutes; then, a minute later, one event that tells how late it is."""
        with TopicLog(self.data, LogOptions(clock=self._clock, parquet_after_s=None)) as log:
            for number in range(events):
                second = number * MINUTES_S / events
                self._clock.to(second)
                topic, event = self._next(number, second)
                self._append(log, topic, event)
                if number % 20 == 7:
                    self._append(log, topic, event)  # a client that got no answer
            self._clock.to(MINUTES_S + 60)
            self._append(log, "city/clock", Event(type="tick", source="/city", id="end", time=self._time(0.0)))

    def _append(self, log: TopicLog, topic: str, event: Event) -> None:
        log.append_many(topic, [event])
        key = (topic, event.source, event.id)
        if key not in self.known:
            self.known.add(key)
            self.seen.append(Seen(topic, self.offsets[topic], self._clock.now_ns // 1000, event))
            self.offsets[topic] += 1

    def _time(self, ago_s: float) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=round(self._clock.now_ns / 1000 - ago_s * 1e6))

    def _next(self, number: int, second: float) -> tuple[str, Event]:
        chance = self._chance
        ago_s = chance.choice((0.01, 0.02, 0.05, 0.05, 0.4, 3.0, 17.0, 70.0, -400.0))
        time = None if number % 31 == 0 else self._time(ago_s)
        about: dict[str, Any] = {"source": "/city", "id": f"e{number}", "time": time}
        if number % 5 == 0:
            customer = f"c{chance.randrange(6)}"
            data: Any = {"customer": customer, "amount": chance.randrange(100)}
            if number % 50 == 0:
                data["note"] = "x" * HUGE
            return "shops/orders", Event(type="order", data=data, **about)
        sensor = chance.randrange(8)
        celsius = chance.gauss(20, 3) + (15 if 40 < second < 55 and sensor % 2 else 0)
        data = {"celsius": celsius}
        if number % 17 == 0:
            data = chance.choice((b"\xff\xfe no JSON", b'{"celsius": "warm"}', b"", None))
        if sensor == 6 and 30 < second < 80:
            sensor = 7  # silent for a while
        district = "north" if sensor < 4 else "south"
        kind = "application/json" if isinstance(data, dict) else "application/octet-stream"
        event = Event(type="reading", subject=f"s{sensor}", data=data, datacontenttype=kind, **about)
        return f"sensors/{district}", event


def events_in(data: Path, prefix: str) -> dict[str, list[Event]]:
    """What is in the topics that begin so, by topic."""
    with LogReader(data) as log:
        names = sorted(topic.name for topic in log.topics() if topic.name.startswith(prefix))
        return {name: list(_events(log, name)) for name in names}


def _events(log: LogReader, topic: str) -> Iterator[Event]:
    reader = log.topic(topic)
    for records in reader.follow(reader.earliest, timeout=0):
        yield from (Event.decode(event) for event in records.events())


def start_us() -> int:
    """When the city begins."""
    return START_NS // 1000
