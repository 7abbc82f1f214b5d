"""Sessions without async: the names of `echomesh.mesh.client`, for threads. `echomesh.sync.session(...)` gives one."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Literal, ParamSpec, Self

from echomesh.errors import MeshError, MeshTimeout
from echomesh.events import Event
from echomesh.mesh import client
from echomesh.mesh.bodies import BridgeState, CommittedStages, Server, Staged
from echomesh.mesh.client_options import parse_address
from echomesh.mesh.client_received import Incoming, Lost
from echomesh.mesh.client_stage import StageWriter as AsyncStageWriter
from echomesh.mesh.client_subscription import OnLost, Start
from echomesh.mesh.log_bodies import Fetched, Offsets, TopicState
from echomesh.mesh.sync_loop import Background, background
from echomesh.mesh.sync_subscription import Received, Subscription

__all__ = ["Lost", "Pending", "Received", "Session", "StageWriter", "Subscription", "session"]

_MOST_WAITING: Final = 8192

P = ParamSpec("P")


class Pending:
    """A publish that is on its way; `result` waits for its offset."""

    __slots__ = ("_done", "_error", "_offset", "_waiter")

    def __init__(self) -> None:
        self._done = False
        self._offset = -1
        self._error: Exception | None = None
        self._waiter: threading.Event | None = None

    def done(self) -> bool:
        """Whether it was answered."""
        return self._done

    def result(self, timeout: float | None = None) -> int:
        """The offset, or what kept the event from being stored; `MeshTimeout` when neither comes in time."""
        if not self._done:
            # The waiter stands before the second look here, and the answer before the look for a waiter there.
            waiter = self._waiter = self._waiter or threading.Event()
            if not self._done and not waiter.wait(timeout):
                raise MeshTimeout(f"no answer within {timeout:g} s; the event may still be stored")
        if self._error is not None:
            raise self._error
        return self._offset

    def cancelled(self) -> bool:
        """Never: it can't be taken back."""
        return False

    def set_result(self, offset: int) -> None:
        """It is stored."""
        self._offset = offset
        self._settle()

    def set_exception(self, error: Exception) -> None:
        """It is not."""
        self._error = error
        self._settle()

    def _settle(self) -> None:
        self._done = True
        if self._waiter is not None:
            self._waiter.set()


class _Line:
    """Publishes that a thread hands to the background loop, many with one call."""

    def __init__(self, inner: client.Session, background: Background) -> None:
        self._inner = inner
        self._background = background
        self._waiting: deque[tuple[Pending, str, bytes, Server | None]] = deque()
        self._draining = False
        self._room = threading.Event()

    def put(self, topic: str, event: bytes, server: Server | None) -> Pending:
        """Hands one over; waits while there are too many."""
        while len(self._waiting) >= _MOST_WAITING:
            self._background.check()
            self._room.clear()
            if len(self._waiting) >= _MOST_WAITING:
                self._room.wait()
        pending = Pending()
        self._waiting.append((pending, topic, event, server))
        if not self._draining:
            self._draining = True
            self._background.soon(self._begin)
        return pending

    def _begin(self) -> None:
        self._task = self._background.loop.create_task(self.drain())

    async def drain(self) -> None:
        """Publishes all that was handed over."""
        while True:
            await self._publish()
            self._draining = False
            if not self._waiting:  # whoever handed one over before that line relies on this look
                return
            self._draining = True

    async def _publish(self) -> None:
        while self._waiting:
            with contextlib.suppress(MeshError):  # the publish itself says it
                await self._inner.room()
            if not self._waiting:
                return
            pending, topic, event, server = self._waiting.popleft()
            try:
                self._inner.publish_as(pending, topic, event, server)
            except Exception as error:
                pending.set_exception(error)
            if len(self._waiting) < _MOST_WAITING // 2 and not self._room.is_set():
                self._room.set()


class StageWriter:
    """Rows for one (writer, epoch, run, part). They are in no topic before a commit names the stage."""

    def __init__(self, inner: AsyncStageWriter, background: Background) -> None:
        self._inner = inner
        self._run = background.run

    def add(self, topic: str, event: Event | bytes) -> None:
        """Adds a row; rows are sent in batches."""
        self._run(self._inner.add(topic, event))

    def close(self) -> Staged:
        """Ends the stage: its rows are on the server's disk, and its name is ready for `commit`."""
        return self._run(self._inner.close())


