"""A stretch of a file: records that leave as they stand there, without being read first."""

from __future__ import annotations

import os


class Stretch:
    """So many bytes of a file from a position on. It has a handle of its own, whatever happens to the file's others."""

    __slots__ = ("handle", "position", "shift", "size", "time_ns", "until")

    def __init__(self, handle: int, position: int, size: int, until: int, shift: int = 0, time_ns: int = -1) -> None:
        self.handle = os.dup(handle)
        self.position = position
        self.size = size
        self.until = until
        """The offset behind its last record."""
        self.shift = shift
        """In a stage: what is added to its rows' numbers."""
        self.time_ns = time_ns
        """In a stage: of all its rows; else -1."""

    def __len__(self) -> int:
        return self.size

    def send(self, socket: int) -> bool:
        """Sends what the socket takes now; whether that was all. `EOFError` if the file has become shorter."""
        while self.size:
            try:
                sent = os.sendfile(socket, self.handle, self.position, self.size)
            except BlockingIOError:
                return False
            if not sent:
                raise EOFError("the file ends too early")
            self.position += sent
            self.size -= sent
        return True

    def read(self) -> bytes:
        """What is left of it. `EOFError` if the file has become shorter."""
        pieces = []
        while self.size:
            piece = os.pread(self.handle, self.size, self.position)
            if not piece:
                raise EOFError("the file ends too early")
            pieces.append(piece)
            self.position += len(piece)
            self.size -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Gives the handle back; also when nobody has it any more."""
        if self.handle >= 0:
            handle, self.handle = self.handle, -1
            os.close(handle)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self.close()
