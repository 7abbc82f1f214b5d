"""How far what a client sends has come."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from contextlib import suppress


def unsent(transport: asyncio.Transport) -> int:
    """Bytes that the other end's machine has not confirmed: those that wait here, and those in the kernel."""
    waiting = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    with suppress(OSError, ValueError, AttributeError):
        (kept,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0" * 4))
        return waiting + int(kept)
    return waiting
