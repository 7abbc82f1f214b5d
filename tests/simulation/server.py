"""A server of the simulation: the real core, as one process after another on the same disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING

from echomesh.errors import LogError
from echomesh.log.storage import PowerCut
from echomesh.mesh.access import ClientRights
from echomesh.mesh.bridging import Bridge
from echomesh.mesh.connection import Connection
from echomesh.mesh.core import MeshCore
from echomesh.mesh.options import MeshOptions
from echomesh.mesh.pipe import Pipe
from echomesh.mesh.ports import Rights
from tests.simulation.clock import Action, Clock
from tests.simulation.disk import Disk, DiskLog, DiskState
from tests.simulation.network import End, Network, Owner
from tests.simulation.spoken import Spoken

if TYPE_CHECKING:
    from tests.simulation.witness import Witness

GRACE_S = 2.0


class Host:
    """A machine: its disk, its address, and the server process that runs there, if one does."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        witness: Witness,
        disk: Disk,
        options: MeshOptions,
        clients: Mapping[str, ClientRights],
    ) -> None:
        self.clock = clock
        self.network = network
        self.witness = witness
        self.disk = disk
        self.options = options
        self.clients = clients
        self.name = options.urn
        self.process: Process | None = None
        self._power = False
        self._ids = count(1)

    def start(self) -> None:
        """Starts a process, unless there is one."""
        if self.process is None:
            self.clock.note(self.name, "starts")
            try:
                process = Process(self)
            except PowerCut:
                self.ended()
                return
            except OSError as error:
                self.clock.note(self.name, f"can't start: {error}")
                self.clock.after(0.5, self.start)
                return
            self.process = process
            self.network.listen(self.name, process.accept)
            process.begin()

    def end_after(self, steps: int, *, power: bool) -> None:
        """Ends the process so many writes from now; with `power` the machine goes too, and what was not synced."""
        self._power = power
        self.disk.fail_after(steps, power=power)

    def kill(self, *, power: bool) -> None:
        """Ends the process now."""
        if self.process is not None:
            self._power = power
            self.ended()

    def ended(self) -> None:
        """The process is gone, whatever it was doing."""
        power, self._power = self._power, False
        self.clock.note(self.name, "loses its power" if power else "is killed")
        process, self.process = self.process, None
        self.network.deaf(self.name)
        if process is not None:
            process.vanish(told=not power)
        self.disk.left_by_kill()
        if power:
            self.disk.left_by_power_cut()
        self.witness.process_ended(self.name, power=power)

    def new_id(self) -> str:
        """A session id, the same in each run."""
        return f"{self.name}-{next(self._ids)}"


