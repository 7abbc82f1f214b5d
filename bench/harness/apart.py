"""Runs a function in a process of its own: nothing that was imported or opened before has a part in its figure."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from bench.harness.pairs import MeasurementFailed
from bench.harness.roles import Failed, die_with_parent

T = TypeVar("T")

GRACE_SECONDS = 60.0
_SPAWN = multiprocessing.get_context("spawn")


class Apart:
    """The function, running: `go` lets it begin once it is ready, `result` waits for what it returns.

    It is called with `ready` first, a function that it calls when what it measures can begin, and that returns then.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._name = function.__name__
        self._ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_play, args=(function, arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()  # an end that dies is an end of file here, not a hang

    def wait_ready(self) -> None:
        self._receive(GRACE_SECONDS)

    def go(self) -> None:
        self._ours.send(None)

    def result(self, seconds: float) -> Any:
        return self._receive(seconds + GRACE_SECONDS)

    def _receive(self, seconds: float) -> Any:
        if not self._ours.poll(seconds):
            raise MeasurementFailed(f"{self._name}: it hangs")
        try:
            found = self._ours.recv()
        except EOFError:
            raise MeasurementFailed(f"{self._name}: its process died") from None
        if isinstance(found, Failed):
            raise MeasurementFailed(f"{self._name}: {found.trace}")
        return found

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.join(2 if error[0] is None else 0)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._ours.close()


def apart(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """What the function returns; it is expected to take so many seconds."""
    with Apart(function, *arguments) as running:
        running.wait_ready()
        running.go()
        return running.result(seconds)


def _play(function: Callable[..., Any], arguments: tuple[Any, ...], link: Connection) -> None:
    die_with_parent()

    def ready() -> None:
        link.send(None)
        link.recv()

    try:
        link.send(function(ready, *arguments))
    except BaseException:
        link.send(Failed(traceback.format_exc()))
