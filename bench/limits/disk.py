"""The bare disk: how often a second a small write can be made durable; and where there is one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

FILE_BYTES = 16 << 20
WRITE_BYTES = 512
_MEMORY = ("tmpfs", "ramfs")


def fdatasyncs(ready: Callable[[], None], directory: str, seconds: float) -> float:
    """Writes of one sector each with an fdatasync behind it, a second: into a file whose blocks are there and were
    written before, so that no sync has to note a new size or a new block.
    """
    path = Path(directory, f"bare-{os.getpid()}")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(handle, 0, FILE_BYTES)
        for position in range(0, FILE_BYTES, 1 << 20):
            os.pwrite(handle, bytes(1 << 20), position)
        os.fsync(handle)
        body, count, position = b"x" * WRITE_BYTES, 0, 0
        ready()
        start = time.perf_counter()
        end = start + seconds
        while (now := time.perf_counter()) < end:
            os.pwrite(handle, body, position)
            os.fdatasync(handle)
            position = (position + WRITE_BYTES) % FILE_BYTES
            count += 1
        return count / (now - start)
    finally:
        os.close(handle)
        path.unlink()


def real_disk() -> str:
    """A directory on a disk: ECHOMESH_BENCH_DIR, else the first that is not in memory."""
    if chosen := os.environ.get("ECHOMESH_BENCH_DIR"):
        return chosen
    here = Path(__file__).resolve().parents[2] / "build"
    here.mkdir(exist_ok=True)
    candidates = [tempfile.gettempdir(), "/var/tmp", str(here)]
    return next((path for path in candidates if Path(path).is_dir() and _kind(path) not in _MEMORY), str(here))


@contextlib.contextmanager
def on_disk(parent: str | None = None) -> Iterator[str]:
    """A directory on a disk that is gone afterwards; or one in `parent`, which goes with it.

    Thousands of deleted files slow a disk down for minutes (discards; ext4 without a journal looks at each inode that
    was freed lately before it makes a file), so what a measurement leaves must not go while others are still to come.
    What the one before left to the kernel to write is written first: nobody's figure has another's writes in it. Nor is
    it left in memory: on a virtual machine, pages that were never used before, or were given back to the host, cost
    several times what others do, and who comes late in a benchmark would get those.
    """
    os.sync()
    path = tempfile.mkdtemp(prefix="echomesh-bench-", dir=parent or real_disk())
    try:
        yield path
    finally:
        if parent is None:
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.sync()
            _forget(path)


def _forget(path: str) -> None:
    """Takes files out of the page cache."""
    for file in Path(path).rglob("*"):
        if file.is_file() and not file.is_symlink():
            with contextlib.suppress(OSError):
                handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(handle)


def _kind(path: str) -> str:
    # /proc/self/mountinfo: ... mount point ... - type ...
    found = ("", "")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, behind = line.partition(" - ")
        point = before.split()[4]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[0]):
            found = (point, behind.split()[0])
    return found[1]
