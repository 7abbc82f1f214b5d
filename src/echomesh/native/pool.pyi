import os
from collections.abc import Callable

from echomesh.native.mapping import Mapping

class Segment:
    """One file of a pool: slots of one size."""

    number: int
    slot_bytes: int
    used: int
    mapping: Mapping

class Lease:
    """A slot of the pool for one message; it is free again when nobody has the lease any more."""

    token: int
    offset: int
    length: int
    sealed: bool
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def seal(self, length: int) -> None: ...

class Pool:
    """The slots of one publisher, in numbered files of a directory."""

    limit: int
    total: int
    used: int
    on_retired: Callable[[int], object] | None
    def __init__(self, directory: str | os.PathLike[str], number: Callable[[], int], limit: int) -> None: ...
    def lease(self, length: int) -> Lease | None: ...
    def retire(self, but: int = 0) -> None: ...
    def close(self) -> None: ...
