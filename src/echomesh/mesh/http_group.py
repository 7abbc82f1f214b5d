"""Server-sent events for a member of a group: a session inside the server that acknowledges what it sends."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from echomesh.errors import BadEvent
from echomesh.frames import Splitter
from echomesh.mesh import http_sse as sse
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Deliver, Hello
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.http_problems import unavailable
from echomesh.mesh.session import Session

if TYPE_CHECKING:
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.http_auth import Caller
    from echomesh.mesh.ports import Pending
    from echomesh.mesh.server import MeshServer


class Member:
    """The source of one member's events, and the wire of its session.

    The place of the group is the server's, as for sessions. An event counts as dealt with once it was written to the
    reader's connection; what comes behind waits in the log.
    """

    def __init__(self, server: MeshServer, caller: Caller, *, position: bool = False) -> None:
        self.woken = asyncio.Event()
        self.ended = False
        self._server = server
        self._core = server.core
        self._position = position
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter(1 << 40)
        self._waiting: deque[Deliver] = deque()
        self._taken: Deliver | None = None
        connection = self._core.connect(caller.peer, self._loop.time())
        if connection is None:
            raise unavailable("too many connections: try again soon")
        self._connection: Connection = connection
        connection.wire = self
        hello = Hello(caller.client_id, caller.environment, purpose=Purpose.SUBSCRIBE)
        session = Session(self._core.new_id(), hello, caller.rights, connection, self._core.options.batch_events)
        self._session = connection.session = self._core.sessions[session.id] = session

    async def join(self, filter: str, start: Any, group: str) -> None:
        """Subscribes; done when that is on disk."""
        synced: asyncio.Future[None] = self._loop.create_future()

        def settled(pending: Pending) -> None:
            if not synced.done():
                try:
                    pending.result()
                except Exception as error:
                    synced.set_exception(error)
                else:
                    synced.set_result(None)

        try:
            self._core.subscriptions.subscribe(self._session, [filter], start, group)
            self._core.when_synced(settled)
            self._server.flush_soon()
            await synced
        except BaseException:
            self.close()
            raise

    # As the wire of its session

    def flush(self) -> None:
        """Takes what the session has for its client."""
        self._connection.heard = self._loop.time()
        for payload in self._splitter.feed(self._connection.take_output()):
            message = protocol.decode(payload)
            if message.command == Command.ASYNC_MESSAGE_TO_CLIENT:
                self._waiting.append(protocol.body_of(message))
        self.ended = self.ended or self._connection.closing
        self.woken.set()

    def abort(self) -> None:
        """The server gives it up."""
        self.ended = True
        self.close()
        self.woken.set()

    # As the source of a stream

    def hello(self) -> bytes:
        """A comment, so that the reader sees that it has begun."""
        return self.beat()

    def beat(self) -> bytes:
        """A comment."""
        self._connection.heard = self._loop.time()
        return b":\n\n"

    def take(self) -> bytes:
        """The next batch; the one before is acknowledged by asking for this one."""
        if (taken := self._taken) is not None:
            self._taken = None
            self._session.delivery.acknowledge(taken.topic, _behind(taken), taken.offset)
            self._server.flush_soon()
        while self._waiting:
            self._taken = self._waiting.popleft()
            return self._render(self._taken)
        return b""

    def _render(self, batch: Deliver) -> bytes:
        if batch.lost is not None:
            return sse.lost(batch.topic, *batch.lost, "they can't be had any more")
        blocks = []
        for offset, stored in enumerate(batch.cloud_events, batch.offset):
            try:
                data = sse.render(bytes(stored), batch.topic, offset if self._position else None)
            except BadEvent as error:
                blocks.append(sse.lost(batch.topic, offset, offset + 1, str(error)))
            else:
                blocks.append(sse.block(data))
        return b"".join(blocks)

    def close(self) -> None:
        """Leaves the group: what was not acknowledged goes to the others."""
        self._connection.lost(self._loop.time())
        self._server.flush_soon()


def _behind(batch: Deliver) -> int:
    return batch.lost[1] if batch.lost is not None else batch.offset + len(batch.cloud_events)
