from collections.abc import Iterable
from typing import Any

NAMES: tuple[str, ...]

class Columns:
    """Rows that are added one by one, up to a number of them and of bytes, and taken all at once."""

    rows: int
    max_rows: int
    max_bytes: int
    first: int

    def __init__(
        self, topic: bytes, wanted: Iterable[int], max_bytes: int, max_rows: int, *ignored: object
    ) -> None: ...
    @property
    def full(self) -> bool: ...
    def turn(self, topic: bytes) -> None: ...
    def take(self) -> tuple[int, dict[int, Any]]: ...
