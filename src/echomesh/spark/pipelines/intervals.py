"""Time spans as Spark's users write them: `1 second`, `500 ms`, `2 minutes`."""

from __future__ import annotations

import re
from typing import Final

_SPAN: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_UNITS: Final = {
    1: ("ms", "milli", "millis", "millisecond", "milliseconds"),
    1000: ("s", "sec", "secs", "second", "seconds"),
    60_000: ("m", "min", "mins", "minute", "minutes"),
    3_600_000: ("h", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
}
_MS: Final = {name: ms for ms, names in _UNITS.items() for name in names}


def milliseconds(text: object) -> int:
    """Of `1 second`, `500 ms` or `2 minutes`; `ValueError` says what can be written."""
    found = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[2].lower() not in _MS:
        raise ValueError(f"{text!r} is no time span: write '1 second', '500 ms' or '2 minutes'")
    return round(float(found[1]) * _MS[found[2].lower()])
