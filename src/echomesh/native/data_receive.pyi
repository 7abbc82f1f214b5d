import os
from collections.abc import Iterator
from typing import Any

from echomesh.native.data_home import Home
from echomesh.native.streams import Outlet, Taker

class Message:
    """A message as a subscriber gets it. It is itself a buffer."""

    size: int
    sequence: int
    time_ns: int
    flags: int
    @property
    def data(self) -> memoryview: ...
    @property
    def topic(self) -> str: ...
    @property
    def publisher(self) -> bytes: ...
    @property
    def time(self) -> float: ...
    @property
    def inbox(self) -> Any: ...
    @property
    def prefix(self) -> bytes: ...
    def reply(self, data: Any) -> Any: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Arrival(Taker):
    """One stream from a publisher."""

    inbox: Inbox
    stream_id: int
    topic: str
    publisher: bytes
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

class Inbox:
    """Messages of all streams of one subscriber, in the order in which they came."""

    home: Home
    waiting: int
    delivered: int
    byte_count: int
    queue: int
    def __init__(self, home: Home, queue: int) -> None: ...
    def take(self) -> Message | None: ...
    def take_many(self, limit: int) -> list[Message]: ...
    def clear(self) -> None: ...
    def __iter__(self) -> Iterator[Message]: ...
    def greeted(self, arrival: Arrival) -> None: ...
    def gap(self, arrival: Arrival, first: int, last: int, reason: int) -> None: ...
