import os
from collections.abc import Iterator

from echomesh.native.data_home import Awaited, Home
from echomesh.native.data_message import Message, Origin
from echomesh.native.data_wait import Reading
from echomesh.native.streams import Outlet

class Arrival(Origin):
    """One stream from a publisher."""

    stream_id: int
    peer: str
    window: int
    expected: int
    received: int
    taken: int
    limit: int
    open: bool
    def __init__(
        self, inbox: Inbox, outlet: Outlet, stream_id: int, peer: str, pool_directory: str | os.PathLike[str]
    ) -> None: ...
    def close(self) -> None: ...
    def settle(self) -> bool: ...

class Inbox(Awaited):
    """Messages of all streams of one subscriber, in the order in which they came."""

    home: Home
    reading: Reading
    closed: Exception | None
    spin: float
    waiting: int
    delivered: int
    byte_count: int
    queue: int
    def __init__(self, reading: Reading, queue: int, spin: float) -> None: ...
    def more(self, timeout: float | None = None) -> bool: ...
    def obtain(self, timeout: float | None = None) -> Message | None: ...
    def check(self) -> None: ...
    def take(self) -> Message | None: ...
    def take_many(self, limit: int) -> list[Message]: ...
    def clear(self) -> None: ...
    def __iter__(self) -> Iterator[Message]: ...
    def greeted(self, arrival: Arrival) -> None: ...
    def gap(self, arrival: Arrival, first: int, last: int, reason: int) -> None: ...
