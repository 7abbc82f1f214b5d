"""Where output leaves: what is in memory through the transport, what is in a file straight from there."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from echomesh.log.stretch import Stretch
from echomesh.mesh.pipe import Piece, in_memory

_MORE: Final = getattr(socket, "MSG_MORE", 0)


class Outlet:
    """Sends pieces in their order. The kernel takes a stretch of a file from its page cache, without a copy by us."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._socket: socket.socket | None = None

    def send(self, pieces: list[Piece]) -> None:
        """Sends these."""
        try:
            left = self._left(pieces)
        except (EOFError, OSError):
            self._transport.abort()  # what was promised can't be had: the other end asks again, and learns why
            return
        if len(left) == 1:
            self._transport.write(left[0])
        elif left:
            self._transport.writelines(left)

    def _left(self, pieces: list[Piece]) -> list[bytes | memoryview]:
        """What is for the transport, in memory: where there is a stretch, what the socket did not take at once."""
        plain = [piece for piece in pieces if not isinstance(piece, Stretch)]
        if len(plain) == len(pieces):
            return plain
        number = 0
        if not self._transport.get_write_buffer_size() and (direct := self._direct()) is not None:
            while number < len(pieces) and self._gone(direct, pieces, number):
                number += 1
        return [in_memory(piece) for piece in pieces[number:]]

    def _gone(self, direct: socket.socket, pieces: list[Piece], number: int) -> bool:
        # Sends one of them past the transport; whether all of it is gone. Else the rest of it stands in its place.
        piece = pieces[number]
        if isinstance(piece, Stretch):
            if not piece.send(direct.fileno()):
                return False
            piece.close()
            return True
        try:
            sent = direct.send(piece, _MORE if number + 1 < len(pieces) else 0)
        except BlockingIOError:
            return False
        pieces[number] = memoryview(piece)[sent:]
        return sent == len(piece)

    def _direct(self) -> socket.socket | None:
        # A handle of its own on the transport's socket; none for a connection that is encrypted here.
        if self._socket is None and self._transport.get_extra_info("sslcontext") is None:
            shared = self._transport.get_extra_info("socket")
            if shared is not None:
                self._socket = socket.socket(fileno=socket.dup(shared.fileno()))
                self._socket.setblocking(False)
        return self._socket

    def close(self) -> None:
        """Gives the handle back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
