from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from echomesh.native.ring import Ring

DATA: int
IDLE: int
OPEN: int
ENDED: int

class Outlet:
    """The way to one peer: a ring, and what is done when it is full."""

    ring: Ring
    holding: bool
    def __init__(self, ring: Ring) -> None: ...
    def write(self, kind: int, stream_id: int, payload: Buffer = b"") -> bool: ...
    def overflow(self, kind: int, stream_id: int, payload: Buffer) -> bool: ...
    def give_up(self) -> None: ...

class Taker:
    """Compiled code that takes the data of one stream."""

class StreamTable:
    """The streams that come in from one peer, by id."""

    inbound: dict[int, Any]
    outlet: Any
    paused: bool
    def __init__(self, on_data: Callable[[Any, memoryview], None]) -> None: ...

class StreamEnd:
    """Our end of one connection with a peer."""

    table: Any
    inbound_id: int
    outbound_id: int
    inbound: int
    outbound: int
    taker: Taker | None
    def __init__(self, table: StreamTable) -> None: ...
    def send(self, payload: Buffer) -> bool: ...
