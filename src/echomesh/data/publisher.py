"""A publisher for asyncio; `echomesh.sync` has the same without `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable
from types import TracebackType
from typing import Any, Final, Self

from echomesh.data.outgoing import Outgoing, Rest
from echomesh.data.processes import LINGER_S
from echomesh.errors import NothingCame
from echomesh.native.pool import Lease


class _Done:
    """What there is nothing to wait for with."""

    def __await__(self) -> Generator[Any, None, None]:
        # A generator, as the type wants it, would be made anew for each message.
        return iter(())  # type: ignore[return-value]


DONE: Final = _Done()


class Publisher(Outgoing):
    """Sends messages on one topic to all who subscribe to it.

    camera = await mesh.publisher("camera/front")
    await camera.send(jpeg)
    """

    def send(self, data: Any, *, timeout: float | None = None) -> Awaitable[None]:
        """Sends bytes, a memoryview, an array or an `Event` to all subscribers; `await` it.

        It is on its way when this returns; awaiting waits for slow subscribers, where that is the choice.
        """
        rest = self.post(data, 0, b"", timeout)
        return DONE if rest is None else self._settled(rest)

    async def send_many(self, messages: Iterable[Any], *, timeout: float | None = None) -> None:
        """Sends messages in order; faster than one by one."""
        found = self.post_many(messages, timeout)
        while found is not None:
            rest, others = found
            await self._settled(rest)
            found = self.post_many(others, timeout)

    async def _settled(self, rest: Rest) -> None:
        if not await self._process.until(rest.ready, rest.timeout):
            rest.give_up()

    def loan(self, size: int, *, timeout: float | None = None) -> Loan:
        """Room for a message of `size` bytes in shared memory, to be written in place: nothing is copied.

        async with camera.loan(8 << 20) as frame:
            camera_driver.readinto(frame)
        """
        return Loan(self, size, timeout)

    async def matched(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until so many subscribers can be sent to."""
        if not await self._process.until(lambda: self.is_matched(count), timeout):
            raise NothingCame(f"{self.matched_now} of {count} subscribers of {self.topic!r} came within {timeout:g} s")

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until the processes of all subscribers have what was sent up to now."""
        if not await self._process.until(self.written(), timeout):
            raise NothingCame(f"not all subscribers of {self.topic!r} have read what was sent within {timeout:g} s")

    async def close(self) -> None:
        """Waits a moment until all is delivered, and leaves."""
        if not self.state:
            await self._process.until(self.written(), LINGER_S)
            await asyncio.wrap_future(self._process.run(self.end()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Loan:
    """A message that is written in place; it is sent at the end of the block, unless that raises."""

    def __init__(self, publisher: Publisher, size: int, timeout: float | None) -> None:
        self._publisher = publisher
        self._size = size
        self._timeout = timeout
        self._lease: Lease | None = None
        self._view: memoryview | None = None

    async def __aenter__(self) -> memoryview:
        found, rest = self._publisher.borrow(self._size, self._timeout)
        if not rest.ready():
            await self._publisher._settled(rest)
        self._lease = found.pop()
        self._view = memoryview(self._lease)
        return self._view

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease, view = self._lease, self._view
        self._lease = self._view = None
        if lease is not None and view is not None:
            rest = self._publisher.returned(lease, view, self._timeout, failed=kind is not None)
            if rest is not None:
                await self._publisher._settled(rest)
