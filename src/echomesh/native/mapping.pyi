import os

class Mapping:
    """A file in memory, shared with every process that maps it."""

    path: str
    size: int
    writable: bool
    identity: tuple[int, int]

    @staticmethod
    def create(path: str | os.PathLike[str], size: int) -> Mapping: ...
    @staticmethod
    def open(path: str | os.PathLike[str], *, writable: bool = True) -> Mapping: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def translated(code: int, path: str, size: int | None = None) -> Exception: ...
