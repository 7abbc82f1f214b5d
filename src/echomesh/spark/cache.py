"""What is made once for a user and kept in their cache directory."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The file or directory of this name, which is to say all that it depends on; made if it is not there yet.

    Where nothing can be kept, for want of a home, it goes with this process.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "echomesh")
    if (cache / name).exists():
        return cache / name
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        place = tempfile.mkdtemp(prefix=".new-", dir=cache)
    except OSError:
        return _made(_of_this_process() / name, _of_this_process() / f"{name}.new", make)
    try:
        return _made(cache / name, Path(place, name), make)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _made(target: Path, fresh: Path, make: Callable[[Path], None]) -> Path:
    if not target.exists():
        make(fresh)
        try:
            fresh.rename(target)
        except OSError:
            if not target.exists():  # else somebody else was quicker
                raise
    return target


@functools.cache
def _of_this_process() -> Path:
    place = tempfile.mkdtemp(prefix="echomesh-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return Path(place)
