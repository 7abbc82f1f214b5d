"""A nukleus: reads commands and streams from memory-mapped files and lets a handler act on them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from types import TracebackType

from echomesh.errors import ClosedError
from echomesh.native.doorbell import Doorbell
from echomesh.native.intake import Intake
from echomesh.native.ring import Ring
from echomesh.native.waiter import Waiter
from echomesh.nukleus.commands import Message
from echomesh.nukleus.conductor import Conductor, Reference
from echomesh.nukleus.control import Capacities, ControlFile
from echomesh.nukleus.desk import Desk
from echomesh.nukleus.directory import Directory, check_name
from echomesh.nukleus.hub import Hub
from echomesh.nukleus.links import Inlet
from echomesh.nukleus.streams import Handler, Streams
from echomesh.nukleus.tally import Tally

_TICK_S = 0.25
_STEPS_A_LOOK = 256  # turns at rings between two looks at the clock
_FOREIGN_POLL_S = 0.001

DEFAULT_SPIN_S = 50e-6
"""Long enough for an answer that is on its way, short enough to leave the processor to others."""


class Nukleus:
    """A named process end of streams, with a handler that says what they do.

        with Nukleus("echo", Echo()) as echo:
            echo.run()

    It is driven by one thread: `run` blocks until `stop`, `serve` does the same in an event loop; `step` and `work` are
    for loops of one's own.
    """

    def __init__(
        self,
        name: str,
        handler: Handler,
        *,
        directory: str | os.PathLike[str] | Directory | None = None,
        capacities: Capacities | None = None,
        stream_capacity: int = 1 << 20,
    ) -> None:
        self.name = check_name(name)
        self.directory = directory if isinstance(directory, Directory) else Directory(directory)
        self._stopping = False
        self._closed = False
        self._next_tick = 0.0
        self._steps = 0
        self._watched: list[Inlet | None] = []
        self.place, self._owner = self.directory.settle(name)
        try:
            self.bell = Doorbell.create(self.place.doorbell)
            self._waiter = Waiter(self.bell)
            self._next = self._waiter.next
            self._control = ControlFile.create(self.place.control, capacities or Capacities())
            tally = Tally(self._control.counters())
        except BaseException:
            self.directory.leave(self.place, self._owner)
            raise
        self._tally = tally
        self.streams = Streams(
            name,
            handler,
            tally.count,
            bound=lambda source, reference: self._conductor.bound(source, reference),
            beginning=lambda source: self._hub.beginning(source),
        )
        self._hub = Hub(self.directory, self.place, self.streams, tally.counter("frames read"), stream_capacity)
        self._conductor = Conductor(self._hub)
        self._desk = Desk(self._control, self.place.command_lock, self._conductor, tally.count)

    def do(self, command: Message) -> Message:
        """Does a command of this process's own, without the way through the control file."""
        self._check_ours()
        return self._conductor.do(command)

    def capture(self, source: str) -> None:
        """Reads streams from a source from now on."""
        self._check_ours()
        self._hub.capture(source)

    def uncapture(self, source: str) -> None:
        """Reads that source no more; its streams are reset."""
        self._check_ours()
        self._hub.uncapture(source)

    def route(self, destination: str) -> None:
        """Writes streams to a destination from now on; it must have captured this nukleus."""
        self._check_ours()
        self._hub.route(destination)

    def unroute(self, destination: str) -> None:
        """Writes to that destination no more; its streams are reset."""
        self._check_ours()
        self._hub.unroute(destination)

    @property
    def references(self) -> dict[int, Reference]:
        """The bind and prepare references, and what they stand for."""
        return dict(self._conductor.references)

    # The loop

    def step(self, timeout: float = _TICK_S, spin: float = DEFAULT_SPIN_S) -> None:
        """Waits for something to do, spinning for `spin` seconds before it sleeps, and does it.

        It returns after one turn at one ring, or when there was nothing to do for `timeout` seconds: for loops of one's
        own. `run` is this until `stop`.
        """
        if not self._owner.held:
            self._check_ours()
        hub = self._hub
        if hub.changed:
            self._watch()
        ready = self._next(timeout, spin)
        if ready >= 0:
            inlet = self._watched[ready]
            if inlet is not None:
                hub.read(inlet)
                self._steps += 1
                if self._steps % _STEPS_A_LOOK and not hub.full:
                    return
            else:
                self._desk.conduct()
        if hub.full:
            hub.flush()
        self._tick_if_due()

    def work(self) -> int:
        """Does all that there is to do now, without waiting, and tells how much that was."""
        self._check_ours()
        self._tick_if_due()
        done = self._desk.conduct()
        if self._hub.full:
            done += self._hub.flush()
        for inlet in self._hub.readable():
            done += self._hub.read(inlet)
        return done

    @property
    def intake(self) -> Intake:
        """What reads the streams' rings, without commands and what is due; for loops of one's own.

        Its `changed` says that there may be others to wait for than before.
        """
        return self._hub

    @property
    def commanded(self) -> bool:
        """Whether a command waits."""
        return self._control.commands.readable()

    def rings(self) -> list[Ring]:
        """What to wait for: the rings that can be read now, and that of the commands last."""
        return [*(inlet.ring for inlet in self._hub.readable()), self._control.commands]

    def _tick_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + _TICK_S
            self._desk.tend()
            self._hub.check_peers()

    def _check_ours(self) -> None:
        if self._closed or not self._owner.held:
            raise ClosedError(f"the nukleus {self.name} is closed, or belongs to the parent of this process")

    def _watch(self) -> None:
        self._hub.changed = False
        inlets, full = self._hub.readable(), self._hub.wanted_room()
        self._waiter.watch([*(inlet.ring for inlet in inlets), self._control.commands], full)
        # What the waiter's numbers stand for: inlets to be read, else commands or room, which are looked for anyway.
        self._watched = [*inlets, *[None] * (1 + len(full))]

    def run(self, *, spin: float = DEFAULT_SPIN_S) -> None:
        """Works until `stop`; with nothing to do it spins for `spin` seconds (`math.inf`: always), then sleeps."""
        while not self._stopping:
            self.step(_TICK_S, spin)

    async def serve(self) -> None:
        """Works until `stop`, in an event loop and without a thread."""
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        loop.add_reader(self.bell.fileno(), rung.set)
        try:
            while not self._stopping:
                if self.work():
                    await asyncio.sleep(0)
                    continue
                if self._hub.changed:
                    self._watch()
                rung.clear()
                if self._waiter.arm():
                    continue
                limit = _FOREIGN_POLL_S if self._waiter.polls else _TICK_S
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(rung.wait(), limit)
                self.bell.silence()
        finally:
            loop.remove_reader(self.bell.fileno())

    def stop(self) -> None:
        """Ends `run` or `serve`; from any thread, or a signal handler."""
        self._stopping = True
        self.bell.ring()

    def close(self) -> None:
        """Resets all streams and removes all files."""
        if self._closed or not self._owner.held:
            return
        self._closed = True
        self._hub.close()
        self._control.commands.close()
        self.directory.leave(self.place, self._owner)

    def __enter__(self) -> Nukleus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def counters(self) -> dict[str, int]:
        """All counters, by label."""
        return self._tally.all()
