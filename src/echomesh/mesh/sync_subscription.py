"""A subscription for threads."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, Self

from echomesh.errors import ClosedError, MeshTimeout
from echomesh.mesh import client_subscription as asynchronous
from echomesh.mesh.client_events import Delivery
from echomesh.mesh.client_received import Incoming
from echomesh.mesh.sync_loop import Background


class Received(Incoming, eq=False):
    """An event that a subscription gave."""

    def ack(self) -> None:
        """It was dealt with: it does not come again, even after a restart. Any order is fine."""
        self.delivery.owner.settle(self)

    def nack(self, delay: float | None = None, reason: str | None = None) -> bool:
        """It could not be dealt with: it comes again after `delay` seconds (the server's choice by default).

        After a number of tries that the server knows, it goes to `dead/<topic>` with the reason: then this gives True.
        """
        inner: _Inner = self.delivery.owner
        return inner.background.run(inner.refuse(self, delay, reason))


class _Inner(asynchronous.Subscription):
    """Lives in the background loop; events are taken and settled by another thread."""

    kind = Received

    def __init__(self, background: Background, *args: Any, **options: Any) -> None:
        self.background = background
        self._settled: deque[tuple[Delivery, int, int]] = deque()
        self._draining = False
        super().__init__(*args, **options)

    def _done(self, delivery: Delivery, offset: int) -> None:
        self._settle(delivery, offset, offset + 1)

    def _settle(self, delivery: Delivery, first: int, end: int) -> None:
        self._settled.append((delivery, first, end))
        if not self._draining:
            self._draining = True
            self.background.soon(self._drain)

    def _drain(self) -> None:
        self._draining = False
        while self._settled:
            super()._settle(*self._settled.popleft())

    async def close(self) -> None:
        """Acknowledges what was settled, and leaves."""
        self._drain()
        await super().close()


class Subscription:
    """Events of one or more filters, in order for each topic, at least once: an iterator of `Received`.

    For one thread at a time.
    """

    def __init__(self, background: Background, inner: _Inner) -> None:
        self._background = background
        self._inner = inner

    @classmethod
    async def make(cls, background: Background, *args: Any, **options: Any) -> Self:
        """Subscribes; to be called in the background loop."""
        inner = _Inner(background, *args, **options)
        try:
            return cls(background, await inner)
        except BaseException:
            await inner.close()
            raise

    @property
    def inner(self) -> asynchronous.Subscription:
        """The subscription in the background loop."""
        return self._inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received:
        try:
            while (received := self._inner.take()) is None:
                self._background.run(self._inner.more())
        except StopAsyncIteration:
            raise StopIteration from None
        return received  # type: ignore[return-value]

    def get(self, timeout: float | None = None) -> Received:
        """The next event; `MeshTimeout` when none comes in time."""
        try:
            while (received := self._inner.take()) is None:
                self._background.run(self._inner.more(timeout))
        except StopAsyncIteration:
            raise ClosedError("the subscription was closed") from None
        except TimeoutError:
            raise MeshTimeout(f"no event within {timeout:g} s") from None
        return received  # type: ignore[return-value]

    def unsubscribe(self) -> None:
        """Ends the subscription for good: the server forgets where it was."""
        self._background.run(self._inner.unsubscribe())

    def close(self) -> None:
        """Leaves. What was acknowledged is kept, so that the same client can go on later."""
        self._background.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
