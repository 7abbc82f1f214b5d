"""Sessions: publish to a server of the mesh, subscribe, ask and answer. `echomesh.session(...)` gives one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from echomesh.errors import MeshError, MeshTimeout, SessionEnded, WrongEventLoop
from echomesh.events import Event
from echomesh.mesh.bodies import Abort, AddBridge, BridgeState, Commit, CommittedStages, InSession, RemoveBridge, Server
from echomesh.mesh.client_link import Link
from echomesh.mesh.client_options import ClientOptions, Tls, parse_address, tls_context
from echomesh.mesh.client_received import Incoming, Lost, Received
from echomesh.mesh.client_replies import Replies, answering, asking
from echomesh.mesh.client_stage import StageWriter
from echomesh.mesh.client_subscription import OnLost, Start, Subscription
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.log_bodies import AskOffsets, AskTopics, Fetch, Fetched, Offsets, TopicState
from echomesh.native.mesh_client import Publisher

COMMIT_S: Final = 600.0

__all__ = ["Lost", "Received", "Session", "StageWriter", "Subscription", "session"]


def session(
    address: str = "localhost",
    *,
    client_id: str,
    password: str | None = None,
    environment: str = "TST",
    tls: Tls = None,
    batch: int | None = None,
    window_events: int = 4096,
    window_bytes: int = 8 << 20,
    connect_timeout: float = 5.0,
    max_outage: float = 60.0,
    timeout: float | None = 30.0,
    reply_topic: str | None = None,
) -> Session:
    """A session with the server at `address` (`host` or `host:port`), for `async with` (`with` in `echomesh.sync`).

    Parameters
    ----------
    client_id, password
        Who you are, by the server's access file. Two processes that subscribe need an id each, or a group.
    environment
        TST, VAL or PRD: events of one are never seen in another.
    tls
        True for a server whose certificate this machine trusts, the path of a PEM file with its authority, or an
        `ssl.SSLContext`.
    batch
        The most events that the server sends in one message; the server's choice by default.
    window_events, window_bytes
        How much may be published and not yet answered; beyond it `publish` waits.
    connect_timeout, max_outage
        How long the first connection is tried, and how long a broken one. After that operations raise
        `ConnectionLost`; the next one tries again.
    timeout
        How long the server may take to answer, while there is a connection. After it a request raises `MeshTimeout`;
        what was published is sent again over a new connection. None waits for ever.
    reply_topic
        Where replies to `request` come to: `replies/<client_id>` by default.
    """
    options = ClientOptions(
        server=parse_address(address),
        client_id=client_id,
        password=password,
        environment=environment,
        tls=tls_context(tls),
        batch=batch,
        window_events=window_events,
        window_bytes=window_bytes,
        connect_timeout=connect_timeout,
        max_outage=max_outage,
        timeout=timeout,
        reply_topic=reply_topic,
    )
    return Session(options)


class Session(Publisher):
    """Publishes, subscribes, asks and answers, over connections that are made when they are first needed."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._asking: Link | None = None
        self._subscriptions: set[Subscription] = set()
        self._replies: Replies | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that it belongs to, from its first use on."""

    # Publishing

    async def publish(
        self, topic: str, event: Event | bytes, *, server: str | None = None, timeout: float | None = None
    ) -> int:
        """Publishes an event, and gives its offset once it is on the server's disk.

        Bytes are an event that is encoded already. With `server` (`host:port`) it goes to that server of the mesh
        alone. When the connection breaks it is sent again on the next one; the server stores it once, by its source
        and id. With `timeout` it raises `MeshTimeout` after so many seconds, whatever the reason; the event may be
        stored all the same.
        """
        if timeout is not None:
            return await self._publish_within(timeout, topic, event, server)
        if self._asking is not None and self._asking.full:
            await self.room()
        return await self.publish_soon(topic, event, server=server)

    async def _publish_within(self, timeout: float, topic: str, event: Event | bytes, server: str | None) -> int:
        try:
            async with asyncio.timeout(timeout):
                return await self.publish(topic, event, server=server)
        except MeshError:
            raise
        except TimeoutError:
            if self._asking is not None:
                self._asking.core.withdraw(lambda token: bool(token.cancelled()))
            raise MeshTimeout(f"no answer within {timeout:g} s; the event may still be stored") from None

    if TYPE_CHECKING:  # the compiled one, which knows no types of events

        def publish_soon(self, topic: str, event: Event | bytes, *, server: str | None = None) -> asyncio.Future[int]:
            """Publishes without waiting: a future of the offset, so that many are in flight."""

    def _publish(self, topic: str, event: Event | bytes, server: str | None) -> asyncio.Future[int]:
        """The whole way of `publish_soon`, for what has no shorter one."""
        encoded = event.encode() if isinstance(event, Event) else event
        target = None if server is None else parse_address(server)
        return self._link().publish(topic, encoded, target)

    def publish_as(self, token: Any, topic: str, event: bytes, server: Server | None = None) -> None:
        """Publishes with a future of the caller's own make: whatever has `done`, `set_result` and `set_exception`."""
        self._link().publish_as(token, topic, event, server)

    async def room(self) -> None:
        """Waits until `publish_soon` may be called."""
        await self._link().room()

    async def publish_many(
        self, topic: str, events: Iterable[Event | bytes], *, server: str | None = None
    ) -> list[int]:
        """Publishes events in order, many in flight; their offsets. They do not share one fate: if one is refused, the
        others are stored all the same, and its error is raised in the end.
        """
        link, target = self._link(), None if server is None else parse_address(server)
        futures: list[asyncio.Future[int]] = []
        for event in events:
            if link.full:
                await link.room()
            futures.append(link.publish(topic, event.encode() if isinstance(event, Event) else event, target))
        return await _all(futures)

    # Subscribing

    def subscribe(
        self,
        *filters: str,
        start: Start = None,
        group: str | None = None,
        ack: Literal["auto", "manual"] = "auto",
        on_lost: OnLost | None = None,
    ) -> Subscription:
        """Subscribes to topics or filters: an async iterator of `Received`, on a connection of its own.

        Parameters
        ----------
        start
            `now`, `earliest`, `last`, an offset or a time. Without it a subscription that this client had before goes
            on after the last acknowledgement, and a new one begins now.
        group
            Sessions that name the same group share the events.
        ack
            `auto`: an event is acknowledged when the next one is taken. `manual`: by `await event.ack()`.
        on_lost
            Called with a `Lost` when events can't be had any more (retention, a damaged disk). Without it,
            `OffsetsLost` is raised; iterating further goes on behind them.
        """
        self._check()
        made = Subscription(self.options, filters, start=start, group=group, ack=ack, on_lost=on_lost)
        self.keep(made)
        return made

    def keep(self, subscription: Subscription) -> None:
        """Closes the subscription with the session, unless it ends before."""
        self._subscriptions.add(subscription)
        subscription.on_end = self._subscriptions.discard

    # Asking and answering

    async def request(self, topic: str, event: Event, *, timeout: float = 30.0) -> Event:
        """Publishes a request, and gives the first reply to it."""
        self._check()
        if self._replies is None or self._replies.over:
            self._replies = Replies(self.options)
        question, link = asking(event, self._replies.topic), self._link()
        return await self._replies.reply(question, lambda: link.publish(topic, question.encode()), timeout)

    async def reply(self, request: Event | Incoming, event: Event) -> int:
        """Answers a request that a subscription gave."""
        return await self.publish(*answering(request.event if isinstance(request, Incoming) else request, event))

    # The log

    async def topics(self, filter: str = "**", *, timeout: float | None = None) -> list[TopicState]:
        """The topics that you may read, with their first and next offsets."""
        answer = await self._request(Command.TOPICS_REQUEST, AskTopics("", "", filter), timeout=timeout)
        return list(answer.topics)

    async def offsets(self, topic: str, *, time_ns: int | None = None, timeout: float | None = None) -> Offsets:
        """Where a topic begins and ends; with `time_ns`, also the first offset of that time or later."""
        body = AskOffsets("", "", topic, time_ns)
        answer: Offsets = await self._request(Command.OFFSETS_REQUEST, body, timeout=timeout)
        return answer

    async def fetch(
        self,
        topic: str,
        offset: int,
        *,
        until: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
    ) -> Fetched:
        """Records as they are stored, for readers such as Spark; `echomesh.native.log_record.scan` reads them."""
        body = Fetch("", "", topic, offset, until, max_bytes)
        answer: Fetched = await self._request(Command.FETCH_REQUEST, body, timeout=timeout)
        return answer

    # Staged publishes

    async def stage(self, writer: str, epoch: int, run: str, part: int = 0) -> StageWriter:
        """Begins a stage: rows that belong to no topic until `commit` names it."""
        return StageWriter(self._link(), writer, epoch, run, part)

    async def commit(
        self, writer: str, epoch: int, run: str, stages: Sequence[str], *, timeout: float = COMMIT_S
    ) -> CommittedStages:
        """Makes stages part of their topics, all or none; the same epoch again changes nothing.

        Large stages take a while, so `timeout` is longer than that of other requests.
        """
        body = Commit("", "", writer, epoch, run, list(stages))
        answer: CommittedStages = await self._request(Command.COMMIT_REQUEST, body, timeout=timeout)
        return answer

    async def abort(self, writer: str, epoch: int) -> None:
        """Drops the stages of an epoch that was not committed."""
        await self._request(Command.ABORT_REQUEST, Abort("", "", writer, epoch))

    # Bridges

    async def add_bridge(
        self,
        server: str,
        *,
        topics: Sequence[str] | None = None,
        login: str | None = None,
        password: str | None = None,
    ) -> None:
        """Bridges this server to another one, for all topics or for some; needs the right `admin`.

        With `login` and `password` it is this client there, else the one of its configuration. It keeps them, in a file
        that only its own user can read.
        """
        there = parse_address(server)
        filters = None if topics is None else list(topics)
        body = AddBridge(there.urn, there.port, topics=filters, login=login, password=password)
        await self._request(Command.ADD_BRIDGE_REQUEST, body, again=False)

    async def remove_bridge(self, server: str) -> None:
        """Ends a bridge; needs the right `admin`."""
        there = parse_address(server)
        await self._request(Command.REMOVE_BRIDGE_REQUEST, RemoveBridge(there.urn, there.port), again=False)

    async def bridges(self) -> list[BridgeState]:
        """The bridges of this server, and how they are."""
        answer = await self._request(Command.BRIDGES_REQUEST, InSession("", ""))
        return list(answer.bridges)

    # The end

    async def close(self) -> None:
        """Waits for answers that are due, ends the subscriptions and lets go of the connections."""
        if self._closed:
            return
        self._check_loop()
        self._closed = True
        ending: list[Any] = [subscription.close() for subscription in self._subscriptions]
        if self._replies is not None:
            ending.append(self._replies.close())
        if self._asking is not None:
            ending.append(self._asking.close())
        await asyncio.gather(*ending)

    async def __aenter__(self) -> Self:
        self._check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check(self) -> None:
        if self._closed:
            raise SessionEnded("the session was closed: make a new one")
        self._check_loop()

    def _check_loop(self) -> None:
        running = asyncio._get_running_loop()
        if self._loop is None:
            self._loop = running
        if running is None or running is not self._loop:
            raise WrongEventLoop

    def _link(self) -> Link:
        """The connection that publishes and asks; a new one if there is none, or the last one failed."""
        self._check()
        if self._asking is None or self._asking.error is not None:
            self._asking = Link(self.options, Purpose.PUBLISH)
            self.soon = self._asking.soon
        return self._asking

    async def _request(self, command: Command, body: Any, *, again: bool = True, timeout: float | None = None) -> Any:
        return await self._link().request(command, body, again=again, timeout=timeout)


async def _all(futures: list[asyncio.Future[int]]) -> list[int]:
    offsets: list[int] = []
    failed: MeshError | None = None
    for future in futures:
        try:
            offsets.append(await future)
        except MeshError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return offsets
