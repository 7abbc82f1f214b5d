from collections.abc import Callable
from typing import Generic, TypeVar

from typing_extensions import Buffer

_Body = TypeVar("_Body", bound=Buffer)

HELLO: int
END: int
TAIL_STAMP_FROM: int

def stamp(buffer: Buffer, sequence: int) -> None: ...

class Stamper(Generic[_Body]):
    """The messages of one run, one after the other."""

    sent: int
    def __init__(self, body: _Body, seconds: float = 0.0, count: int = 0, *, laps: bool = False) -> None: ...
    def __iter__(self) -> Stamper[_Body]: ...
    def __next__(self) -> _Body: ...
    def fill(self, bodies: list[bytearray]) -> bool: ...
    def laps_ns(self) -> list[int]: ...

class Checker:
    """Counts messages of the right length, stamp and order, and what was wrong with the others."""

    good: int
    bad: int
    lost: int
    ended: bool
    seconds: float
    def __init__(
        self,
        size: int,
        on_hello: Callable[[], object] | None = None,
        on_end: Callable[[], object] | None = None,
    ) -> None: ...
    def check(self, body: Buffer) -> bool: ...
