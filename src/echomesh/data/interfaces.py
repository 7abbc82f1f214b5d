"""The network interfaces of this machine, as far as beacons need them."""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass
from typing import Final

# From linux/sockios.h and linux/if.h; Python has no names for them.
_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFADDR: Final = 0x8915
_SIOCGIFBRDADDR: Final = 0x8919
_IFF_UP: Final = 0x1
_IFF_BROADCAST: Final = 0x2
_IFF_MULTICAST: Final = 0x1000


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface that is up, with its IPv4 address; `broadcast` is None where it has none."""

    index: int
    name: str
    ip: str
    broadcast: str | None
    multicast: bool


def interfaces() -> list[Interface]:
    """Those that are up and have an IPv4 address."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for index, name in socket.if_nameindex():
            try:
                (flags,) = struct.unpack_from("H", _ask(asking, _SIOCGIFFLAGS, name), 16)
                if not flags & _IFF_UP:
                    continue
                ip = _address(_ask(asking, _SIOCGIFADDR, name))
                has_broadcast = bool(flags & _IFF_BROADCAST)
                broadcast = _address(_ask(asking, _SIOCGIFBRDADDR, name)) if has_broadcast else None
            except OSError:
                continue  # it has no address, or went just now
            found.append(Interface(index, name, ip, broadcast, bool(flags & _IFF_MULTICAST)))
    return found


def _ask(asking: socket.socket, what: int, name: str) -> bytes:
    return fcntl.ioctl(asking.fileno(), what, struct.pack("16s24x", name.encode()[:15]))


def _address(answer: bytes) -> str:
    return socket.inet_ntoa(answer[20:24])
