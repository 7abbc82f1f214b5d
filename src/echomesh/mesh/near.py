"""Connections within a machine."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import Final

_PACED: Final = b"bbr"
_PLAIN: Final = b"reno"  # every Linux has it, and lets everybody have it


def send_at_once(connection: socket.socket | None) -> None:
    """Has what a connection within this machine sends leave without pauses; others stay as they are.

    Where the system's choice is BBR, what is sent is spread over time by a timer. Within a machine that spares no
    network, and the timer costs as much as the sending.
    """
    with contextlib.suppress(OSError):
        if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
            return
        own, peer = connection.getsockname()[0], connection.getpeername()[0]
        if own != peer and not is_loopback(peer) and not is_loopback(own):
            return
        if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(_PACED):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _PLAIN)


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
