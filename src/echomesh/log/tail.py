"""Event loops that wait for a topic to grow: one thread a data directory wakes them, and only while some wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echomesh.log.view import LiveView, View

if TYPE_CHECKING:
    from echomesh.log.reader import LogReader

Place = tuple[int, int]  # a topic's number, and the offset that is waited for

LINGER_S: Final = 1.0  # a thread without work ends after this time
NAP_S: Final = 0.5  # a writer that was killed wakes nobody
LOOK_S: Final = 0.1  # how often it is asked whether a writer has come


@dataclass(eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    places: Sequence[Place]

    def wake(self, error: BaseException | None) -> None:
        # The loop may be closed by now.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: BaseException | None) -> None:
        if not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


class Watcher:
    """Sleeps on the futex that every commit rings, for all event loops of this process."""

    _running: Final[dict[str, Watcher]] = {}
    _lock: Final = threading.Lock()

    def __init__(self, log: LogReader) -> None:
        self.log = log
        self.waiters: set[_Waiter] = set()
        self.changed = threading.Condition(self._lock)

    @classmethod
    def add(cls, log: LogReader, places: Sequence[Place]) -> _Waiter:
        """Waits for any of these; look once more before you sleep."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future(), places)
        with cls._lock:
            watcher = cls._running.get(log.paths.root)
            if watcher is None:
                watcher = cls._running[log.paths.root] = cls(log.again())
                name = "echomesh-log-tail"
                threading.Thread(target=watcher.run, name=name, daemon=True).start()
            watcher.waiters.add(waiter)
            watcher.changed.notify()
        return waiter

    @classmethod
    def remove(cls, log: LogReader, waiter: _Waiter) -> None:
        """Waits no longer."""
        with cls._lock:
            watcher = cls._running.get(log.paths.root)
            if watcher is not None:
                watcher.waiters.discard(waiter)

    def run(self) -> None:
        """The work of the thread."""
        failed: BaseException | None = None
        try:
            while self._wanted():
                self._watch()
        except Exception as error:
            failed = error
        finally:
            with self._lock:
                if self._running.get(self.log.paths.root) is self:
                    del self._running[self.log.paths.root]
                left = list(self.waiters)
            for waiter in left:
                waiter.wake(failed)
            self.log.close()

    def _wanted(self) -> bool:
        with self._lock:
            if not self.waiters and not self.changed.wait_for(lambda: self.waiters, LINGER_S):
                del self._running[self.log.paths.root]
                return False
            return True

    def _watch(self) -> None:
        view = self.log.current()
        seen = view.water.word if isinstance(view, LiveView) else 0
        with self._lock:
            ready = {waiter for waiter in self.waiters if any(_reached(view, *place) for place in waiter.places)}
            self.waiters -= ready
            waiting = bool(self.waiters)
        for waiter in ready:
            waiter.wake(None)
        if not waiting:
            return
        if isinstance(view, LiveView):
            if not view.water.wait_any(seen, NAP_S):
                # Perhaps the writer is gone.
                self.log.refresh()
        else:
            with self._lock:
                self.changed.wait(LOOK_S)
            self.log.look()


def _reached(view: View, number: int, offset: int) -> bool:
    try:
        return view.high(number) > offset
    except (IndexError, KeyError):
        return False
