from typing import Any

from echomesh.native.streams import Taker

class Origin(Taker):
    """The stream that messages came from."""

    topic: str
    publisher: bytes
    subscriber: Any

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
