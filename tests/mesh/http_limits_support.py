"""Requests byte by byte, and patience."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable

from tests.mesh.http_support import PATIENCE_S, an_event

EVENT = an_event().to_json()
BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}


def until(reached: Callable[[], bool]) -> None:
    """Asks until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline


def head(path: str, headers: dict[str, str], method: str = "POST") -> bytes:
    """The head of a request, as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def reply(sock: socket.socket) -> http.client.HTTPResponse:
    """The server's answer on a bare connection."""
    response = http.client.HTTPResponse(sock)
    response.begin()
    return response


def drained(sock: socket.socket) -> bool:
    """Reads to the end."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True
