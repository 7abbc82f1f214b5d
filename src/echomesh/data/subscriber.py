"""A subscriber for asyncio; `echomesh.sync` has the same without `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

from echomesh.data.incoming import Incoming
from echomesh.errors import ClosedError, NothingCame
from echomesh.native.data_message import Message


class Subscriber(Incoming):
    """Messages of a topic or filter, in order for each publisher, each once: an async iterator.

    `await` it to be sure that the participant has it; it works without, too:

        async for message in mesh.subscribe("camera/*"): ...
    """

    _opening: asyncio.Future[Any] | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self._opened().__await__()

    async def _opened(self) -> Self:
        if self._opening is None:
            self._opening = asyncio.wrap_future(self._process.run(self.open()))
        await self._opening
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = self.take()
        while message is None:
            try:
                await self._more(None)
            except ClosedError:
                raise StopAsyncIteration from None
            message = self.take()
        return message

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message; `NothingCame` when none comes in time."""
        message = self.take()
        while message is None:
            await self._more(timeout)
            message = self.take()
        return message

    async def receive_many(self, limit: int = 1024, timeout: float | None = None) -> list[Message]:
        """All messages that are there, up to `limit` of them; where none is, it waits for one."""
        while not (messages := self.take_many(limit)):
            await self._more(timeout)
        return messages

    async def _more(self, timeout: float | None) -> None:
        if self._opening is None or not self._opening.done():
            await self._opened()
        self.check()
        if not await self._process.until(self.has_more, timeout):
            raise NothingCame(f"no message of {self.filter!r} within {timeout:g} s")
        self.check()

    async def close(self) -> None:
        """Leaves; what was not taken is gone."""
        if self._opening is not None and self.home.alive:
            self._opening = None
            await asyncio.wrap_future(self._process.run(self.end()))

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
