"""Other processes for tests, and patience."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess

PATIENCE_S = 30.0
"""Longer than anything takes on a busy machine; nobody waits so long unless something is broken."""

# A process that has everything imported and has no threads forks the others: quick, and safe.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.nukleus.workers", "tests.data.shm_workers"])


def until(true: Callable[[], object], what: str = "", timeout_s: float = PATIENCE_S) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, what or "it never came true"
        time.sleep(0.001)


def spawn(target: Callable[..., None], *args: object) -> ForkServerProcess:
    """A process that runs a function of `tests.nukleus.workers` or `tests.data.shm_workers`."""
    process = _context.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def kill(process: ForkServerProcess) -> None:
    """As `kill -9` does it, and waits until the kernel is done with it."""
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.join(PATIENCE_S)
    assert not process.is_alive()
    process.close()


@contextlib.contextmanager
def process(target: Callable[..., None], *args: object) -> Iterator[ForkServerProcess]:
    """A process for the time of a block."""
    made = spawn(target, *args)
    try:
        yield made
    finally:
        with contextlib.suppress(ValueError):  # killed and closed already
            assert made.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(made.pid, signal.SIGCONT)
            kill(made)
