"""Staged publishes: many events that become part of their topics together, or not at all."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from echomesh.errors import ClosedError, ConnectionLost
from echomesh.events import Event
from echomesh.mesh.bodies import Stage, Staged
from echomesh.mesh.client_link import Link
from echomesh.mesh.codes import Command

_SEND_BYTES: Final = 1 << 20


class StageWriter:
    """Rows for one (writer, epoch, run, part). They are in no topic before a commit names the stage.

    A stage lives with its connection: when that breaks, `add` and `close` raise `ConnectionLost`, and all its rows have
    to be staged anew.
    """

    def __init__(self, link: Link, writer: str, epoch: int, run: str, part: int) -> None:
        self._link = link
        self._about = (writer, epoch, run, part)
        self._name: str | None = None
        self._topics: list[str] = []
        self._events: list[bytes] = []
        self._bytes = 0
        self._closed = False
        self._generation = 0

    async def add(self, topic: str, event: Event | bytes) -> None:
        """Adds a row; rows are sent in batches."""
        encoded = event.encode() if isinstance(event, Event) else event
        self._topics.append(topic)
        self._events.append(encoded)
        self._bytes += len(encoded)
        if self._bytes >= _SEND_BYTES:
            await self._send(done=False)

    async def close(self) -> Staged:
        """Ends the stage: its rows are on the server's disk, and its name is ready for `commit`."""
        staged = await self._send(done=True)
        self._closed = True
        return staged

    async def _send(self, *, done: bool) -> Staged:
        if self._closed:
            raise ClosedError("the stage is closed")
        if self._name is not None and self._generation != self._link.core.generation:
            raise ConnectionLost("the connection broke, and the stage with it: stage its rows again")
        topics, events = self._topics, self._events
        self._topics, self._events, self._bytes = [], [], 0
        raws = [Raw(event) for event in events]
        body = Stage("", "", *self._about, stage=self._name, topics=topics, cloud_events=raws, done=done)
        staged: Staged = await self._link.request(Command.STAGE_REQUEST, body, again=False)
        self._name, self._generation = staged.stage, self._link.core.generation
        return staged
