from typing_extensions import Buffer as _Bytes

from echomesh.native.mapping import Mapping

TRAILER_LENGTH: int

class Buffer:
    capacity: int
    def __init__(self, mapping: Mapping, offset: int = 0, capacity: int | None = None) -> None: ...
    @property
    def max_message(self) -> int: ...
    @property
    def tail_intent(self) -> int: ...
    @property
    def tail(self) -> int: ...
    @property
    def latest(self) -> int: ...

class Transmitter(Buffer):
    """The one that sends."""

    def __init__(
        self, mapping: Mapping, offset: int = 0, capacity: int | None = None, *, wakes: bool = False
    ) -> None: ...
    def transmit(self, kind: int, data: _Bytes) -> None: ...

class Receiver(Buffer):
    """One that listens, from the moment it is made."""

    lapped: int
    def receive(self) -> tuple[int, bytes] | None: ...
    def wait(self, timeout: float) -> bool: ...
