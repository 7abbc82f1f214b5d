"""A subscription: events one by one, with acknowledgements."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from itertools import count, repeat
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self

from msgspec import Struct

from echomesh.errors import MeshError, SessionEnded, UsageError
from echomesh.mesh.client_events import Delivery
from echomesh.mesh.client_link import Link
from echomesh.mesh.client_options import ClientOptions
from echomesh.mesh.client_received import Incoming, Lost, Received
from echomesh.mesh.codes import Purpose
from echomesh.topics import parse_filter

Start = Literal["now", "acknowledged", "earliest", "last"] | int | datetime | str | None
OnLost = Callable[[Lost], object]

_ACKS: Final = ("auto", "manual")


class Gap(Struct, eq=False):
    """Offsets that can't be had, in the place of the events that were there."""

    delivery: Delivery
    offset: int
    end: int


class Subscription:
    """Events of one or more filters, in order for each topic, at least once: an async iterator of `Received`.

    `await` it to be sure that the server has it; it works without, too:

        async for event in session.subscribe("orders/**"): ...
        subscription = await session.subscribe("orders/**")
    """

    kind: type[Any] = Received

    def __init__(
        self,
        options: ClientOptions,
        filters: Sequence[str],
        *,
        start: Start = None,
        group: str | None = None,
        ack: Literal["auto", "manual"] = "auto",
        on_lost: OnLost | None = None,
    ) -> None:
        if ack not in _ACKS:
            raise UsageError(f"ack={ack!r}: it is 'auto' or 'manual'")
        if not filters:
            raise UsageError("name at least one topic or filter to subscribe to")
        self.filters = [parse_filter(name) for name in filters]
        self.group = group
        self.auto = ack == "auto"
        self._on_lost = on_lost
        self._ready: deque[Received | Gap] = deque()
        self._current: Received | Gap | None = None
        self._noted: Delivery | None = None
        self._noted_first = self._noted_end = 0
        self._error: MeshError | None = None
        self._wakeup = asyncio.Event()
        self.on_end: Callable[[Subscription], object] | None = None
        """Called once, when no more events come."""
        self._link = Link(options, Purpose.SUBSCRIBE, self)
        core = self._link.core
        try:
            self._made = self._link.ask(
                lambda token: core.subscribe(self.filters, token, start=start, group=self.group)
            )
        except UsageError:
            self._link.end(SessionEnded("it was never begun"))
            raise
        self._made.add_done_callback(self._answered)

    def _answered(self, made: asyncio.Future[None]) -> None:
        if not made.cancelled() and isinstance(error := made.exception(), MeshError):
            self.failed(error)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._ready_to_receive().__await__()

    async def _ready_to_receive(self) -> Self:
        self._link.check_loop()
        await asyncio.wait((self._made,))
        if self._error is not None:
            raise self._error
        return self

    # Taking

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        while (received := self.take()) is None:
            await self.more()
        return received

    def take(self) -> Received | None:
        """The next event, if one is there; what was taken before it is settled, where that is automatic."""
        if self._current is not None:
            current, self._current = self._current, None
            self._done(current.delivery, current.offset)
        while self._ready:
            found = self._ready.popleft()
            if isinstance(found, Gap):
                self._tell(found)
                continue
            if self.auto:
                self._current = found
            return found
        if self._error is not None:
            self._stop(self._error)
        return None

    async def more(self, timeout: float | None = None) -> None:
        """Waits until there is something to take, or to raise; `TimeoutError` when that takes too long."""
        if not self._ready and self._error is None:
            self._link.check_loop()
            self._wakeup.clear()
            if timeout is None:
                await self._wakeup.wait()
            else:
                async with asyncio.timeout(timeout):
                    await self._wakeup.wait()

    def _tell(self, gap: Gap) -> None:
        lost = Lost(gap.delivery.topic, gap.offset, gap.end - 1)
        if self._on_lost is None:
            # Settled by the next call: whoever ends here hears of it again.
            self._current = gap
            raise lost.error()
        self._on_lost(lost)
        self._done(gap.delivery, gap.offset)

    def _stop(self, error: MeshError) -> NoReturn:
        if isinstance(error, SessionEnded):
            raise StopAsyncIteration
        raise error

    def _done(self, delivery: Delivery, offset: int) -> None:
        """Notes that an event was dealt with; what follows on in its delivery is settled together with it."""
        if delivery.generation != self._link.core.generation:
            # Its copy may have come over the new connection already: it must not be handed out once more.
            self.leaving()
            self._settle(delivery, offset, offset + 1)
            self._link.plan()
            return
        if delivery is self._noted and offset == self._noted_end:
            self._noted_end = offset + 1
            return
        self.leaving()
        self._noted, self._noted_first, self._noted_end = delivery, offset, offset + 1
        self._link.plan()

    def leaving(self) -> None:
        """Settles what was noted: acknowledgements are about to be sent."""
        if self._noted is not None:
            noted, self._noted = self._noted, None
            self._settle(noted, self._noted_first, self._noted_end)

    def settle(self, received: Incoming) -> None:
        """It was dealt with."""
        self._settle(received.delivery, received.offset, received.offset + 1)

    def _settle(self, delivery: Delivery, first: int, end: int) -> None:
        if delivery.generation != self._link.core.generation:
            self._drop(delivery.topic, first, end)
        self._link.settle(delivery, first, end)

    async def refuse(self, received: Incoming, delay: float | None, reason: str | None) -> bool:
        """It could not be dealt with; True when it went to the dead letters."""
        if self._current is received:
            self._current = None
        answer = await self._link.nack(received.delivery, received.offset, delay, reason)
        return answer is not None and answer.dead

    def _drop(self, topic: str, first: int, end: int) -> None:
        """Events that were delivered again are settled by their first copies."""
        for found in list(self._ready):
            if first <= found.offset < end and found.delivery.topic == topic:
                self._ready.remove(found)

    # What the link tells

    def delivered(self, delivery: Delivery) -> None:
        """Events came."""
        delivery.owner = self
        if delivery.lost is not None:
            self._ready.append(Gap(delivery, *delivery.lost))
        else:
            self._ready.extend(map(self.kind, repeat(delivery), count(delivery.first), delivery.events))
        self._wakeup.set()

    def interrupted(self) -> None:
        """The connection broke: what was not acknowledged comes again over the next one."""
        self.leaving()
        self._ready.clear()

    def failed(self, error: MeshError) -> None:
        """There will be no more."""
        if self._error is None:
            self._error = error
            self._ready.clear()
            self._current = None
            self._wakeup.set()
            self._link.end(error)
            if self.on_end is not None:
                self.on_end(self)

    # The end

    async def unsubscribe(self) -> None:
        """Ends the subscription for good: the server forgets where it was."""
        core = self._link.core
        await self._link.ask(lambda token: core.unsubscribe(self.filters, token, group=self.group))
        await self.close()

    async def close(self) -> None:
        """Leaves. What was acknowledged is kept, so that the same client can go on later."""
        self._link.check_loop()
        self.leaving()
        await self._link.close()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
