"""The event loop behind sessions without async: one thread for all of a process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from echomesh.errors import ClosedError, UsageError

T = TypeVar("T")


class Background:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="echomesh-sessions", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there, and waits for its result. Ctrl-C ends the wait, and the coroutine."""
        try:
            self.check()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, call: Callable[[], object]) -> None:
        """Calls something there, without waiting."""
        self.check()
        self.loop.call_soon_threadsafe(call)

    def check(self) -> None:
        """Whether this thread may wait for that one."""
        if os.getpid() != self.pid:
            raise ClosedError("this session belongs to the process that this one was forked from: make a new one here")
        if threading.current_thread() is self._thread:
            raise UsageError("a callback of a session can't wait for a session: do it in another thread")


_lock = threading.Lock()
_shared: Background | None = None
_left_behind: Final[list[Background]] = []


def background() -> Background:
    """The thread of this process."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = Background()
        return _shared


def _forked() -> None:
    """A forked process has no such thread. What it inherited is kept, since closing it would disturb the parent."""
    global _shared, _lock
    _lock = threading.Lock()
    if _shared is not None:
        _left_behind.append(_shared)
        _shared = None


os.register_at_fork(after_in_child=_forked)
