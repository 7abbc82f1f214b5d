"""Server-sent events: what a source has, when it has it, to one reader at the reader's pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from echomesh.mesh import http_sse as sse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from echomesh.mesh.http_auth import Caller

PIECE_BYTES: Final = 64 << 10
HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # proxies that would collect it are asked not to
]


class Source(Protocol):
    """Where the events come from."""

    woken: asyncio.Event
    """Set when `take` may have something, or it `ended`."""
    ended: bool
    """Whether nothing comes any more."""

    def hello(self) -> bytes:
        """What goes out first."""
        ...

    def beat(self) -> bytes:
        """What goes out after some silence."""
        ...

    def take(self) -> bytes:
        """What goes out next; empty for nothing."""
        ...

    def close(self) -> None:
        """Nobody reads any more."""
        ...


class EventStream:
    """The answer to a subscription: it ends with the reader, with the server, or with the right to read."""

    def __init__(
        self, source: Source, caller: Caller, heartbeat_s: float, retry_s: float, closed: Callable[[EventStream], None]
    ) -> None:
        self._source = source
        self._caller = caller
        self._heartbeat_s = heartbeat_s
        self._retry = b"retry: %d\n" % int(retry_s * 1000)
        self._closed = closed
        self._ended = ""
        self._gone = False

    def end(self, reason: str) -> None:
        """Ends it; the reader is told why."""
        self._ended = self._ended or reason
        self._source.woken.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._send(send, self._retry + self._source.hello())
            while not self._ended and not self._gone:
                await self._turn(send)
            last = sse.notice("end", reason=self._ended) if self._ended else b""
            await send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            watch.cancel()
            self._source.close()
            self._closed(self)

    async def _turn(self, send: Send) -> None:
        self._source.woken.clear()
        if self._caller.changed:
            self.end("the client's entry changed: connect again")
        elif self._source.ended:
            self.end("the server ended the subscription: connect again")
        elif block := self._source.take():
            await self._send(send, block)
            await asyncio.sleep(0)  # a quick reader must not keep the others waiting
        elif not await self._wait():
            await self._send(send, self._source.beat())

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await self._source.woken.wait()
        except TimeoutError:
            return False
        return True

    async def _send(self, send: Send, block: bytes) -> None:
        # In pieces, so that a reader of a large event is seen to go on.
        for at in range(0, len(block), PIECE_BYTES):
            if self._gone:
                return
            await send({"type": "http.response.body", "body": block[at : at + PIECE_BYTES], "more_body": True})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._source.woken.set()
