from collections.abc import Callable, Sequence
from typing import TypeVar

_Range = TypeVar("_Range", bound=tuple[str, int, int])

NO_RECORDS: bytes

class Files:
    """The files that are open to read events from: no more than so many, and none for long that nobody reads."""

    count: int

    def __init__(self, limit: int) -> None: ...
    def close_idle(self, known: dict[str, Spot]) -> None: ...

class Spot:
    """Where a file has a record of a topic; what follows it may be there too."""

    position: int
    first: int
    shift: int
    time_ns: int
    named: bytes
    good_until: float

    def __init__(
        self, position: int, first: int, shift: int, time_ns: int, named: bytes, good_until: float = ...
    ) -> None: ...

def told(
    ranges: Sequence[_Range],
    known: dict[str, Spot],
    now: float,
    near: int,
    pieces: list[bytes],
    look: Callable[[int, _Range], None],
    files: Files,
    room: int,
    renewed: float,
) -> int: ...
