"""`echomesh.connect()`: publishers, subscribers and requests over the data plane, for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from echomesh.data.config import DataOptions
from echomesh.data.incoming import QUEUE, OnGap
from echomesh.data.process import Process
from echomesh.data.processes import join, leave
from echomesh.data.publisher import Publisher
from echomesh.data.queues import PublisherOptions
from echomesh.data.requests import MATCH_S, REPLY, REQUEST, TIMEOUT_S, Answers, Routes, asked
from echomesh.data.subscriber import Subscriber
from echomesh.errors import NothingCame
from echomesh.native.data_message import Message

Callback = Callable[[Message], Any]

_log = logging.getLogger(__name__)


class Mesh:
    """This process's place in the mesh. It joins the participant of this machine, which is started where none runs.

    async with echomesh.connect() as mesh:
        camera = await mesh.publisher("camera/front")
        await camera.send(jpeg)
    """

    def __init__(self, options: DataOptions) -> None:
        self.options = options
        self._process: Process | None = None
        self._ends: list[Publisher | Subscriber] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes: Routes[Publisher] = Routes()
        self._answers = Answers()
        self._inbox: Subscriber | None = None
        self._making = asyncio.Lock()

    def _joined(self) -> Process:
        if self._process is None:
            self._process = join(self.options.meeting())
        self._process.check()
        return self._process

    async def publisher(self, topic: str, **choices: Any) -> Publisher:
        """A publisher of a topic; the choices are those of `PublisherOptions`."""
        process = self._joined()
        made = Publisher(process, self.options, topic, PublisherOptions(**choices))
        await asyncio.wrap_future(process.run(made.open()))
        self._ends.append(made)
        return made

    def subscribe(
        self, filter: str, callback: Callback | None = None, *, queue: int = QUEUE, on_gap: OnGap = None
    ) -> Subscriber:
        """Messages of a topic, or of a filter with `*` and `**`: iterate over it, or have a callback called with each.

        `queue` is how many messages may wait here before the publisher's choice for slow subscribers applies. `on_gap`
        is called with each `Gap`; with "raise" gaps are raised as `MessagesLost`.
        """
        made = Subscriber(self._joined(), self.options, filter, queue=queue, on_gap=on_gap, answer=self._reply)
        self._ends.append(made)
        if callback is not None:
            task = asyncio.get_running_loop().create_task(_call(made, callback))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return made

    async def request(self, topic: str, data: Any, timeout: float = TIMEOUT_S) -> Message:
        """Asks whoever subscribes to a topic, and gives the first reply."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        publisher, inbox = await self._route(topic), await self._own_inbox()
        await publisher.matched(1, deadline - loop.time())
        # The one that answers may not be the first that it is joined to.
        await inbox._process.until(publisher.has_joined, publisher.joining_s(deadline - loop.time()))
        left = max(0.0, deadline - loop.time())
        number, prefix = self._answers.ask()
        try:
            rest = publisher.post(data, REQUEST, prefix, left)
            if rest is not None:
                await publisher._settled(rest)
            await inbox._process.until(self._answers.ready(number, inbox), left)
        finally:
            answer = self._answers.take(number)
        if answer is None:
            raise NothingCame(f"no reply on {topic!r} within {timeout:g} s")
        return answer

    async def _reply(self, message: Message, data: Any) -> None:
        topic, prefix = asked(message)
        publisher = await self._route(topic)
        await publisher.matched(1, MATCH_S)
        rest = publisher.post(data, REPLY, prefix)
        if rest is not None:
            await publisher._settled(rest)

    async def _route(self, topic: str) -> Publisher:
        async with self._making:
            found = self._routes.get(topic)
            if found is None:
                found = await self.publisher(topic)
                old = self._routes.add(topic, found)
                if old is not None:
                    self._ends.remove(old)
                    await old.close()
            return found

    async def _own_inbox(self) -> Subscriber:
        async with self._making:
            if self._inbox is None:
                self._inbox = await self.subscribe(self._answers.topic)
            return self._inbox

    async def close(self) -> None:
        """Closes all publishers and subscribers, and leaves."""
        for task in list(self._tasks):
            task.cancel()
        for end in self._ends:
            await end.close()
        self._ends.clear()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(leave, process)

    async def __aenter__(self) -> Self:
        self._joined()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _call(subscriber: Subscriber, callback: Callback) -> None:
    async for message in subscriber:
        try:
            done = callback(message)
            if asyncio.iscoroutine(done):
                await done
        except Exception:  # it is the user's: the next message is no worse for it
            _log.exception("a callback failed on %r", message)


def connect(**options: Any) -> Mesh:
    """Joins the mesh; the options are those of `DataOptions`, and come from the environment where none are given."""
    return Mesh(DataOptions(**options))
