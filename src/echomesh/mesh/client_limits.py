"""How long a server may take to answer: only the time counts in which there is a connection and nothing moves."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from echomesh.errors import ConnectionLost, MeshTimeout
from echomesh.mesh.client_events import Broken
from echomesh.mesh.client_outbox import State

if TYPE_CHECKING:
    from echomesh.mesh.client_link import Link


class Limits:
    """The time limits of a link.

    A request that is not answered in time fails. A publish does not: its connection is given up, and it is sent again
    over the next one.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._moved = self.progress = self._loop.time()
        self._since: float | None = None
        self._stalling = False

    def moved(self) -> None:
        """There is a new connection, or a long message is on its way over the one that there is."""
        self._moved = self._loop.time()

    # Requests

    def watch(self, future: asyncio.Future[Any], timeout: float | None) -> None:
        """The future fails with `MeshTimeout` if it is not answered in time."""
        if timeout is not None:
            self._arm(future, timeout, self._loop.time())

    def _arm(self, future: asyncio.Future[Any], timeout: float, since: float) -> None:
        handle = self._loop.call_at(since + timeout, self._due, future, timeout, since)
        future.add_done_callback(lambda _: handle.cancel())

    def _due(self, future: asyncio.Future[Any], timeout: float, since: float) -> None:
        now, core = self._loop.time(), self._link.core
        # How long there may be no connection is limited elsewhere.
        counted = max(since, self._moved) if core.state in (State.UP, State.LEAVING) else now
        if now - counted < timeout:
            self._arm(future, timeout, counted)
            return
        core.withdraw(lambda token: token is future)
        if not future.done():
            future.set_exception(MeshTimeout(f"the server did not answer within {timeout:g} s; it may still do it"))

    # Publishes

    def answered(self) -> None:
        """Publishes were answered."""
        self._since = None
        self._stalling = False

    def stalled(self, publishing: int) -> Broken | None:
        """What to do when publishes are in flight, and none of them was answered for too long."""
        timeout, now = self._link.options.timeout, self._loop.time()
        if not publishing or timeout is None or self._link.core.state is not State.UP:
            self._since = None
            return None
        if self._since is None:
            self._since = now
            if not self._stalling:
                self.progress = now
        if now - max(self._since, self._moved) < timeout:
            return None
        self._stalling = True
        self._since = None
        return Broken(ConnectionLost(f"the server answered no publish within {timeout:g} s"), stalled=True)

    def look_at(self) -> float:
        """When to ask that again."""
        timeout = self._link.options.timeout
        return math.inf if timeout is None else self._loop.time() + timeout / 4
