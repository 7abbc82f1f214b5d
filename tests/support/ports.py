"""Ports that nobody has."""

from __future__ import annotations

import socket
from typing import Final

_GIVEN: Final[set[int]] = set()


def free_port(*, udp: bool = False) -> int:
    """A port of this machine that was free a moment ago, and that this process was not given before.

    The system may give the same port twice in a row: once in 28,000 times, and two sockets that share a port on purpose
    then take each other's datagrams.
    """
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM) as asking:
            asking.bind(("127.0.0.1", 0))
            port = int(asking.getsockname()[1])
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port