class Process:
    """One run of a server: what the real shell does, on a simulated loop."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.clock = host.clock
        self.over = False
        self.asleep = False
        self.stopping = False
        self._stalled: list[Action] = []
        self._wires: list[Wire] = []
        self._flushing = False
        self._tick_due = 0.0
        self.log = DiskLog(host.disk, self.later, self._settled)
        try:
            self.state = DiskState(host.disk, self.log.log_id, self.later, self._settled)
            self.core = MeshCore(
                self.log,
                self,
                self.state,
                host.options,
                credentials=lambda server: ("server", "right"),
                new_id=host.new_id,
            )
        except BaseException:
            self.vanish(told=True)
            raise

    # The loop: turns, one after the other, as long as the process lives

    def later(self, delay: float, action: Action) -> None:
        """Does something in a turn of its own, after so many seconds."""
        self.clock.after(delay, lambda: self.do(action))

    def do(self, action: Action) -> None:
        """Does something now, unless the process is gone; one that sleeps does it when it wakes."""
        if self.over:
            return
        if self.asleep:
            self._stalled.append(action)
            return
        try:
            action()
        except PowerCut:
            self.host.ended()

    def sleep(self) -> None:
        """Stops doing anything, as under SIGSTOP."""
        self.asleep = True

    def wake(self) -> None:
        """Goes on."""
        self.asleep = False
        stalled, self._stalled = self._stalled, []
        for action in stalled:
            self.do(action)
        for wire in list(self._wires):
            wire.end.wake()

    def begin(self) -> None:
        """The first turn."""
        self.core.on_output = self.flush_soon
        self.core.on_timer = self._tick_at
        self.do(self._tick)
        self.do(self._care)

    def _tick(self) -> None:
        now = self.clock.now
        if now >= self._tick_due:
            self._tick_due = float("inf")
            self._tick_at(min(self.core.tick(now), now + 1.0))
            self.flush_soon()

    def _tick_at(self, when: float) -> None:
        if when < self._tick_due:
            self._tick_due = when
            self.later(max(when - self.clock.now, 0.0), self._tick)

    def _care(self) -> None:
        self.log.care()
        self.later(1.0, self._care)

    def _settled(self) -> None:
        self.core.settled(self.clock.now)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Output leaves at the end of this turn."""
        if not self._flushing:
            self._flushing = True
            self.later(self.clock.random.choice((0.0, 0.0, 0.0005)), self._flush)

    def _flush(self) -> None:
        self._flushing = False
        core = self.core
        core.pump()
        self.host.witness.flushed(self.host.name, kept=self.state.flush())
        while core.dirty:
            dirty, core.dirty = core.dirty, []
            for pipe in dirty:
                if isinstance(pipe.wire, Wire):
                    pipe.wire.flush()
        while core.bridges.to_dial:
            self._dial(core.bridges.to_dial.pop())

    # Connections

    def accept(self, end: End) -> Owner:
        """Somebody connects."""
        wire = Wire(self, end)
        self._wires.append(wire)
        self.do(lambda: wire.begin(self.core.connect(end.there, self.clock.now)))
        return wire

    def _dial(self, bridge: Bridge) -> None:
        def answered(end: End | None) -> Owner | None:
            if self.over:
                return None
            if end is None:
                self.do(lambda: self._dial_failed(bridge))
                return None
            wire = Wire(self, end)
            self._wires.append(wire)
            self.do(lambda: wire.begin(self.core.bridges.dialed(bridge, self.clock.now)))
            return wire

        self.host.network.dial(self.host.name, bridge.server.urn, answered)

    def _dial_failed(self, bridge: Bridge) -> None:
        self.core.bridges.dial_failed(bridge, "nobody there", self.clock.now)
        self.flush_soon()

    def forget(self, wire: Wire) -> None:
        """The connection is over."""
        if wire in self._wires:
            self._wires.remove(wire)

    # Who may what

    def verify(self, client_id: str, password: str | None, done: Callable[[Rights | None], None]) -> None:
        """Checks a password, which takes a while."""

        def checked() -> None:
            self.core.now = self.clock.now
            done(self.rights(client_id) if password == "right" else None)
            self.flush_soon()

        if self.clock.chance(0.5):
            checked()
        else:
            self.later(self.clock.random.uniform(0.0, 0.05), checked)

    def rights(self, client_id: str) -> Rights | None:
        """What the client may."""
        return self.host.clients.get(client_id)

    def mark(self, client_id: str) -> bytes:
        """Nothing about it changes."""
        return client_id.encode()

    # The end

    def vanish(self, *, told: bool) -> None:
        """Nothing of the process is left but what it wrote."""
        self.over = True
        for wire in self._wires:
            wire.end.vanish(told=told)
        self.log.core.abandon()
        self.log.reader.close()

    def stop(self, restart: Action) -> None:
        """Ends as a server should, and then does something."""
        if self.over or self.stopping:
            return
        self.stopping = True
        self.clock.note(self.host.name, "is told to stop")
        self.host.network.deaf(self.host.name)
        self.do(lambda: self.core.stop(self.clock.now))
        self.do(self.flush_soon)
        deadline = self.clock.now + GRACE_S
        self.later(0.01, lambda: self._wait_idle(deadline, restart))

    def _wait_idle(self, deadline: float, restart: Action) -> None:
        if not self.core.idle and self.clock.now < deadline:
            self.later(0.01, lambda: self._wait_idle(deadline, restart))
            return
        self._flush()
        for wire in self._wires:
            if wire.pipe is not None:
                wire.pipe.close()
        self._flush()
        self.later(0.01, lambda: self._wait_closed(deadline, restart))

    def _wait_closed(self, deadline: float, restart: Action) -> None:
        if self._wires and self.clock.now < deadline:
            self.later(0.01, lambda: self._wait_closed(deadline, restart))
            return
        try:
            self.state.file.close()
            self.log.core.close()
        except (OSError, LogError) as error:
            self.clock.note(self.host.name, f"can't leave all in order: {error}")
        self.clock.note(self.host.name, "has stopped")
        self.host.kill(power=False)
        restart()


class Wire:
    """One connection of a process."""

    def __init__(self, process: Process, end: End) -> None:
        self.process = process
        self.end = end
        self.pipe: Pipe | None = None
        self._reading = True
        self._in = Spoken(process.clock, end.here, f"<- {end.there}")
        self._out = Spoken(process.clock, end.here, f"-> {end.there}")

    @property
    def asleep(self) -> bool:
        return self.process.asleep

    def begin(self, pipe: Pipe | None) -> None:
        """This is who speaks here; nobody when the server does not want the connection."""
        self.pipe = pipe
        if pipe is None:
            self.end.abort()
        else:
            pipe.wire = self
            self.process.flush_soon()

    def received(self, data: bytes) -> None:
        self.process.do(lambda: self._received(data))

    def _received(self, data: bytes) -> None:
        if self.pipe is None:
            return
        process = self.process
        core, now = process.core, process.clock.now
        core.now = now
        self._in.heard(data)
        if isinstance(self.pipe, Connection) and not self.pipe.closing:
            process.host.witness.received(self, process.host.name, data)
        self.pipe.receive(data, now)
        if core.answerable:
            core.settled(now)
        if self._reading and self.pipe.paused:
            self._reading = False
            self.end.read(False)
        process.flush_soon()

    def flush(self) -> None:
        """Sends what the connection has, and ends it if that was the last."""
        if self.pipe is None or self.end.over:
            return
        if self.pipe.aborting:
            self.end.abort()
            return
        if data := self.pipe.take_output():
            self._out.heard(data)
            self.process.host.witness.sent(self, data)
            self.end.write(data)
        if self.pipe.closing:
            self.end.close()
        elif not self._reading and not self.pipe.paused:
            self._reading = True
            self.end.read(True)

    @property
    def unsent(self) -> int:
        """Bytes that the other end has not read yet."""
        return self.end.unread

    def writable(self, yes: bool) -> None:
        self.process.do(lambda: self._writable(yes))

    def _writable(self, yes: bool) -> None:
        if self.pipe is not None:
            self.pipe.blocked = not yes
            if yes:
                self.pipe.unblocked()
                self.process.core.dirty.append(self.pipe)
                self.process.flush_soon()

    def lost(self) -> None:
        self.process.do(self._lost)

    def _lost(self) -> None:
        self.process.forget(self)
        self.process.host.witness.lost(self)
        if self.pipe is not None:
            self.pipe.lost(self.process.clock.now)
        self.process.flush_soon()
