"""Garbage collections and memory in processes that Spark keeps."""

from __future__ import annotations

import ctypes
import functools
import gc
from contextlib import suppress
from typing import Final

MANY: Final = 100_000
KEPT_BYTES: Final = 64 << 20
LARGEST_KEPT: Final = 32 << 20  # the C library takes no more
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as mallopt(3) numbers them


def settle() -> None:
    """What is there now stays, so that collections need not look at it: imports, and what is kept open over batches.

    Spark has a worker collect garbage after each task, and to go through all that takes tens of milliseconds. To be
    called a few times at the most: a task's own objects that are there too, and hold each other, are never let go.
    """
    gc.freeze()


@functools.cache
def settle_once() -> None:
    """The same with the first call only: when the imports are there."""
    gc.collect()
    settle()


def collect_seldom() -> None:
    """For who makes thousands of small objects at once, and hardly any that hold each other.

    With a collection for every 700 of them, these took a third of the time of planning for ten thousand topics.
    """
    gc.set_threshold(MANY, *gc.get_threshold()[1:])


def keep_memory() -> None:
    """For who makes a few large objects for each batch: their memory is used again, up to a bound.

    By itself the C library gives it back to the system each time, and fresh pages cost more than to write to them.
    """
    with suppress(OSError, AttributeError):  # a C library without it does what it does
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, LARGEST_KEPT)
        libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
