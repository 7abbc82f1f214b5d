"""Locks of the kernel, which end with the process that has them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def held(path: Path) -> bool:
    """Whether somebody has the lock of this file. Those who only look do not disturb each other."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
