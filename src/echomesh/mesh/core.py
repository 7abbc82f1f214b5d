"""The server's core: pure, so that a simulation can run whole meshes of them.

Bytes come in through `Connection.receive`, and go out of those in `dirty`. What waits for the disk is looked at in
`settled`, which the shell calls after each commit; what waits for time, in `tick`.
"""

from __future__ import annotations

import heapq
import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from echomesh.mesh import publishing
from echomesh.mesh.arrivals import Arrivals
from echomesh.mesh.bodies import Server
from echomesh.mesh.bridging import Bridging
from echomesh.mesh.connection import Connection
from echomesh.mesh.cursors import Cursors
from echomesh.mesh.delivery import Batches, Delivery, Share
from echomesh.mesh.limits import Failures, Rate
from echomesh.mesh.logins import LoginsInMemory
from echomesh.mesh.open_stages import OpenStages
from echomesh.mesh.options import MeshOptions
from echomesh.mesh.pipe import Pipe
from echomesh.mesh.ports import AccessPort, Login, Logins, LogPort, Pending, StatePort
from echomesh.mesh.session import Session
from echomesh.mesh.strangers import Strangers
from echomesh.mesh.subscriptions import Subscriptions
from echomesh.mesh.tickets import KEY_BYTES, Tickets
from echomesh.mesh.topic_count import TopicCount
from echomesh.mesh.ways import Ways
from echomesh.native.mesh_publish import Publishes

LOOK_S: Final = 0.05  # timers may come often; all connections are looked through no more often than this

Settled = Callable[[Pending], None]
Grown = Callable[[str, str], None]


@dataclass
class Counts:
    """What a server has done since it started."""

    published: int = 0
    delivered: int = 0
    refused_hellos: int = 0
    refused_connections: int = 0
    dead_letters: int = 0
    bridged_in: int = 0
    bridged_out: int = 0
    refused_events: int = 0
    too_far: int = 0
    repeated_otherwise: int = 0  # commits of an epoch again, with another number of rows


