import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from typing_extensions import Buffer

from echomesh.native.log_answers import Answers

ENVIRONMENT: str

class Encodable(Protocol):
    """What knows its bytes on the wire, as an event does."""

    def encode(self) -> bytes: ...

class Appends(Answers):
    """What an event loop appends; the answers do all that futures do."""

    on_pass: Callable[[], object] | None

    @property
    def line_bytes(self) -> int: ...
    def attach(self, core: Any, loop: asyncio.AbstractEventLoop, signal_fd: int, line_limit: int) -> None: ...
    def detach(self) -> None: ...
    def append(
        self, topic: str, event: Buffer | Encodable, *, environment: str = ..., origin: bytes | None = None
    ) -> asyncio.Future[int]: ...
    def append_many(
        self,
        topic: str,
        events: Iterable[Buffer | Encodable],
        *,
        environment: str = ...,
        origins: Sequence[bytes | None] | bytes | None = None,
    ) -> asyncio.Future[list[int]]: ...
    def when_room(self) -> asyncio.Future[None]: ...
    def when_idle(self) -> asyncio.Future[None]: ...
    def look(self) -> None: ...
    def _harvest(self) -> None: ...
