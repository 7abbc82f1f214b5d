from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Range = TypeVar("_Range", bound=tuple[str, int, int])

def grown(
    begin: dict[str, int], bounds: dict[str, tuple[int, int]], make: type[_Range]
) -> tuple[list[_Range], int] | None: ...
def rows_of(ranges: Sequence[tuple[str, int, int]]) -> int: ...
def guessed(ranges: list[_Range], seen: dict[str, Any], usual: float, few: int) -> tuple[list[int], list[_Range]]: ...
def told(
    ranges: Sequence[_Range],
    known: dict[str, Any],
    now: float,
    near: int,
    pieces: list[bytes],
    look: Callable[[int, _Range], None],
) -> int: ...
