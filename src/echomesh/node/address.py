"""Addresses as people write them: HOST:PORT, with brackets around an IPv6 address."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final, NamedTuple

EXAMPLES: Final = "HOST:PORT such as 127.0.0.1:4889, mesh.example:4889 or [::1]:4889"


class Address(NamedTuple):
    """A host, which is a name or an IP address, and a port; an empty host is every interface."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, port: int | None = None) -> Address:
        """HOST:PORT, and HOST alone where there is a default; `ValueError` for anything else."""
        host, rest = _split(text)
        if rest is None:
            if port is None:
                raise ValueError("it has no port")
            number = port
        elif rest.isascii() and rest.isdigit() and int(rest[:6]) < 1 << 16:
            number = int(rest)
        else:
            raise ValueError("a port is 0 to 65535")
        if not all(char.isalnum() or char in ".-_:%" for char in host):
            raise ValueError("that is no host")
        return cls(host, number)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. A name is looked up; `ValueError` for one that nobody knows."""
        if not self.host:
            return False
        try:
            found = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise ValueError("nobody knows that host") from None
        return all(ipaddress.ip_address(str(info[4][0]).partition("%")[0]).is_loopback for info in found)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("the brackets around an IPv6 address don't match")
        return host, rest[1:] if rest else None
    if text.count(":") > 1:
        raise ValueError("an IPv6 address stands in brackets")
    host, colon, rest = text.partition(":")
    return host, rest if colon else None
