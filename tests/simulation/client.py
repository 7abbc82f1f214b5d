"""Clients of the simulation: the real core of a client, connections that are made again, and processes that crash."""

from __future__ import annotations

from echomesh.mesh.bodies import Hello
from echomesh.mesh.client_core import ClientCore
from echomesh.mesh.client_events import Broken, Ended, Happening, Up
from echomesh.mesh.client_options import Backoff
from echomesh.mesh.client_outbox import State
from tests.simulation.clock import Action, Clock
from tests.simulation.network import End, Network, Owner

LONGEST_PAUSE_S = 1.0


class Client:
    """One program that talks to one server; after a crash it begins with nothing but what it wrote down."""

    def __init__(self, clock: Clock, network: Network, server: str, hello: Hello) -> None:
        self.clock = clock
        self.network = network
        self.server = server
        self.hello = hello
        self.name = hello.client_id
        self.life = 0
        self.core = self.make_core()
        self.left = False
        self.idles = clock.chance(0.5)
        """Whether it is busy with something else at times, and does not read."""
        self._backoff = Backoff(longest_s=LONGEST_PAUSE_S, rng=clock.random)
        self._wire: ClientWire | None = None
        self._flushing = False

    def start(self) -> None:
        """Begins a life."""
        self.life += 1
        self.core = self.make_core()
        self._wire = None
        self._flushing = False
        self.begin()
        self._connect()
        self.later(0.5, self._tick)

    def make_core(self) -> ClientCore:
        """What speaks for it in one life."""
        return ClientCore(self.hello)

    def begin(self) -> None:
        """What a program does first."""

    def crash(self, *, told: bool) -> None:
        """The program is gone, and begins anew after a while; the server may not hear of it."""
        self.clock.note(self.name, "crashes")
        self.life += 1
        if self._wire is not None:
            self._wire.end.vanish(told=told)
            self._wire = None
        if not self.left:
            self.clock.after(self.clock.random.uniform(0.0, 1.0), self.start)

    def leave(self) -> None:
        """Ends the session as one should, when that is possible, and comes no more."""
        self.left = True
        if self.core.state is State.UP:
            self.core.disconnect()
            self.flush()
        elif self._wire is not None:
            self._wire.end.abort()

    @property
    def gone(self) -> bool:
        """Whether it has no connection."""
        return self._wire is None

    def later(self, delay: float, action: Action) -> None:
        """Does something after a while, in this life."""
        life = self.life

        def act() -> None:
            if self.life == life:
                action()

        self.clock.after(delay, act)

    def flush_soon(self) -> None:
        """Sends what there is, with what else comes in this turn."""
        if not self._flushing:
            self._flushing = True
            self.later(self.clock.random.choice((0.0, 0.001, 0.01)), self.flush)

    def flush(self) -> None:
        """Sends what there is."""
        self._flushing = False
        if self._wire is not None:
            self.core.flush()
            if data := self.core.take_output(self.clock.now):
                self._wire.end.write(data)

    # The connection

    def _connect(self) -> None:
        if self.left:
            return
        life = self.life

        def answered(end: End | None) -> Owner | None:
            if self.life != life:
                return None
            if end is None:
                self.later(self._backoff.pause(), self._connect)
                return None
            self._wire = ClientWire(self, end)
            self.core.connected(self.clock.now)
            self.flush_soon()
            return self._wire

        self.network.dial(self.name, self.server, answered)

    def _tick(self) -> None:
        if self._wire is not None and self.core.state is not State.DOWN:
            self.handle(self.core.tick(self.clock.now))
            self.flush_soon()
        if not self.left:
            self.later(0.5, self._tick)

    def received(self, wire: ClientWire, data: bytes) -> None:
        """Bytes came over a connection that may be an old one."""
        if wire is self._wire:
            self.handle(self.core.receive(data, self.clock.now))
            self.flush_soon()

    def lost(self, wire: ClientWire) -> None:
        """A connection is over."""
        if wire is self._wire:
            self._wire = None
            self.handle(self.core.disconnected())
            self.later(self._backoff.pause(), self._connect)

    def handle(self, happenings: list[Happening]) -> None:
        """Deals with what happened."""
        life = self.life
        for what in happenings:
            if self.life != life:
                return
            if isinstance(what, Broken | Ended):
                self.clock.note(self.name, f"is done with its connection: {what}")
                if self._wire is not None:
                    self._wire.end.abort()
            else:
                if isinstance(what, Up):
                    self._backoff.reset()
                self.happened(what)

    def happened(self, what: Happening) -> None:
        """One thing happened that is no end of a connection."""


class ClientWire:
    """One connection of a client."""

    asleep = False

    def __init__(self, client: Client, end: End) -> None:
        self.client = client
        self.end = end

    def received(self, data: bytes) -> None:
        client = self.client
        client.received(self, data)
        if client.idles and client.clock.chance(0.02):
            self.end.read(False)
            client.clock.after(client.clock.random.uniform(0.0, 0.5), self._read)

    def _read(self) -> None:
        if not self.end.over:
            self.end.read(True)

    def lost(self) -> None:
        self.client.lost(self)

    def writable(self, yes: bool) -> None:
        pass
