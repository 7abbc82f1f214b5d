"""What the tests of publishers and subscribers share: a mesh of their own, other processes, patience."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from echomesh.data.config import DataOptions
from echomesh.data.starting import find

PATIENCE_S = 30.0
"""Longer than anything takes on a busy machine; nobody waits so long unless something is broken."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.data.shm_workers"])


def options_in(directory: Path) -> dict[str, Any]:
    """Of a mesh that nobody else is in, and whose participant goes soon after the last who needs it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        beacon_port = probe.getsockname()[1]
    return {
        "directory": directory / "mesh",
        "beacon_port": beacon_port,
        "participant_port": 0,
        "broadcast": False,
        "group": "",
        "linger_s": 0.1,
    }


def gone(options: dict[str, Any]) -> None:
    """Waits until the participant has ended."""
    until(lambda: find(DataOptions(**options)) is None and not options["directory"].exists(), "the participant stays")


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, in an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 2 * PATIENCE_S))

    return run


def until(true: Callable[[], object], what: str = "", timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, what or "it never came true"
        time.sleep(0.002)


def spawn(target: Callable[..., None], *args: object) -> ForkServerProcess:
    """A process that runs a function of `tests.data.shm_workers`."""
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


def numbered(number: int, size: int) -> bytes:
    """A message that is like no other: its number, again and again."""
    return (number.to_bytes(8, "little") * (size // 8 + 1))[:size]