class Session:
    """Publishes, subscribes, asks and answers, for any number of threads."""

    def __init__(self, inner: client.Session) -> None:
        self._inner = inner
        self._background = background()
        self._run = self._background.run
        self._line = _Line(inner, self._background)

    # Publishing

    def publish(
        self, topic: str, event: Event | bytes, *, server: str | None = None, timeout: float | None = None
    ) -> int:
        """Publishes an event, and gives its offset once it is on the server's disk."""
        return self._run(self._inner.publish(topic, event, server=server, timeout=timeout))

    def publish_soon(self, topic: str, event: Event | bytes, *, server: str | None = None) -> Pending:
        """Publishes without waiting for the answer, so that many are in flight; waits only while too many are."""
        encoded = event.encode() if isinstance(event, Event) else event
        return self._line.put(topic, encoded, None if server is None else parse_address(server))

    def publish_many(self, topic: str, events: Iterable[Event | bytes], *, server: str | None = None) -> list[int]:
        """Publishes events in order, many in flight; their offsets."""
        return self._run(self._inner.publish_many(topic, list(events), server=server))

    # Subscribing

    def subscribe(
        self,
        *filters: str,
        start: Start = None,
        group: str | None = None,
        ack: Literal["auto", "manual"] = "auto",
        on_lost: OnLost | None = None,
    ) -> Subscription:
        """Subscribes to topics or filters: an iterator of `Received`; the server has it when this returns.

        The parameters are those of `echomesh.mesh.client.Session.subscribe`.
        """

        async def make() -> Subscription:
            made = await Subscription.make(
                self._background, self._inner.options, filters, start=start, group=group, ack=ack, on_lost=on_lost
            )
            self._inner.keep(made.inner)
            return made

        return self._run(make())

    # Asking and answering

    def request(self, topic: str, event: Event, *, timeout: float = 30.0) -> Event:
        """Publishes a request, and gives the first reply to it."""
        return self._run(self._inner.request(topic, event, timeout=timeout))

    def reply(self, request: Event | Incoming, event: Event) -> int:
        """Answers a request that a subscription gave."""
        return self._run(self._inner.reply(request, event))

    # The log

    def topics(self, filter: str = "**", *, timeout: float | None = None) -> list[TopicState]:
        """The topics that you may read, with their first and next offsets."""
        return self._run(self._inner.topics(filter, timeout=timeout))

    def offsets(self, topic: str, *, time_ns: int | None = None, timeout: float | None = None) -> Offsets:
        """Where a topic begins and ends; with `time_ns`, also the first offset of that time or later."""
        return self._run(self._inner.offsets(topic, time_ns=time_ns, timeout=timeout))

    def fetch(
        self,
        topic: str,
        offset: int,
        *,
        until: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
    ) -> Fetched:
        """Records as they are stored, for readers such as Spark."""
        return self._run(self._inner.fetch(topic, offset, until=until, max_bytes=max_bytes, timeout=timeout))

    # Staged publishes

    def stage(self, writer: str, epoch: int, run: str, part: int = 0) -> StageWriter:
        """Begins a stage: rows that belong to no topic until `commit` names it."""
        return StageWriter(self._run(self._inner.stage(writer, epoch, run, part)), self._background)

    def commit(
        self, writer: str, epoch: int, run: str, stages: Sequence[str], *, timeout: float = client.COMMIT_S
    ) -> CommittedStages:
        """Makes stages part of their topics, all or none; the same epoch again changes nothing."""
        return self._run(self._inner.commit(writer, epoch, run, stages, timeout=timeout))

    def abort(self, writer: str, epoch: int) -> None:
        """Drops the stages of an epoch that was not committed."""
        self._run(self._inner.abort(writer, epoch))

    # Bridges

    def add_bridge(
        self,
        server: str,
        *,
        topics: Sequence[str] | None = None,
        login: str | None = None,
        password: str | None = None,
    ) -> None:
        """Bridges this server to another one, for all topics or for some; needs the right `admin`."""
        self._run(self._inner.add_bridge(server, topics=topics, login=login, password=password))

    def remove_bridge(self, server: str) -> None:
        """Ends a bridge; needs the right `admin`."""
        self._run(self._inner.remove_bridge(server))

    def bridges(self) -> list[BridgeState]:
        """The bridges of this server, and how they are."""
        return self._run(self._inner.bridges())

    # The end

    def close(self) -> None:
        """Waits for answers that are due, ends the subscriptions and lets go of the connections."""

        async def close() -> None:
            await self._line.drain()
            await self._inner.close()

        self._run(close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _for_threads(make: Callable[P, client.Session]) -> Callable[P, Session]:
    @functools.wraps(make)
    def session(*args: P.args, **options: P.kwargs) -> Session:
        return Session(make(*args, **options))

    return session


session = _for_threads(client.session)
