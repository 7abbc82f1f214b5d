"""Streams between the nuklei of this machine's processes, made and taken apart by their controller: the participant.

Each pair of processes is joined once: each captures the other and routes to it. Each pair of publisher and subscriber
gets a BIND at the subscriber's, a PREPARE and a CONNECT at the publisher's. A process that is stopped holds up its own
streams alone: every pair has a task of its own, which tries again until it works or nobody needs it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from echomesh.data.outputs import Streamed, Unwire, Wire
from echomesh.data.proof import has_proof
from echomesh.errors import BusyError, CommandRefused, EchomeshError, StorageError
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.nukleus import sync
from echomesh.nukleus.directory import Directory
from echomesh.nukleus.links import sound

_log = logging.getLogger(__name__)

_FAILURES: Final = (EchomeshError, OSError)
"""What working on a process that may be stopped, dying or dead may end with."""
_THREADS: Final = 64
_COMMAND_S: Final = 2.0
_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 2.0
TEND_BEACONS: Final = 0.5
ADOPT_BEACONS: Final = 5
"""When a participant looks for processes that an earlier one joined: those that need it have told it by then."""
PART_BEACONS: Final = 2
"""For how long two processes stay joined that have nothing to do with each other: they often have soon again."""


@dataclass(slots=True, eq=False)
class _Joint:
    """Two processes that exchange streams; they may be the same one."""

    names: tuple[str, str]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    uses: int = 0
    joined: bool = False
    parting: bool = False
    unused_since: float = 0.0


@dataclass(slots=True, eq=False)
class _Job:
    """One stream: wanted, being made or there."""

    wire: Wire
    joint: _Joint
    made: Streamed | None = None
    task: asyncio.Task[None] | None = None
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nobody needs it any more."""


