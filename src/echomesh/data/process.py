"""One nukleus a process: its thread, the streams of all publishers and subscribers, and waiting for them.

Whoever waits for a message or for room reads the rings in its own thread. The background thread does the rest: commands of
the participant, streams that nobody waits for, queues, deaths.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from echomesh.errors import ClosedError, Forked, UsageError
from echomesh.native.data_home import Home
from echomesh.native.streams import Outlet
from echomesh.native.waiter import Waiter
from echomesh.nukleus import SMALL, Directory, Nukleus, Stream
from echomesh.nukleus.nukleus import DEFAULT_SPIN_S

PROOF: Final = "proof"
"""The file beside the control file that shows a participant that it shares memory with the process."""

_TICK_S = 0.25
_BUSY_TICK_S = 0.02  # while threads of the user read the rings themselves
_QUEUE_TICK_S = 0.002  # while messages wait for room in a ring
_UNCLAIMED = 4096

T = TypeVar("T")
Ready = Callable[[], object]


class Owner(Protocol):
    """Whom a stream belongs to."""

    def ended(self, stream: Stream) -> None:
        """The peer will send no more on it."""

    def lost(self, stream: Stream) -> None:
        """It is gone."""


class Flushed(Protocol):
    """Who may have something to write later."""

    def flush(self) -> bool:
        """Writes what can go; True when nothing is left."""

    def forked(self) -> None:
        """This is a child of the process that it belongs to."""


class Process:
    """The nukleus of this process for one directory, with its thread."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.home = Home()
        self.proof = secrets.token_bytes(32)
        self.nukleus = Nukleus(f"p{os.getpid()}-{secrets.token_hex(4)}", self, directory=directory, capacities=SMALL)
        (self.nukleus.place.path / PROOF).write_bytes(self.proof)
        # Only controllers of ours find this nukleus, and those ring: the command ring need not be polled.
        self.nukleus.rings()[-1].connect_reader(self.nukleus.bell)
        self.ends: weakref.WeakSet[Flushed] = weakref.WeakSet()
        """All publishers and subscribers."""
        self._lock = threading.Lock()
        self._generation = 0
        self._sleeping: set[int] = set()
        self._watching: dict[int, tuple[Ready, asyncio.Future[None]]] = {}
        self._listening: set[asyncio.AbstractEventLoop] = set()
        self._opened: dict[tuple[str, int], Stream] = {}
        self._begun: dict[int, Stream] = {}
        self._waiter = Waiter(self.nukleus.bell)
        self._waiters = threading.local()
        self._segments = iter(range(1, 1 << 31))
        self._activity = 0
        self._credited = 0
        self._stopping = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="echomesh-data", daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def name(self) -> str:
        """Of the nukleus."""
        return self.nukleus.name

    def pool_of(self, nukleus: str) -> str:
        """Where a nukleus of the directory has its pools."""
        return str(self.directory.place(nukleus).path / "pool")

    def next_segment(self) -> int:
        """A number for a file of a pool."""
        return next(self._segments)

    # The thread

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._started.set()
        bell, heard = self.nukleus.bell, False
        while not self._stopping:
            self._rung.clear()
            self.work()
            others = self._others_read()
            if heard and others:
                self.loop.remove_reader(bell.fileno())
            elif not heard and not others:
                self.loop.add_reader(bell.fileno(), self._rung.set)
            heard = not others
            limit = _BUSY_TICK_S if others else _TICK_S
            if heard:
                if self._arm():
                    continue
                if self._waiter.polls:
                    limit = _QUEUE_TICK_S
            if self._queues():
                limit = _QUEUE_TICK_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), limit)
            if heard:
                bell.silence()
        await asyncio.sleep(0)

    def _others_read(self) -> bool:
        # Threads that wait for the bell, or were here a moment ago, read the rings; this thread keeps out of their way.
        before, self._activity = self._activity, self.home.activity
        return bool(self._sleeping or self._watching) or before != self._activity

    def _queues(self) -> bool:
        return self.home.owing or any([not end.flush() for end in list(self.ends)])

    def _arm(self) -> bool:
        with self._lock:
            if self.nukleus.changed:
                self._watch()
            self._waiter.watch(self.nukleus.rings())
        return self._waiter.arm()

    def work(self) -> None:
        """All that there is to do now."""
        with self._lock:
            self.nukleus.work()
            if self.nukleus.changed:
                self._watch()
        self._after()

    def _watch(self) -> None:
        self.nukleus.changed = False
        self._generation += 1

    def _after(self) -> None:
        # What was read may be for others than the thread that read it.
        if self.home.owing:
            self.home.owing = False
            for end in list(self.ends):
                end.flush()
        elif self._credited != self.home.credited:
            self._credited = self.home.credited
            for end in list(self.ends):
                end.flush()
        for key, (ready, future) in list(self._watching.items()):
            if ready() and self._watching.pop(key, None) is not None:
                loop = future.get_loop()
                with contextlib.suppress(RuntimeError):  # that loop was closed
                    loop.call_soon_threadsafe(_resolve, future)
        if self._sleeping - {threading.get_ident()}:
            self.nukleus.bell.ring()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine in the background thread."""
        self.check()
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError("the background thread can't wait for itself: do this in another thread")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def check(self) -> None:
        """Whether this process may use it."""
        if not self.home.alive:
            raise ClosedError("this mesh was closed") if self._stopping else Forked("mesh")

    # Waiting

    def read(self) -> bool:
        """Reads what has come, in the caller's thread; False when another thread does."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.nukleus.read()
        finally:
            self._lock.release()
        self._after()
        return True

    def wait(self, ready: Ready, timeout: float | None = None, spin: float = DEFAULT_SPIN_S) -> bool:
        """Waits until something is so, reading meanwhile; False when it takes longer than `timeout` seconds."""
        me = threading.get_ident()
        waiter, generation = getattr(self._waiters, "mine", (None, -1))
        if waiter is None:
            waiter = Waiter(self.nukleus.bell)
        deadline = None if timeout is None else time.monotonic() + timeout
        self._sleeping.add(me)
        try:
            while True:
                self.home.activity += 1
                self.check()
                mine = self.read()
                if ready():
                    return True
                left = _TICK_S if deadline is None else min(_TICK_S, deadline - time.monotonic())
                if left <= 0:
                    return False
                if self.home.owing or not mine:
                    left = min(left, _QUEUE_TICK_S)
                if generation != self._generation or self.nukleus.changed:
                    with self._lock:
                        if self.nukleus.changed:
                            self._watch()
                        generation = self._generation
                        waiter.watch(self.nukleus.rings())
                    self._waiters.mine = waiter, generation
                if waiter.next(left, spin) == self._commands(waiter):
                    self.work()
        finally:
            self._sleeping.discard(me)

    def _commands(self, waiter: Waiter) -> int:
        return waiter.count - 1

    async def until(self, ready: Ready, timeout: float | None = None) -> bool:
        """As `wait`, in the caller's event loop."""
        loop = asyncio.get_running_loop()
        self._listen(loop)
        async with _limit(timeout) as limited:
            while True:
                self.home.activity += 1
                self.check()
                self.read()
                if ready():
                    return True
                future = loop.create_future()
                key = id(future)
                self._watching[key] = ready, future
                try:
                    if self._arm_for(loop):
                        await asyncio.sleep(0)
                        continue
                    await future
                finally:
                    self._watching.pop(key, None)
        return not limited.expired() or bool(ready())

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop not in self._listening:
            self._listening = {one for one in self._listening if not one.is_closed()} | {loop}
            loop.add_reader(self.nukleus.bell.fileno(), self._heard, loop)

    def _arm_for(self, loop: asyncio.AbstractEventLoop) -> bool:
        # True when there is something to read now. A command is the background thread's.
        if not self._arm():
            return False
        if self.nukleus.rings()[-1].readable():
            self.loop.call_soon_threadsafe(self._rung.set)
            return False
        return True

    def _heard(self, loop: asyncio.AbstractEventLoop) -> None:
        self.nukleus.bell.silence()
        self.read()
        if self._watching and self._arm_for(loop):
            loop.call_soon(self._heard, loop)

    # Streams

    def claim_begun(self, reference: int) -> Stream | None:
        """The stream that a publisher began for a source reference, if it is there."""
        return self._begun.pop(reference, None)
