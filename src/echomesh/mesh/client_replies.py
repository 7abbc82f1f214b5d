"""Requests that other sessions answer: an event with `replyto`, and the reply that comes to that topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from echomesh.errors import MeshError, MeshTimeout, UsageError
from echomesh.events import Event
from echomesh.mesh.client_options import ClientOptions
from echomesh.mesh.client_subscription import Subscription

REPLY_TO: Final = "replyto"
CORRELATION: Final = "correlationid"


def reply_topic(options: ClientOptions) -> str:
    """Where replies to this client go."""
    return options.reply_topic or f"replies/{quote(options.client_id, safe='-._~')}"


def asking(event: Event, topic: str) -> Event:
    """The event as a request whose reply goes to the topic."""
    return msgspec.structs.replace(event, extensions={**event.extensions, REPLY_TO: topic})


def answering(request: Event, reply: Event) -> tuple[str, Event]:
    """Where a reply goes, and the reply with the mark by which it is recognized."""
    topic = request.extensions.get(REPLY_TO)
    if not isinstance(topic, str):
        raise UsageError(f"event {request.id!r} wants no reply: it has no attribute {REPLY_TO}")
    return topic, msgspec.structs.replace(reply, extensions={**reply.extensions, CORRELATION: correlation(request)})


def correlation(request: Event) -> str:
    """What the reply to this request carries: the request's own mark, or its id."""
    mark = request.extensions.get(CORRELATION)
    return mark if isinstance(mark, str) else request.id


class Replies:
    """Waits for replies on one subscription, however many requests are on their way."""

    def __init__(self, options: ClientOptions) -> None:
        self.topic = reply_topic(options)
        self.subscription = Subscription(options, [self.topic], start="now")
        self._waiting: dict[str, asyncio.Future[Event]] = {}
        self._task = asyncio.ensure_future(self._receive())

    @property
    def over(self) -> bool:
        """Whether no more replies come."""
        return self._task.done()

    async def reply(self, request: Event, send: Callable[[], asyncio.Future[int]], timeout: float) -> Event:
        """Sends the request, and gives its reply; `MeshTimeout` when none comes in time."""
        await self.subscription
        mark = correlation(request)
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting[mark] = future
        try:
            async with asyncio.timeout(timeout):
                await send()
                return await future
        except TimeoutError:
            raise MeshTimeout(f"no reply to {request.type!r} {mark!r} within {timeout:g} s") from None
        finally:
            del self._waiting[mark]

    async def _receive(self) -> None:
        try:
            async for received in self.subscription:
                mark = received.extensions.get(CORRELATION)
                future = self._waiting.get(mark) if isinstance(mark, str) else None
                if future is not None and not future.done():
                    future.set_result(received.event)
        except MeshError as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)

    async def close(self) -> None:
        """Waits for no more."""
        await self.subscription.close()
        await self._task
