"""Mapped memory for a test, and small integers in it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from echomesh.native.mapping import Mapping

# Trailer of a ring, from its capacity on.
WRITER_RINGS, READER_RINGS, ROOM_WANTED = 0, 4, 8
TAIL, HEAD_CACHE, HEAD, CORRELATION, HEARTBEAT, RING_TRAILER = 128, 256, 384, 512, 640, 768
# Trailer of a broadcast buffer.
INTENT, BROADCAST_TAIL, LATEST, BROADCAST_TRAILER = 0, 8, 16, 128


def scratch(size: int) -> Mapping:
    """Shared memory whose file is gone already: nothing is left behind, however the test ends."""
    with tempfile.TemporaryDirectory(prefix="echomesh-test-", dir="/dev/shm") as directory:
        return Mapping.create(Path(directory) / "scratch", size)


def put32(mapping: Mapping, at: int, value: int) -> None:
    memoryview(mapping)[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")


def put64(mapping: Mapping, at: int, value: int) -> None:
    memoryview(mapping)[at : at + 8] = (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")


def get32(mapping: Mapping, at: int) -> int:
    return int.from_bytes(memoryview(mapping)[at : at + 4], "little", signed=True)


def get64(mapping: Mapping, at: int) -> int:
    return int.from_bytes(memoryview(mapping)[at : at + 8], "little", signed=True)


def record(length: int, kind: int) -> bytes:
    """The header of a record, its length as it stands in memory."""
    return length.to_bytes(4, "little", signed=True) + kind.to_bytes(4, "little", signed=True)


def set_positions(mapping: Mapping, capacity: int, head: int, tail: int, head_cache: int | None = None) -> None:
    """A ring as it would be after `head` bytes were read and `tail` claimed."""
    put64(mapping, capacity + HEAD, head)
    put64(mapping, capacity + HEAD_CACHE, head if head_cache is None else head_cache)
    put64(mapping, capacity + TAIL, tail)
