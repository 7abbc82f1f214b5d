"""Publishers and subscribers for threads: the names of `echomesh.connect()`, without `await`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from echomesh.data.config import DataOptions
from echomesh.data.incoming import QUEUE, Incoming, OnGap
from echomesh.data.outgoing import Outgoing, Rest
from echomesh.data.process import Process
from echomesh.data.processes import LINGER_S, join, leave
from echomesh.data.queues import PublisherOptions
from echomesh.data.requests import MATCH_S, REPLY, REQUEST, TIMEOUT_S, Answers, Routes, asked
from echomesh.errors import ClosedError, NothingCame
from echomesh.native.data_loan import Loan
from echomesh.native.data_message import Message
from echomesh.native.pool import Lease

_log = logging.getLogger(__name__)

Callback = Callable[[Message], Any]


class Publisher(Outgoing):
    """Sends messages on one topic to all who subscribe to it; any thread may send.

    `send(data, timeout=None)` comes with the compiled core: it takes bytes, a memoryview, an array or an `Event`.
    """

    def settle(self, rest: Rest) -> None:
        """Waits for slow subscribers, where that is the choice."""
        if not self._process.wait(rest.ready, rest.timeout):
            rest.give_up()

    def room(self, length: int, timeout: float | None) -> Lease | None:
        """A place in the pool, for which it waits where that is the choice."""
        lease = super().room(length, timeout)
        if lease is None and self.choices.blocks:
            found, rest = self.borrow(length, timeout)
            self.settle(rest)
            lease = found.pop()
        return lease

    def send_many(self, messages: Iterable[Any], *, timeout: float | None = None) -> None:
        """Sends messages in order; faster than one by one."""
        found = self.post_many(messages, timeout)
        while found is not None:
            rest, others = found
            self.settle(rest)
            found = self.post_many(others, timeout)

    def loan(self, size: int, *, timeout: float | None = None) -> Loan:
        """Room for a message of `size` bytes in shared memory, to be written in place: nothing is copied.

        with camera.loan(8 << 20) as frame:
            camera_driver.readinto(frame)
        """
        return Loan(self, size, timeout)

    def matched(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until so many subscribers can be sent to."""
        if not self._process.wait(lambda: self.is_matched(count), timeout):
            raise NothingCame(f"{self.matched_now} of {count} subscribers of {self.topic!r} came within {timeout:g} s")

    def flush(self, timeout: float | None = None) -> None:
        """Waits until the processes of all subscribers have what was sent up to now."""
        if not self._process.wait(self.written(), timeout):
            raise NothingCame(f"not all subscribers of {self.topic!r} have read what was sent within {timeout:g} s")

    def close(self) -> None:
        """Waits a moment until all is delivered, and leaves."""
        if not self.state:
            self._process.wait(self.written(), LINGER_S)
            self._process.run(self.end()).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Subscriber(Incoming):
    """Messages of a topic or filter, in order for each publisher, each once: an iterator. For one thread at a time."""

    def receive(self, timeout: float | None = None) -> Message:
        """The next message; `NothingCame` when none comes in time."""
        message = self.obtain(timeout)
        if message is None:
            raise self._nothing(timeout)
        return message

    def receive_many(self, limit: int = 1024, timeout: float | None = None) -> list[Message]:
        """All messages that are there, up to `limit` of them; where none is, it waits for one."""
        while not (messages := self.take_many(limit)):
            if not self.more(timeout):
                raise self._nothing(timeout)
        return messages

    def _nothing(self, timeout: float | None) -> NothingCame:
        return NothingCame(f"no message of {self.filter!r} within {timeout:g} s")

    def close(self) -> None:
        """Leaves; what was not taken is gone."""
        if self.closed is None and self.home.alive:
            self._process.run(self.end()).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Mesh:
    """This process's place in the mesh. It joins the participant of this machine, which is started where none runs.

    with echomesh.sync.connect() as mesh:
        camera = mesh.publisher("camera/front")
        camera.send(jpeg)
    """

    def __init__(self, options: DataOptions) -> None:
        self.options = options
        self._process: Process | None = join(options.meeting())
        self._ends: list[Publisher | Subscriber] = []
        self._routes: Routes[Publisher] = Routes()
        self._answers = Answers()
        self._inbox: Subscriber | None = None
        self._making = threading.RLock()

    def _joined(self) -> Process:
        if self._process is None:
            raise ClosedError("this mesh was closed")
        self._process.check()
        return self._process

    def publisher(self, topic: str, **choices: Any) -> Publisher:
        """A publisher of a topic; the choices are those of `PublisherOptions`."""
        process = self._joined()
        made = Publisher(process, self.options, topic, PublisherOptions(**choices))
        process.run(made.open()).result()
        self._ends.append(made)
        return made

    def subscribe(
        self,
        filter: str,
        callback: Callback | None = None,
        *,
        queue: int = QUEUE,
        on_gap: OnGap = None,
        spin: float = 0.0,
    ) -> Subscriber:
        """Messages of a topic, or of a filter with `*` and `**`: iterate over it, or have a callback called with each.

        A callback is called in a thread of its own. `queue` is how many messages may wait here before the publisher's
        choice for slow subscribers applies. `on_gap` is called with each `Gap`; with "raise" gaps are raised as
        `MessagesLost`. `spin` is for how many seconds to look out for a message before sleeping.
        """
        process = self._joined()
        made = Subscriber(process, self.options, filter, queue=queue, on_gap=on_gap, spin=spin, answer=self._reply)
        process.run(made.open()).result()
        self._ends.append(made)
        if callback is not None:
            threading.Thread(target=_call, args=(made, callback), name=f"echomesh {filter}", daemon=True).start()
        return made

    def request(self, topic: str, data: Any, timeout: float = TIMEOUT_S) -> Message:
        """Asks whoever subscribes to a topic, and gives the first reply."""
        deadline = time.monotonic() + timeout
        with self._making:
            publisher = self._route(topic)
            if self._inbox is None:
                self._inbox = self.subscribe(self._answers.topic)
            inbox = self._inbox
        publisher.matched(1, timeout)
        # The one that answers may not be the first that it is joined to.
        self._joined().wait(publisher.has_joined, publisher.joining_s(deadline - time.monotonic()))
        left = max(0.0, deadline - time.monotonic())
        number, prefix = self._answers.ask()
        try:
            rest = publisher.post(data, REQUEST, prefix, left)
            if rest is not None:
                publisher.settle(rest)
            self._joined().wait(self._answers.ready(number, inbox), left)
        finally:
            answer = self._answers.take(number)
        if answer is None:
            raise NothingCame(f"no reply on {topic!r} within {timeout:g} s")
        return answer

    def _reply(self, message: Message, data: Any) -> None:
        topic, prefix = asked(message)
        publisher = self._route(topic)
        publisher.matched(1, MATCH_S)
        rest = publisher.post(data, REPLY, prefix)
        if rest is not None:
            publisher.settle(rest)

    def _route(self, topic: str) -> Publisher:
        with self._making:
            found = self._routes.get(topic)
            if found is None:
                found = self.publisher(topic)
                old = self._routes.add(topic, found)
                if old is not None:
                    self._ends.remove(old)
                    old.close()
            return found

    def close(self) -> None:
        """Closes all publishers and subscribers, and leaves."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.home.alive:
            for end in self._ends:
                end.close()
        self._ends.clear()
        leave(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _call(subscriber: Subscriber, callback: Callback) -> None:
    for message in subscriber:
        try:
            callback(message)
        except Exception:  # it is the user's: the next message is no worse for it
            _log.exception("a callback failed on %r", message)


def connect(**options: Any) -> Mesh:
    """Joins the mesh; the options are those of `DataOptions`, and come from the environment where none are given."""
    return Mesh(DataOptions(**options))
