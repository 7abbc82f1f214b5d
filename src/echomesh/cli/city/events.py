"""A small city: what its sensors and shops publish, some of it late, twice, or nonsense."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from echomesh.events import Event

Kind = Literal["good", "late", "invalid", "duplicate"]

DISTRICTS: Final = ("north", "east", "south", "west", "harbour")
SHOPS: Final = ("bakery", "books", "bikes", "flowers")
DEVICES: Final = 3
HOT: Final = "harbour-2"
"""The thermometer that gets too hot twice."""
QUIET: Final = "west-1"
"""The one that measures the air and falls silent for a while."""
TOPICS: Final = "city/**"
_LATE_S: Final = (20.0, 60.0)
_SHARES: Final[Mapping[Kind, float]] = {"late": 0.02, "invalid": 0.02, "duplicate": 0.03}
_HOT_SPELLS: Final = ((0.15, 0.3), (0.7, 0.85))
_SILENCE: Final = (0.25, 0.6)

SCHEMAS: Final = """\
[temperature]
topics = "city/*/temperature"
file = "temperature.json"

[air]
topics = "city/*/air"
file = "air.json"

[order]
topics = "city/shops/*"
file = "order.json"
"""
_PAYLOADS: Final[Mapping[str, Mapping[str, Any]]] = {
    "temperature.json": {"celsius": {"type": "number"}},
    "air.json": {"pm25": {"type": "integer", "minimum": 0}},
    "order.json": {"amount": {"type": "number", "minimum": 0}, "items": {"type": "integer", "minimum": 1}},
}
RULES: Final = """\
[hot]
kind = "threshold"
topics = "city/*/temperature"
field = "$.celsius"
above = 35

[quiet]
kind = "silence"
topics = "city/*/air"
after = "6 seconds"
"""


def write_settings(directory: Path) -> tuple[Path, Path]:
    """The schemas of the payloads and the rules of the alerts, as files: their paths."""
    schemas, rules = directory / "schemas.toml", directory / "rules.toml"
    schemas.write_text(SCHEMAS)
    rules.write_text(RULES)
    for name, fields in _PAYLOADS.items():
        schema = {"type": "object", "required": list(fields), "properties": fields}
        (directory / name).write_text(json.dumps(schema, indent=2))
    return schemas, rules


@dataclass(frozen=True)
class Made:
    """An event of the city, and what is special about it."""

    topic: str
    event: Event
    kind: Kind


@dataclass
class City:
    """Makes events, the same ones for the same seed; `part` is how much of the time has passed."""

    seed: int = 7
    random: random.Random = field(init=False)
    count: int = 0
    recent: deque[Made] = field(default_factory=lambda: deque(maxlen=500))

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def some(self, number: int, now: datetime, part: float) -> list[Made]:
        """What happens in this moment."""
        return [self._one(now, part) for _ in range(number)]

    def _one(self, now: datetime, part: float) -> Made:
        chosen = self.random.random()
        for kind, share in _SHARES.items():
            if chosen < share:
                return self._special(kind, now, part)
            chosen -= share
        return self._made(now, part, "good")

    def _special(self, kind: Kind, now: datetime, part: float) -> Made:
        if kind == "duplicate":
            if not self.recent:
                return self._made(now, part, "good")
            again = self.random.choice(self.recent)
            return Made(again.topic, again.event, "duplicate")
        if kind == "late":
            now -= timedelta(seconds=self.random.uniform(*_LATE_S))
        return self._made(now, part, kind)

    def _made(self, now: datetime, part: float, kind: Kind) -> Made:
        if self.random.random() < 0.3:
            topic, subject, data = self._order()
        else:
            topic, subject, data = self._measured(part)
        if kind == "invalid":
            data = self.random.choice(
                (b"{no json", b"\xff\x00", {"celsius": "warm", "pm25": "bad", "amount": "much"}, {}, [1, 2])
            )
        self.count += 1
        event = Event(
            type="city.observed",
            source=f"/city/{subject}",
            id=str(self.count),
            subject=subject,
            time=now,
            datacontenttype="application/json",
            data=data,
        )
        made = Made(topic, event, kind)
        self.recent.append(made)
        return made

    def _order(self) -> tuple[str, str, Any]:
        shop = self.random.choice(SHOPS)
        items = self.random.randint(1, 6)
        return f"city/shops/{shop}", shop, {"amount": round(self.random.uniform(3, 60) * items, 2), "items": items}

    def _measured(self, part: float) -> tuple[str, str, Any]:
        district, device = self.random.choice(DISTRICTS), self.random.randint(1, DEVICES)
        subject = f"{district}-{device}"
        if self.random.random() < 0.5 and not (subject == QUIET and _within(part, _SILENCE)):
            return f"city/{district}/air", subject, {"pm25": int(self.random.gammavariate(4, 3))}
        hot = subject == HOT and any(_within(part, spell) for spell in _HOT_SPELLS)
        degrees = self.random.gauss(39.0 if hot else 21.0, 0.8)
        return f"city/{district}/temperature", subject, {"celsius": round(degrees, 2)}


def _within(part: float, span: tuple[float, float]) -> bool:
    return span[0] <= part < span[1]
