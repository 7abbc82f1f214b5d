from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Range = TypeVar("_Range", bound=tuple[str, int, int])

def grown(
    begin: dict[str, int], bounds: dict[str, tuple[int, int]], make: type[_Range]
) -> tuple[list[_Range], int] | None: ...
def filled(ranges: list[_Range]) -> list[_Range]: ...
def ends(ranges: list[_Range], others: dict[str, int]) -> dict[str, int]: ...
def packed(
    ranges: list[_Range], sizes: list[int], tasks: int, make: Callable[[str, int, int], _Range]
) -> list[list[_Range]]: ...
def rows_of(ranges: Sequence[tuple[str, int, int]]) -> int: ...
def guessed(
    ranges: list[_Range], seen: dict[str, Any], usual: float, few: int, enough: bool
) -> tuple[list[int], list[_Range]]: ...
def told(
    ranges: Sequence[_Range],
    known: dict[str, Any],
    now: float,
    near: int,
    pieces: list[bytes],
    look: Callable[[int, _Range], None],
) -> int: ...
