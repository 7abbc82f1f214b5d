from collections.abc import Callable, Iterable

from typing_extensions import Buffer

from echomesh.native.log_record import Records
from echomesh.native.log_window import Window

def count_rows(rows: Buffer) -> int: ...
def check_rows(rows: Buffer, first: int, topics: int, judge: Callable[[bytes], object]) -> int: ...
def as_records(rows: Buffer, shift: int, time_ns: int, search: bool) -> tuple[bytes, int]: ...
def mark_rows(records: Records, position: int, mark: int, step: int, marks: list[tuple[int, int]]) -> int: ...
def mark_block(rows: Buffer, number: int, position: int, mark: int, step: int, marks: list[tuple[int, int]]) -> int: ...

class Layout:
    """The rows that a commit has for one topic."""

    count: int
    bytes: int
    def __init__(self, limit: int, window: Window | None, now: int) -> None: ...
    @property
    def pieces(self) -> list[tuple[int, int]]: ...

def lay_out(records: Records, rows: int, layouts: list[Layout]) -> None: ...

class Cursor:
    """Where the next row of a topic goes."""

    number: int
    size: int
    def __init__(self, number: int, runs: Iterable[tuple[int, int, int, int]]) -> None: ...
    def take(self) -> tuple[int, int, int, bytes]: ...

def copy_rows(
    records: Records,
    rows: int,
    cursors: list[Cursor],
    time_ns: int,
    at_once: int,
    step: int,
    marks: list[tuple[int, int, int, int]],
) -> list[tuple[int, int, int, bytes]]: ...
