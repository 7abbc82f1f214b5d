"""The beacon's socket: hears on one UDP port, sends to all that might listen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from typing import Final

from echomesh.data.config import DataOptions, split_peer
from echomesh.data.interfaces import interfaces
from echomesh.data.wire import BEACON_BYTES
from echomesh.errors import PortTaken

_log = logging.getLogger(__name__)

_A_TURN: Final = 64
"""Datagrams read at once: a flood of them must not keep the participant from all else."""


class BeaconSocket:
    """Sends beacons to the broadcast address of every interface, the multicast group and all static peers."""

    def __init__(self, options: DataOptions, heard: Callable[[bytes, str], None]) -> None:
        self._port = options.beacon_port
        self._broadcast = options.broadcast
        self._group = options.group
        self._peers = [split_peer(peer, self._port) for peer in options.peers]
        self._heard = heard
        self._joined: set[int] = set()
        self._resolved: dict[str, str] = {}
        self._resolving: set[asyncio.Task[None]] = set()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # Participants of other users and domains of this machine hear on the same port.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            self._socket.setblocking(False)
            self._socket.bind(("", self._port))
        except OSError:
            self._socket.close()
            raise PortTaken("beacon", self._port, "ECHOMESH_BEACON_PORT") from None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._read)

    def _read(self) -> None:
        for _ in range(_A_TURN):
            try:
                data, (ip, _port) = self._socket.recvfrom(BEACON_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                continue  # an answer of the network to what we sent
            self._heard(data, ip)

    def send(self, data: bytes) -> None:
        """Sends a beacon to all; who can't be reached is none of our business."""
        for interface in interfaces():
            if self._broadcast and interface.broadcast is not None:
                self._send(data, interface.broadcast, self._port)
            if self._group and interface.multicast:
                self._join(interface.index)
                request = struct.pack("@4s4si", b"\0" * 4, b"\0" * 4, interface.index)
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
                    self._send(data, self._group, self._port)
        for host, port in self._peers:
            if _is_address(host):
                self._send(data, host, port)
                continue
            if host in self._resolved:
                self._send(data, self._resolved[host], port)
            self._resolve(host)

    def _send(self, data: bytes, ip: str, port: int) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(data, (ip, port))

    def _join(self, index: int) -> None:
        # Interfaces come and go; one that came back has another number.
        if index in self._joined:
            return
        group = socket.inet_aton(self._group)
        try:
            self._socket.setsockopt(
                socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("@4s4si", group, b"\0" * 4, index)
            )
        except OSError as error:
            _log.debug("the group %s can't be joined on interface %d: %s", self._group, index, error)
        self._joined.add(index)

    def _resolve(self, host: str) -> None:
        # Each time, since names move.
        if not any(task.get_name() == host for task in self._resolving):
            task = self._loop.create_task(self._look_up(host), name=host)
            self._resolving.add(task)
            task.add_done_callback(self._resolving.discard)

    async def _look_up(self, host: str) -> None:
        try:
            found = await self._loop.getaddrinfo(host, None, family=socket.AF_INET, type=socket.SOCK_DGRAM)
        except OSError as error:
            _log.debug("%s can't be found: %s", host, error)
            return
        self._resolved[host] = str(found[0][4][0])

    def close(self) -> None:
        """Hears and says nothing any more."""
        self._loop.remove_reader(self._socket.fileno())
        for task in self._resolving:
            task.cancel()
        self._socket.close()


def _is_address(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return False
    return True
