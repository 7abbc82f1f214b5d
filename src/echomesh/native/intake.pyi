from typing import Any

from echomesh.native.counters import Counter
from echomesh.native.ring import Ring

class Source:
    """One ring that is read, and the streams that come over it."""

    ring: Ring
    peer: Any

class Intake:
    """All rings that are read."""

    inlets: dict[str, Any]
    reading: Any
    changed: bool
    def __init__(self, frames: Counter | None) -> None: ...
    def read(self, inlet: Any) -> int: ...
    def read_ready(self) -> int: ...
    def damaged(self, inlet: Any, why: object) -> None: ...
