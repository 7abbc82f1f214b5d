"""Frames: a length of four bytes, big-endian, before each message."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from echomesh.errors import FrameTooLarge

LENGTH_BYTES: Final = 4
MAX_FRAME: Final = 64 << 20
STRANGER_FRAME: Final = 64 << 10  # before HELLO succeeded

_length_at: Final = struct.Struct(">I").unpack_from


def framed(payload: bytes) -> bytes:
    """The payload behind its length."""
    return len(payload).to_bytes(4, "big") + payload


class Splitter:
    """Takes what a connection brings, in pieces of any size, and gives whole payloads.

    It holds no more than one frame and what came with it. A length over `limit` raises `FrameTooLarge` as soon as it is
    read, before anything is kept for it; the payloads before it are given out first.
    """

    def __init__(self, limit: int = STRANGER_FRAME) -> None:
        self.limit = limit
        self._kept = bytearray()
        self._need = LENGTH_BYTES
        self._failed: FrameTooLarge | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> Iterable[bytes]:
        """The payloads that are whole now."""
        if self._failed is not None:
            raise self._failed
        kept = self._kept
        if not kept:
            payloads, at = self._split(data)
            if at < len(data):
                kept += memoryview(data)[at:]
        else:
            kept += data
            if len(kept) < self._need:
                return ()
            with memoryview(kept) as view:
                payloads, at = self._split(view)
            del kept[:at]
        if not payloads and self._failed is not None:
            raise self._failed
        return payloads

    @property
    def waiting(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._kept)

    @property
    def missing(self) -> int:
        """Bytes up to the end of a frame that is not whole yet, or of its length."""
        return self._need - len(self._kept)

    def check(self) -> None:
        """Raises `FrameTooLarge` if the next frame is over the limit."""
        if self._failed is not None:
            raise self._failed

    def _split(self, data: bytes | bytearray | memoryview) -> tuple[list[bytes], int]:
        payloads: list[bytes] = []
        limit, at, body, size = self.limit, 0, LENGTH_BYTES, len(data)
        while body <= size:
            (length,) = _length_at(data, at)
            if length > limit:
                self._failed = FrameTooLarge(length, limit)
                return payloads, size
            behind = body + length
            if behind > size:
                self._need = behind - at
                return payloads, at
            payloads.append(bytes(data[body:behind]))
            at, body = behind, behind + LENGTH_BYTES
        self._need = LENGTH_BYTES
        return payloads, at
