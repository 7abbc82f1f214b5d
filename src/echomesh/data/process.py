"""One nukleus a process: its thread, the streams of all publishers and subscribers, and waiting for them.

Whoever waits for a message or for room reads the rings in its own thread. The background thread does the rest: commands
of the participant, streams that nobody waits for, queues, deaths.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from echomesh.data.messages import Process as Place
from echomesh.data.proof import leave_proof
from echomesh.errors import ClosedError, Forked, UsageError
from echomesh.native.data_home import Home
from echomesh.native.data_wait import Reading
from echomesh.native.doorbell import Doorbell
from echomesh.native.streams import Outlet
from echomesh.native.waiter import Waiter
from echomesh.nukleus import SMALL, Directory, Nukleus, Stream

_TICK_S: Final = 0.25
_BUSY_TICK_S: Final = 0.02  # while threads of the user read the rings themselves
_QUEUE_TICK_S: Final = 0.002  # while messages wait for room in a ring

T = TypeVar("T")
Ready = Callable[[], object]


class End(Protocol):
    """A publisher or a subscriber, as its process sees it."""

    def began(self, stream: Stream, peer: object) -> None:
        """A stream of it is open; `peer` is what it was claimed with."""

    def lost(self, stream: Stream) -> None:
        """The stream is gone, or the peer will send no more on it."""

    def resume(self) -> bool:
        """Writes what found no room before; True when nothing is left."""

    def written(self) -> Ready:
        """Whether all that it sent up to now has been read."""

    def forked(self) -> None:
        """This is a child of the process that it belongs to."""


class Process(Reading):
    """The nukleus of this process for one directory, with its thread."""

    nukleus: Nukleus

    def __init__(self, directory: Directory) -> None:
        name = f"p{os.getpid()}-{secrets.token_hex(4)}"
        super().__init__(Nukleus(name, self, directory=directory, capacities=SMALL), Home())
        self.directory = directory
        # Only controllers of ours find this nukleus, and those ring: the command ring need not be polled.
        self.nukleus.rings()[-1].connect_reader(self.nukleus.bell)
        self.place = Place(name, str(directory.root), leave_proof(self.nukleus.place), os.getpid())
        """What the participant is told of this process."""
        self.ends: weakref.WeakSet[Any] = weakref.WeakSet()
        """All publishers and subscribers."""
        self._listening: set[asyncio.AbstractEventLoop] = set()
        self._opened: dict[tuple[str, int], Stream] = {}
        self._claimed: dict[tuple[str, int], tuple[End, object]] = {}
        self._expected: dict[int, tuple[End, object]] = {}
        self._waiter = Waiter(self.nukleus.bell)
        self._armed = -1
        self._segments = iter(range(1, 1 << 31))
        self._activity = 0
        self._rung = False
        self._pausing: asyncio.Future[None] | None = None
        self._stopping = False
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="echomesh-data", daemon=True)
        self._thread.start()
        started.wait()

    def pool_of(self, nukleus: str) -> str:
        """Where a nukleus of the directory has its pools."""
        return str(self.directory.place(nukleus).path / "pool")

    def next_segment(self) -> int:
        """A number for a file of a pool."""
        return next(self._segments)

    # The thread

    def _run(self, started: threading.Event) -> None:
        asyncio.run(self._main(started))

    async def _main(self, started: threading.Event) -> None:
        self.loop = asyncio.get_running_loop()
        started.set()
        bell, heard, due = self.nukleus.bell, False, 0.0
        while not self._stopping:
            self._rung = False
            others = self._others_read()
            if not others or self.nukleus.commanded or self.loop.time() >= due:
                due = self.loop.time() + _TICK_S
                self.work()
            if heard and others:
                self.loop.remove_reader(bell.fileno())
            elif not heard and not others:
                self.loop.add_reader(bell.fileno(), self._ring)
            heard = not others
            if (heard or self.watching) and self._arm() and heard:
                await asyncio.sleep(0)
                continue
            limit = _BUSY_TICK_S if others else _TICK_S
            if self._queues() or (heard and self._waiter.polls):
                limit = _QUEUE_TICK_S
            await self._pause(limit)
            if heard:
                bell.silence()

    def _ring(self) -> None:
        self._rung = True
        if self._pausing is not None:
            _resolve(self._pausing)

    async def _pause(self, limit: float) -> None:
        # Until it is rung. Without a task for it, which would be most of what a turn costs.
        if not self._rung:
            self._pausing = self.loop.create_future()
            timer = self.loop.call_later(limit, _resolve, self._pausing)
            await self._pausing
            self._pausing = None
            timer.cancel()

    def _others_read(self) -> bool:
        # Threads that wait for the bell, or were here a moment ago, read the rings; this thread keeps out of their way.
        before, self._activity = self._activity, self.home.activity
        return bool(self.sleepers or self.watching) or before != self._activity

    def _queues(self) -> bool:
        if self.home.owing or self.home.lagging:
            self.resume()
        return self.home.lagging

    def _arm(self) -> bool:
        # True when there is something to do now, else the bell's FIFO tells when there is.
        with self.lock:
            generation = self.rings_known()
            if self._armed != generation:
                self._armed = generation
                self._waiter.watch(self.nukleus.rings())
        return self._waiter.arm()

    def work(self) -> None:
        """All that there is to do now."""
        with self.lock:
            done = self.nukleus.work()
        self.settle(done)

    def soon(self, act: Callable[..., object], *arguments: object) -> None:
        """Has the background thread do something, unless that has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(act, *arguments)

    def resume(self) -> None:
        """Writes what waits in queues, as far as it can go."""
        # Cleared first: who begins to lag meanwhile says so again.
        self.home.owing = self.home.lagging = False
        if [end for end in list(self.ends) if not end.resume()]:
            self.home.lagging = True

    def wake(self) -> None:
        """Has all who wait look again."""
        for key, (ready, future) in list(self.watching.items()):
            if ready() and self.watching.pop(key, None) is not None:
                with contextlib.suppress(RuntimeError):  # that loop was closed
                    future.get_loop().call_soon_threadsafe(_resolve, future)
        if self.sleepers:
            self.nukleus.bell.ring()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine in the background thread."""
        try:
            self.check()
            if threading.current_thread() is self._thread:
                raise UsageError("the background thread can't wait for itself: do this in another thread")
        except BaseException:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def check(self) -> None:
        """Whether this process may use it."""
        if not self.home.alive:
            raise ClosedError("this mesh was closed") if self._stopping else Forked("mesh")

    # Waiting

    async def until(self, ready: Ready, timeout: float | None = None) -> bool:
        """As `wait`, in the caller's event loop."""
        try:
            async with asyncio.timeout(timeout):
                await self._until(ready, asyncio.get_running_loop())
        except TimeoutError:
            return bool(ready())
        return True

    async def _until(self, ready: Ready, loop: asyncio.AbstractEventLoop) -> None:
        if loop not in self._listening:
            self._listening = {one for one in self._listening if not one.is_closed()} | {loop}
            loop.add_reader(self.nukleus.bell.fileno(), self._heard, loop)
        while True:
            self.check()
            self.read()
            if ready():
                return
            future = loop.create_future()
            self.watching[id(future)] = ready, future
            try:
                if self._something():
                    await asyncio.sleep(0)
                else:
                    await future
            finally:
                self.watching.pop(id(future), None)

    def _something(self) -> bool:
        # Whether there is something to read now; commands are for the background thread.
        if not self._arm():
            return False
        if self.nukleus.rings()[-1].readable():
            self.soon(self._ring)
        return True

    def _heard(self, loop: asyncio.AbstractEventLoop) -> None:
        self.nukleus.bell.silence()
        self.read()
        if self.watching and self._something():
            loop.call_soon(self._heard, loop)

    # Streams

    @contextlib.contextmanager
    def streams(self) -> Iterator[None]:
        """No stream changes meanwhile."""
        self.check()
        with self.lock:
            yield

    def outlet(self, nukleus: str) -> Outlet:
        """The way to a peer."""
        outlet = self.nukleus.streams.peer(nukleus).outlet
        if not isinstance(outlet, Outlet):
            raise UsageError(f"{nukleus} is not routed")
        return outlet

    def claim(self, nukleus: str, stream_id: int, end: End, peer: object) -> None:
        """A stream that the participant had this nukleus begin belongs to that publisher."""
        with self.streams():
            stream = self._opened.pop((nukleus, stream_id), None)
            if stream is None:
                self._claimed[nukleus, stream_id] = end, peer
            else:
                self._give(stream, end, peer)
        self.wake()

    def unclaim(self, nukleus: str, stream_id: int) -> None:
        """The stream is not wanted any more; one that is not open yet is reset when it is."""
        with self.streams():
            self._claimed.pop((nukleus, stream_id), None)

    def expect(self, reference: int, end: End, peer: object) -> None:
        """Streams for a bind of that source reference belong to that subscriber."""
        self._expected[reference] = end, peer

    def unexpect(self, reference: int) -> None:
        """No more streams come for that reference."""
        self._expected.pop(reference, None)

    def _give(self, stream: Stream, end: End, peer: object) -> None:
        stream.context = end
        end.began(stream, peer)

    def on_begin(self, stream: Stream) -> None:
        """A publisher's stream to us, or a subscriber's answer to ours."""
        if stream.initiated:
            key = stream.peer, stream.outbound_id
            claimed = self._claimed.pop(key, None)
            if claimed is None:
                self._opened[key] = stream  # the participant is about to tell whose it is
            else:
                self._give(stream, *claimed)
            return
        bound = self.nukleus.references.get(stream.reference)
        expected = self._expected.get(bound.reference) if bound is not None else None
        if expected is None:
            stream.reset()
            return
        stream.reply()
        self._give(stream, *expected)

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        """Data that nobody takes: the peer is wrong."""
        raise UsageError(f"{stream.peer} sent data on a stream that belongs to nobody")

    def on_end(self, stream: Stream) -> None:
        """Nothing more comes; both ends are over then."""
        self.on_reset(stream)
        if stream.alive:
            stream.end()

    def on_reset(self, stream: Stream) -> None:
        """It is gone."""
        self._opened.pop((stream.peer, stream.outbound_id), None)
        end, stream.context = stream.context, None
        if end is not None:
            end.lost(stream)

    # The end

    def close(self) -> None:
        """Ends the thread, and removes all files."""
        if not self.home.alive:
            return
        self._stopping = True
        self.soon(self._ring)
        self._thread.join()
        self.home.alive = False
        self.nukleus.close()
        self.nukleus.bell.ring()  # for threads that still wait
        for loop in self._listening:
            with contextlib.suppress(RuntimeError):  # it was closed
                loop.call_soon_threadsafe(_unlisten, loop, self.nukleus.bell)

    def forked(self) -> None:
        """This is a child of the process that it belongs to: nothing here may be touched."""
        self.home.alive = False
        for end in list(self.ends):
            end.forked()


def _unlisten(loop: asyncio.AbstractEventLoop, bell: Doorbell) -> None:
    loop.remove_reader(bell.fileno())


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
