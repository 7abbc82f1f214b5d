"""Open files of this process, for tests that none of them stays behind."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_below(directory: Path) -> list[str]:
    """The files below a directory that this process has open; deleted ones count.

    Not all that it has open: what another test left to the garbage collector is closed at any time.
    """
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself, or closed by another thread just now
            target = entry.readlink()
            if target.is_relative_to(directory):
                found.append(str(target))
    return sorted(found)