class MeshCore:
    """Sessions, subscriptions and deliveries of one server."""

    def __init__(
        self,
        log: LogPort,
        access: AccessPort,
        state: StatePort,
        options: MeshOptions,
        *,
        local_access: AccessPort | None = None,
        credentials: Callable[[Server], Login] = lambda server: ("server", None),
        logins: Logins | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(24),
        ticket_key: bytes | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.log = log
        self.state = state
        self.options = options
        self.new_id = new_id
        self.now = 0.0
        self.stopping = False
        self.counts = Counts()
        self.connections: dict[Connection, None] = {}
        self.strangers = Strangers(options.strangers_bytes)
        self.sessions: dict[str, Session] = {}
        self.dirty: list[Pipe] = []
        """Connections with output, or that are to be closed."""
        self.on_output: Callable[[], None] | None = None
        """Called when the first of them gets dirty."""
        self.on_timer: Callable[[float], None] | None = None
        """Called when something is to be done at a time, with the time."""
        self.waiting = Publishes()
        """Publishes that wait for the disk, in order."""
        self.to_pump: dict[Delivery, None] = {}
        self._to_go_on: dict[Connection, None] = {}
        self.listeners: list[Grown] = []
        """Called with environment and topic whenever a topic has new events to read."""
        self.cursors = Cursors(state)
        self.ways = Ways(state, options.max_origins)
        self.batches = Batches(self)
        self.topics = TopicCount(log, self.cursors, options)
        self.subscriptions = Subscriptions(self)
        self.stages = OpenStages(options.max_stages)
        self.guesses = Failures()
        self.tickets = Tickets(ticket_key or os.urandom(KEY_BYTES), wall_clock)
        self._rates: dict[str, Rate] = {}
        self.arrivals = Arrivals(self)
        self.bridges = Bridging(self, credentials, logins or LoginsInMemory())
        self._checkpoint_at = self._look_at = 0.0
        self._looked = -LOOK_S
        self._access = access
        self._local_access = local_access
        self._others: deque[tuple[Pending, Settled]] = deque()
        self._settling = False  # then nothing is sent on yet: links first hear of all that came to them
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_ids = count()

    def mark(self, pipe: Pipe) -> None:
        """The connection has output, or is to be closed."""
        self.dirty.append(pipe)
        if len(self.dirty) == 1 and self.on_output is not None:
            self.on_output()

    def go_on_soon(self, connection: Connection) -> None:
        """The connection has requests that it held; they are dealt with in the next turn."""
        self._to_go_on[connection] = None
        if self.on_output is not None:
            self.on_output()

    def connect(self, peer: str, now: float, *, local: bool = False) -> Connection | None:
        """A connection came in; None when there are too many sessions.

        When there are too many strangers, the one that has said nothing for longest makes room.
        """
        self.now = now
        if len(self.connections) >= self.options.max_connections and not self.strangers.make_room():
            return None
        if self.stopping:
            return None
        connection = Connection(self, peer, now, local=local)
        self.connections[connection] = None
        self.strangers.add(connection)
        return connection

    def known(self, connection: Connection) -> None:
        """The connection has a session, or will never have one."""
        self.strangers.forget(connection)

    def access_of(self, connection: Connection) -> AccessPort:
        """Who judges this connection: without an access file those of this machine may do everything."""
        return self.judge(connection.local)

    def judge(self, local: bool) -> AccessPort:
        """Who judges those of this machine (`local`), and those of others."""
        return self._local_access if local and self._local_access is not None else self._access

    def open_to(self, local: bool) -> bool:
        """Whether nobody of there is asked for a password."""
        return local and self._local_access is not None

    def rate(self, client_id: str, per_second: float) -> Rate:
        """The limit of a client, shared by its sessions."""
        rate = self._rates.get(client_id)
        if rate is None or rate.per_second != per_second:
            rate = self._rates[client_id] = Rate(per_second)
        return rate

    def is_here(self, server: Server) -> bool:
        """Whether an address is this server's own."""
        return server.urn == self.options.urn and server.port == self.options.port

    def end_session(self, connection: Connection, now: float) -> None:
        """The session is over; its connection may still have an answer to bring."""
        session = connection.session
        if session is not None:
            connection.session = None
            connection.lane = None
            self.sessions.pop(session.id, None)
            self.subscriptions.leave(session)
            self.bridges.left(session, now)
            self.stages.end(session, self.log.beside)

    def forget(self, connection: Connection, now: float) -> None:
        """The connection is gone."""
        self.now = now
        self.end_session(connection, now)
        self.connections.pop(connection, None)
        self.known(connection)
        self.pump()

    def reconsider(self, clients: frozenset[str]) -> None:
        """The rights of these clients are others now: their sessions end, and who comes back is judged anew."""
        for session in self.sessions.values():
            if session.client_id in clients:
                session.connection.close()

    # What waits

    def when_done(self, pending: Pending, settled: Settled) -> None:
        """Calls `settled(pending)` once it is done: now, or in a later `settled`."""
        if pending.done():
            settled(pending)
        else:
            self._others.append((pending, settled))

    def when_synced(self, settled: Settled) -> None:
        """Calls `settled` once all that was put into the state is on disk."""
        self.when_done(self.state.sync(), settled)

    def settled(self, now: float) -> None:
        """Answers all whose work is on disk, and delivers what has become readable."""
        self.now = now
        before = self.waiting.settled
        self._settling = True
        try:
            grown = self.waiting.settle(publishing.published)
            for _ in range(len(self._others)):
                pending, done = self._others.popleft()
                if pending.done():
                    done(pending)
                else:
                    self._others.append((pending, done))
        finally:
            self._settling = False
        self.counts.published += self.waiting.settled - before
        for environment, topic in grown:
            self._tell(environment, topic)
        self.pump()

    def grew(self, environment: str, topic: str) -> None:
        """Somebody else appended to the topic."""
        self._tell(environment, topic)
        if not self._settling:
            self.pump()

    def _tell(self, environment: str, topic: str) -> None:
        self.subscriptions.grew(environment, topic)
        self.bridges.grew(environment, topic)
        for listener in self.listeners:
            listener(environment, topic)

    def pump(self) -> None:
        """Sends what can be sent."""
        while self._to_go_on:
            connection, _ = self._to_go_on.popitem()
            connection.go_on(self.now)
        while self.to_pump:
            delivery, _ = self.to_pump.popitem()
            delivery.pump()
        self.bridges.pump()

    def store(self, share: Share) -> None:
        """Keeps how far a share is."""
        if (done := share.acknowledged) > share.stored:
            share.stored = done
            self.cursors.acknowledge(share.environment, share.owner, share.topic, done)

    def again(self, share: Share, offset: int) -> None:
        """The time of a refused event has come."""
        if offset in share.waiting:
            share.waiting.discard(offset)
            share.give_again(offset)
            self.subscriptions.wake(share)

    # Time

    def later(self, when: float, action: Callable[[], None]) -> None:
        """Does something at a time; see `tick`."""
        heapq.heappush(self._timers, (when, next(self._timer_ids), action))
        if self.on_timer is not None:
            self.on_timer(when)

    def tick(self, now: float) -> float:
        """Does what is due, and says when the next thing is."""
        self.now = now
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        if now >= self._looked + LOOK_S:
            self._looked = now
            self._look_at = self._close_silent(now)
        self.bridges.tick(now)
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + self.options.checkpoint_s
            self.arrivals.checkpoint()
        self.pump()
        return min(self._look_at, self._timers[0][0]) if self._timers else self._look_at

    def _close_silent(self, now: float) -> float:
        hello_s = min(3 * self.options.heartbeat_s, self.options.stranger_s)
        for connection in self.connections:
            stranger = connection.session is None and not connection.closing
            late = now - connection.since > hello_s if stranger else connection.silent(now)
            if late and not connection.checking:
                connection.abort()
            else:
                connection.reassure(now)
        return now + min(self.options.heartbeat_s, self.options.stranger_s) / 4

    def stop(self, now: float) -> None:
        """Takes nothing new, and tells everybody; what waits for the disk is still answered."""
        self.now = now
        self.stopping = True
        self.arrivals.checkpoint()
        self.bridges.store()
        for session in self.sessions.values():
            session.delivery.notice("stopping", [])

    @property
    def answerable(self) -> bool:
        """Whether something was done at once, without a commit."""
        return self.waiting.answerable

    @property
    def idle(self) -> bool:
        """Whether every request was answered."""
        return not self.waiting and not self._others
