"""Ports that nobody has."""

from __future__ import annotations

import socket


def free_port(*, udp: bool = False) -> int:
    """A port of this machine that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM) as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])
