"""What the tests of publishers and subscribers share: a mesh of their own, other processes, patience."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from echomesh.data.config import DataOptions
from echomesh.data.starting import find
from tests.support.processes import PATIENCE_S, until


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


def numbered(number: int, size: int) -> bytes:
    """A message that is like no other: its number, again and again."""
    return (number.to_bytes(8, "little") * (size // 8 + 1))[:size]