class Wiring:
    """Does `Wire` and `Unwire`; `on_wired` tells when a stream is there, `on_dead` which nuklei `in_use` are dead.

    It belongs to one event loop.
    """

    def __init__(
        self,
        directory: Directory,
        beacon_s: float,
        on_wired: Callable[[int, Streamed], None],
        in_use: Callable[[], set[str]],
        on_dead: Callable[[set[str]], None],
    ) -> None:
        self._directory = directory
        self._beacon_s = beacon_s
        self._on_wired = on_wired
        self._in_use = in_use
        self._on_dead = on_dead
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="wiring")
        self._controllers: dict[str, sync.Controller] = {}
        self._joints: dict[tuple[str, str], _Joint] = {}
        self._jobs: dict[int, _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begins to look after processes that go."""
        self._spawn(self._tend())

    def wire(self, wire: Wire) -> None:
        """Makes a stream, or takes over one that is there."""
        joint = self._joint(wire.publisher, wire.subscriber)
        joint.uses += 1
        job = self._jobs[wire.reference] = _Job(wire, joint, wire.made)
        if wire.made is None:
            job.task = self._spawn(self._make(job))
        else:
            joint.joined = True

    def unwire(self, unwire: Unwire) -> None:
        """Lets go of a stream. Its ends do with it what they want; nothing of it is lost by this."""
        job = self._jobs.pop(unwire.reference, None)
        if job is not None:
            job.dropped.set()
            self._spawn(self._unmake(job))

    async def close(self) -> None:
        """Stops working; streams that are there stay, and what the dead left goes."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(*_FAILURES):
            await self._in_thread(self._bury)
        for controller in self._controllers.values():
            controller.close()
        self._controllers.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _joint(self, one: str, other: str) -> _Joint:
        names = (one, other) if one <= other else (other, one)
        if names not in self._joints:
            self._joints[names] = _Joint(names)
        return self._joints[names]

    # Making a stream

    async def _make(self, job: _Job) -> None:
        pause_s = _RETRY_S
        while job.made is None and not job.dropped.is_set():
            try:
                async with job.joint.lock:
                    await self._join(job.joint)
                job.made = await self._in_thread(self._stream, job)
            except _FAILURES as error:
                # It is stopped, or dead: then its connection will end, and with that this job.
                _log.info("the stream %d is not there yet: %s", job.wire.reference, error)
                job.joint.joined = False
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(job.dropped.wait(), pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
        if job.made is not None and not job.dropped.is_set():
            self._on_wired(job.wire.reference, job.made)

    async def _join(self, joint: _Joint) -> None:
        if not joint.joined:
            await self._in_thread(self._join_both, *joint.names)
            joint.joined = True

    def _join_both(self, one: str, other: str) -> None:
        # What an earlier participant did, or a try that seemed to fail, is refused; whether it is there BIND will tell.
        ends = {(one, other), (other, one)}
        for here, there in sorted(ends):
            with contextlib.suppress(CommandRefused):
                self._controller(here).capture(there)
        for here, there in sorted(ends):
            with contextlib.suppress(CommandRefused):
                self._controller(here).route(there)

    def _stream(self, job: _Job) -> Streamed:
        wire = job.wire
        publisher, subscriber = self._controller(wire.publisher), self._controller(wire.subscriber)
        with contextlib.ExitStack() as undo:
            bound = subscriber.bind(wire.publisher, wire.reference)
            undo.callback(self._try, subscriber.unbind, bound)
            prepared = publisher.prepare(wire.subscriber, bound)
            undo.callback(self._try, publisher.unprepare, prepared)
            made = Streamed(publisher.connect(prepared), prepared, bound)
            undo.pop_all()
        return made

    def _try(self, act: Callable[[Any], None], argument: Any) -> None:
        # It is there no more, or its nukleus is not, or can't be told: nothing that matters is left in any case.
        with contextlib.suppress(*_FAILURES):
            act(argument)

    def _controller(self, name: str) -> sync.Controller:
        controller = self._controllers.get(name)
        if controller is None:
            made = sync.Controller(name, directory=self._directory, timeout=_COMMAND_S)
            controller = self._controllers.setdefault(name, made)
        return controller

    async def _in_thread(self, act: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *arguments)

    # Taking it apart

    async def _unmake(self, job: _Job) -> None:
        if job.task is not None:
            await asyncio.wait([job.task])
        if job.made is not None:
            await self._in_thread(self._unstream, job.wire, job.made)
        job.joint.uses -= 1
        if not job.joint.uses:
            job.joint.unused_since = asyncio.get_running_loop().time()

    def _unstream(self, wire: Wire, made: Streamed) -> None:
        # References only say who may begin a stream: taking them away touches none that has begun.
        for name, reference, publishes in (
            (wire.publisher, made.prepared, True),
            (wire.subscriber, made.bound, False),
        ):
            with contextlib.suppress(*_FAILURES):
                controller = self._controller(name)
                (controller.unprepare if publishes else controller.unbind)(reference)

    async def _tend(self) -> None:
        for turn in itertools.count(1):
            await asyncio.sleep(TEND_BEACONS * self._beacon_s)
            # Asked before: who came since then may not have been seen.
            in_use = self._in_use()
            try:
                if turn == ADOPT_BEACONS / TEND_BEACONS:
                    self._adopt(await self._in_thread(self._left_behind))
                alive: set[str] = await self._in_thread(self._bury)
            except _FAILURES as error:
                _log.info("the directory can't be looked at now: %s", error)
                continue
            if in_use - alive:
                self._on_dead(in_use - alive)
            unused = asyncio.get_running_loop().time() - PART_BEACONS * self._beacon_s
            for joint in list(self._joints.values()):
                whole = alive.issuperset(joint.names)
                if not joint.uses and not joint.parting and (not whole or joint.unused_since <= unused):
                    joint.parting = True
                    self._spawn(self._part(joint, alive))

    def _left_behind(self) -> list[tuple[str, str]]:
        return [
            (place.name, ring.name)
            for place in self._directory.places()
            if has_proof(place)
            for ring in place.streams.glob("[!.]*")
        ]

    def _adopt(self, joined: list[tuple[str, str]]) -> None:
        # Those that an earlier participant joined, and that nobody has told this one to be in use.
        for here, there in joined:
            self._joint(here, there)

    def _bury(self) -> set[str]:
        # What the dead left is removed, so that their peers can give up the rings that they kept for them; but not
        # before all that they sent was read, for what is large stands in their files.
        commanded = set(self._controllers)
        alive: set[str] = set()
        dead: set[str] = set()
        for place in self._directory.places():
            living = place.foreign() or place.owner_pid() is not None
            (alive if living else dead).add(place.name)
        spared = {name for name in dead if not all(self._drained(reader, name) for reader in alive)}
        if dead - spared:
            with contextlib.suppress(BusyError, StorageError), self._directory.locked():
                self._directory.clean(spared)
        for name in commanded - alive:
            self._controllers.pop(name).close()
        return alive

    async def _part(self, joint: _Joint, alive: set[str]) -> None:
        try:
            async with joint.lock:
                # Not before all is read: a ring that is given up takes with it what is in it.
                if joint.uses or not await self._in_thread(self._part_both, joint.names, alive):
                    return
                joint.joined = False
                if not joint.uses:
                    del self._joints[joint.names]
        except _FAILURES as error:
            _log.info("%s and %s stay joined for now: %s", *joint.names, error)
        finally:
            joint.parting = False

    def _part_both(self, names: tuple[str, str], alive: set[str]) -> bool:
        ends = [(here, there) for here, there in sorted({names, names[::-1]}) if here in alive]
        if not all(self._drained(here, there) for here, there in ends):
            return False
        for here, there in ends:
            with contextlib.suppress(CommandRefused):
                self._controller(here).unroute(there)
        for here, there in ends:
            with contextlib.suppress(CommandRefused):
                self._controller(here).uncapture(there)
        return True

    def _drained(self, here: str, there: str) -> bool:
        try:
            ring = Ring(Mapping.open(self._directory.place(here).stream(there), writable=False))
        except EchomeshError:
            return True  # there is none
        return not sound(ring) or ring.head == ring.tail
