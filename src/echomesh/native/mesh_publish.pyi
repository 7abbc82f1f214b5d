from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

class Publishes:
    """Publishes of all connections that wait for the log, in its order."""

    settled: int

    @property
    def answerable(self) -> bool: ...
    def __len__(self) -> int: ...
    def add(self, pending: object, connection: object, seq: str, environment: str, topic: str) -> None: ...
    def settle(self, answer: Callable[[Any, Any, str], object]) -> list[tuple[str, str]]: ...

class Lane:
    """One connection whose session publishes."""

    in_flight_bytes: int

    def __init__(
        self,
        connection: object,
        queue: Publishes,
        append: Callable[..., object],
        environment: str,
        client_id: str,
        session_id: str,
        may: dict[str, str],
        in_flight: dict[str, int],
        rate: object = None,
    ) -> None: ...
    def forget(self) -> None: ...
    def take(self, payload: bytes, now: float) -> bool: ...
    def take_frames(self, data: Buffer, at: int, now: float, most: int) -> int: ...
