"""Garbage collections in processes that Spark keeps."""

from __future__ import annotations

import functools
import gc


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
