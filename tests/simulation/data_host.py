"""A machine of the data plane in the simulator: its participant's real core, its processes, its links."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from echomesh.data.messages import VERSION, Hello, Process
from echomesh.data.outputs import Broadcast, Close, Dial, Output, Send, Streamed, Unwire, Wire
from echomesh.data.participant_core import Identity, ParticipantCore
from tests.simulation.data_process import LocalEnd
from tests.simulation.network import DIAL_SECONDS, End

if TYPE_CHECKING:
    from tests.simulation.data_world import DataWorld

COOKIE = b"cookie"
BEACON_S = 1.0


class Socket:
    """An end of a connection between two participants, in the hands of one of them."""

    def __init__(self, host: Host, core: ParticipantCore, end: End, number: int) -> None:
        self._host = host
        self._core = core
        self.end = end
        self.number = number

    @property
    def asleep(self) -> bool:
        """Whether its participant is stopped."""
        return self._host.asleep

    def received(self, data: bytes) -> None:
        """Bytes came."""
        self._host.act(self._core, lambda now: self._core.received(self.number, data, now))

    def lost(self) -> None:
        """The connection is over."""
        if self._host.sockets.pop(self.number, None) is self:
            self._host.act(self._core, lambda now: self._core.lost(self.number, now))

    def writable(self, yes: bool) -> None:
        """The real shell drops who does not read; here all read in the end."""


class Host:
    """One machine. `core` is None while its participant is down."""

    def __init__(self, world: DataWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.core: ParticipantCore | None = None
        self.asleep = False
        self.sockets: dict[int, Socket] = {}
        self.desks: dict[int, LocalEnd] = {}
        self.ends: list[LocalEnd] = []
        self.wires: dict[int, Wire] = {}
        """Streams that its participant wants to be there."""
        self.clock_s = 0.0
        """How wrong its time of day is."""
        self._id = world.clock.random.randbytes(16)
        self._ticking = float("inf")
        self._missed: list[Callable[[], None]] = []

    # Coming and going

    def start(self) -> None:
        """Starts the participant; one that was restarted often has another id, and its clock may be wrong."""
        clock = self.world.clock
        if clock.chance(0.7):
            self._id = clock.random.randbytes(16)
        started = max(0, clock.time_ns() + int(self.clock_s * 1e9))
        hello = Hello(7000, VERSION, "sim", self._id, started)
        identity = Identity(
            hello=hello,
            cookie=COOKIE,
            beacon_s=BEACON_S,
            linger_s=float("inf"),
            first_reference=1 + (clock.random.getrandbits(30) << 32),
        )
        core = self.core = ParticipantCore(identity, clock.now, self._proven)
        self.world.network.listen(self.name, self._accept)
        self._ticking = float("inf")
        self.world.clock.note(self.name, f"participant {self._id.hex()[:4]} starts")
        self.act(core, core.advance)

    def _proven(self, process: Process) -> bool:
        return process.proof == b"proof"

    def kill(self, *, told: bool) -> None:
        """The participant is gone; with `told` its neighbours' kernels hear of it."""
        self.world.clock.note(self.name, f"participant dies, {'told' if told else 'untold'}")
        self.core = None
        self.asleep = False
        self._missed.clear()
        self.world.network.deaf(self.name)
        for socket in list(self.sockets.values()):
            socket.end.vanish(told=told)
        self.sockets.clear()
        self.wires.clear()
        desks, self.desks = self.desks, {}
        for end in desks.values():
            end.disconnected()

    def sleep(self) -> None:
        """SIGSTOP."""
        self.asleep = True

    def wake(self) -> None:
        """SIGCONT: what came meanwhile is looked at in its order."""
        self.asleep = False
        missed, self._missed = self._missed, []
        for happened in missed:
            happened()
        for socket in self.sockets.values():
            socket.end.wake()

    # What happens

    def act(self, core: ParticipantCore, happens: Callable[[float], None]) -> None:
        """Lets something happen to the core, unless it is no more, and does what it asks for."""
        if self.core is not core:
            return
        if self.asleep:
            self._missed.append(lambda: self.act(core, happens))
            return
        happens(self.world.clock.now)
        for output in core.take():
            self._do(core, output)
        self._schedule(core)

    def _schedule(self, core: ParticipantCore) -> None:
        due = core.deadline
        if due < self._ticking:
            self._ticking = due
            self.world.clock.after(max(0.0, due - self.world.clock.now), lambda: self._tick(core, due))

    def _tick(self, core: ParticipantCore, due: float) -> None:
        if self.core is core and self._ticking == due:
            self._ticking = float("inf")
            self.act(core, core.advance)

    def heard(self, data: bytes, ip: str) -> None:
        """A datagram came; one that is stopped has room for a few."""
        core = self.core
        if core is not None and len(self._missed) < 300:
            self.act(core, lambda now: core.datagram(data, ip, now))

    def _accept(self, end: End) -> Socket:
        core = self.core
        assert core is not None
        number = core.accepted(end.there, self.world.clock.now)
        socket = Socket(self, core, end, number if number is not None else -1)
        if number is None:
            end.abort()
            return socket
        self.sockets[number] = socket
        self.act(core, lambda now: None)
        return socket

    def _do(self, core: ParticipantCore, output: Output) -> None:
        match output:
            case Broadcast(data):
                self.world.broadcast(self, data)
            case Send(number, data):
                if number in self.sockets:
                    self.sockets[number].end.write(data)
                elif number in self.desks:
                    self.desks[number].told(data)
            case Close(number):
                socket = self.sockets.pop(number, None)
                if socket is not None:
                    socket.end.close()
                desk = self.desks.pop(number, None)
                if desk is not None:
                    desk.disconnected()
            case Dial(number, ip):
                self._dial(core, number, ip)
            case Wire():
                self.wires[output.reference] = output
                if output.made is None:
                    self.world.clock.after(self.world.clock.between(0.001, 0.1), lambda: self._wired(core, output))
            case Unwire(reference):
                del self.wires[reference]

    def _dial(self, core: ParticipantCore, number: int, ip: str) -> None:
        def answered(end: End | None) -> Socket | None:
            if self.core is not core:
                return None
            if end is None:
                self.act(core, lambda now: core.lost(number, now))
                return None
            if not core.connected(number):
                return None
            socket = self.sockets[number] = Socket(self, core, end, number)
            self.act(core, lambda now: None)
            return socket

        if (self.name, ip) in self.world.walls:
            self.world.clock.after(DIAL_SECONDS, lambda: self.act(core, lambda now: core.lost(number, now)))
        else:
            self.world.network.dial(self.name, ip, answered)

    def _wired(self, core: ParticipantCore, wire: Wire) -> None:
        if self.core is core and wire.reference in self.wires:
            made = Streamed(stream=wire.reference, prepared=1, bound=2)
            self.act(core, lambda now: core.wired(wire.reference, made))

    def connect(self, end: LocalEnd) -> None:
        """A process of this machine connects, if there is anybody."""
        core = self.core
        if core is None or self.asleep:
            self.world.clock.after(0.1, end.start)
            return
        number = core.local(self.world.clock.now)
        if number is None:
            self.world.clock.after(0.1, end.start)
            return
        self.desks[number] = end
        end.connected(number)

    def said(self, end: LocalEnd, data: bytes) -> None:
        """A process says something."""
        core, number = self.core, end.number
        if core is not None and number is not None:
            self.act(core, lambda now: core.received(number, data, now))

    def gone(self, end: LocalEnd) -> None:
        """A process closes its connection."""
        core, number = self.core, end.number
        if core is not None and number is not None and self.desks.pop(number, None) is end:
            self.act(core, lambda now: core.lost(number, now))
