from collections.abc import Callable, Iterable

NAMES: tuple[str, ...]

Column = tuple[str, bool, int, int, int, int]

class RowEncoder:
    """Takes batches of columns, and gives blocks of rows."""

    rows: int
    def __init__(self, new_topic: Callable[[bytes], int], prefix: bytes, source: bytes, type: bytes) -> None: ...
    @property
    def waiting(self) -> int: ...
    def take(self) -> bytes: ...
    def add(self, columns: Iterable[Column], start: int, stop: int, most: int) -> int: ...
