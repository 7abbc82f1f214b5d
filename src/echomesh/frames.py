"""Frames: a length of four bytes, big-endian, before each message."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from typing_extensions import Buffer

from echomesh.errors import FrameTooLarge

LENGTH_BYTES: Final = 4
MAX_FRAME: Final = 64 << 20
STRANGER_FRAME: Final = 64 << 10  # before HELLO succeeded

LEAST_DIRECT: Final = 32 << 10
MOST_DIRECT: Final = 4 << 20

_PIECE_BYTES: Final = 4096
_NOTHING: Final = memoryview(b"")
_length_at: Final = struct.Struct(">I").unpack_from


def framed(payload: bytes) -> bytes:
    """The payload behind its length."""
    return len(payload).to_bytes(4, "big") + payload


class Place(Protocol):
    """Room for a payload of a known size; as a buffer, it is what is still missing of it."""

    def put(self, data: Buffer) -> None:
        """Adds a piece."""

    def moved(self, size: int) -> None:
        """So many bytes were put there by whoever had it as a buffer."""

    def take(self) -> bytes:
        """All of it."""
        ...

    def __buffer__(self, flags: int, /) -> memoryview:
        """What is missing."""
        ...


class Splitter:
    """Takes what a connection brings, in pieces of any size, and gives whole payloads.

    It holds no more than one frame and what came with it. A length over `limit` raises `FrameTooLarge` as soon as it is
    read, before anything is kept for it; the payloads before it are given out first.
    """

    def __init__(self, limit: int = STRANGER_FRAME) -> None:
        self.limit = limit
        self.direct: Callable[[int], Place] | None = None
        """Makes room for a large frame as soon as its length is known, so that it can be read in place."""
        self.block: Place | None = None
        """The payload of such a frame that is not whole: who read into it says so to `filled`."""
        self._head = bytearray()
        self._pieces: list[bytes | bytearray] = []
        """Of a payload that is not whole: as they came, so that a large one is copied once, when it is."""
        self._waiting = 0
        self._need = LENGTH_BYTES
        self._failed: FrameTooLarge | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> Iterable[bytes]:
        """The payloads that are whole now."""
        if self._failed is not None:
            raise self._failed
        if self._waiting:
            return self._feed_on(data)
        payloads, at = self._split(data)
        if at < len(data):
            self._keep(memoryview(data)[at:])
        if not payloads and self._failed is not None:
            raise self._failed
        return payloads

    @property
    def waiting(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return self._waiting

    @property
    def missing(self) -> int:
        """Bytes up to the end of a frame that is not whole yet, or of its length."""
        return self._need - self._waiting

    def filled(self, size: int) -> Iterable[bytes]:
        """So many bytes were read into the block; the payload, if it is whole now."""
        assert self.block is not None
        self.block.moved(size)
        self._waiting += size
        return [self._whole()] if self._waiting == self._need else ()

    def check(self) -> None:
        """Raises `FrameTooLarge` if the next frame is over the limit."""
        if self._failed is not None:
            raise self._failed

    def _feed_on(self, data: bytes | bytearray | memoryview) -> Iterable[bytes]:
        # There is a part of a frame.
        view = memoryview(data)
        if self._waiting < LENGTH_BYTES:
            head = view[: LENGTH_BYTES - self._waiting]
            self._head += head
            self._waiting += len(head)
            if self._waiting < LENGTH_BYTES:
                return ()
            (length,) = _length_at(self._head)
            self._head.clear()
            if length > self.limit:
                self._failed = FrameTooLarge(length, self.limit)
                self._waiting = 0
                raise self._failed
            self._begin(length)
            view = view[len(head) :]
        missing = self._need - self._waiting
        if len(view) < missing:
            self._add(data if isinstance(data, bytes) and len(view) == len(data) else view)
            return ()
        payload = self._whole(view[:missing])
        payloads, at = self._split(rest := view[missing:])
        if at < len(rest):
            self._keep(rest[at:])
        return [payload, *payloads]

    def _keep(self, rest: memoryview) -> None:
        # The first part of a frame.
        if len(rest) < LENGTH_BYTES:
            self._head += rest
            self._waiting = len(rest)
        else:
            self._begin(self._need - LENGTH_BYTES)
            self._waiting = LENGTH_BYTES
            self._add(rest[LENGTH_BYTES:])

    def _begin(self, length: int) -> None:
        self._need = LENGTH_BYTES + length
        if self.direct is not None and LEAST_DIRECT <= length <= MOST_DIRECT:
            self.block = self.direct(length)

    def _whole(self, rest: memoryview = _NOTHING) -> bytes:
        self._waiting, self._need = 0, LENGTH_BYTES
        if self.block is not None:
            block, self.block = self.block, None
            block.put(rest)
            return block.take()
        pieces, self._pieces = self._pieces, []
        return b"".join((*pieces, rest))

    def _add(self, piece: bytes | memoryview) -> None:
        # Small ones share an object, which may be far larger than they are.
        self._waiting += len(piece)
        if self.block is not None:
            self.block.put(piece)
        elif len(piece) >= _PIECE_BYTES:
            self._pieces.append(bytes(piece))
        elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
            last += piece
        elif piece:
            self._pieces.append(bytearray(piece))

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
