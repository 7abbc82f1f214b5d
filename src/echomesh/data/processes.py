"""The nuklei of this process: one for each directory, shared by all who are connected, and none of a parent's."""

from __future__ import annotations

import atexit
import os
import threading
from functools import partial
from typing import Final

from echomesh.data.process import Process, Ready
from echomesh.nukleus import Directory

LINGER_S: Final = 2.0
"""For how long who leaves waits until subscribers have what was sent."""

_processes: dict[str, tuple[Process, int]] = {}
_processes_lock = threading.Lock()


def join(directory: Directory) -> Process:
    """The nukleus of this process for a directory, which is made for the first who asks; `leave` it as often."""
    with _processes_lock:
        process, users = _processes.get(str(directory.root), (None, 0))
        if process is None:
            process = Process(directory)
        _processes[str(directory.root)] = process, users + 1
        return process


def leave(process: Process) -> None:
    """Gives it back; the last one who does ends it."""
    with _processes_lock:
        root = str(process.directory.root)
        known, users = _processes.get(root, (None, 0))
        if known is not process:
            return
        if users > 1:
            _processes[root] = process, users - 1
            return
        del _processes[root]
    process.close()


def _leave_all() -> None:
    """Who ends without closing is given a moment too: what was sent shall arrive."""
    with _processes_lock:
        left = [process for process, _ in _processes.values()]
        _processes.clear()
    for process in left:
        marks = [end.written() for end in list(process.ends)]
        process.wait(partial(_all, marks), LINGER_S)
        process.close()


def _all(marks: list[Ready]) -> bool:
    return all(mark() for mark in marks)


def _forked() -> None:
    global _processes_lock
    _processes_lock = threading.Lock()
    for process, _ in _processes.values():
        process.forked()
    _left_behind.extend(process for process, _ in _processes.values())
    _processes.clear()


_left_behind: Final[list[Process]] = []
os.register_at_fork(after_in_child=_forked)
atexit.register(_leave_all)
