"""What can be chosen for a session, and how its address is written."""

from __future__ import annotations

import os
import random
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from echomesh.errors import UsageError
from echomesh.mesh.bodies import Hello, Server
from echomesh.mesh.codes import ENVIRONMENTS, PORT, Purpose

Tls = bool | str | os.PathLike[str] | ssl.SSLContext | None


@dataclass(frozen=True)
class ClientOptions:
    """Where the server is, who we are there, and how patient we are."""

    server: Server
    client_id: str
    password: str | None = field(default=None, repr=False)
    environment: str = "TST"
    tls: ssl.SSLContext | None = None
    batch: int | None = None
    window_events: int = 4096  # publishes without an answer, at the most
    window_bytes: int = 8 << 20
    connect_timeout: float = 5.0  # for the first connection
    max_outage: float = 60.0  # for those after it
    timeout: float | None = 30.0  # until a request is answered, while there is a connection
    reply_topic: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= _bytes("client_id", self.client_id) <= 255:
            raise UsageError("client_id is 1 to 255 bytes long")
        _bytes("password", self.password or "")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"timeout={self.timeout!r}: it is a number of seconds, or None to wait for ever")
        if self.environment not in ENVIRONMENTS:
            raise UsageError(f"environment={self.environment!r}: it is one of {', '.join(ENVIRONMENTS)}")

    def hello(self, purpose: Purpose) -> Hello:
        """What a connection for this purpose begins with."""
        return Hello(
            self.client_id,
            self.environment,
            password=self.password,
            buffer_cloud_events=self.batch,
            purpose=int(purpose),
            pid=os.getpid(),
        )


def _bytes(name: str, text: str) -> int:
    try:
        return len(text.encode())
    except (UnicodeEncodeError, AttributeError):
        raise UsageError(f"{name} is a str that UTF-8 can carry") from None


def parse_address(address: str) -> Server:
    """`host`, `host:port` or `[ipv6]:port`; the port is 4889 where none is named.

    >>> parse_address("mesh.example"), parse_address("[::1]:5000")
    (Server(urn='mesh.example', port=4889), Server(urn='::1', port=5000))
    """
    text = address.strip()
    host, port = text, str(PORT)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise UsageError(f"{address!r} is no address: write [host]:port for IPv6")
        port = rest[1:] or port
    elif text.count(":") == 1:
        host, port = text.split(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"{address!r} is no address: write host:port, as in mesh.example:{PORT}")
    return Server(host, int(port))


def tls_context(tls: Tls) -> ssl.SSLContext | None:
    """True trusts what this machine trusts, a path the certificates in that file; a context is used as it is."""
    if tls is None or tls is False or isinstance(tls, ssl.SSLContext):
        return tls or None
    authority = None if tls is True else str(tls)
    if authority is not None and not Path(authority).is_file():
        raise UsageError(f"tls={authority!r} is no file: give the PEM file of the server's certificate authority")
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class Backoff:
    """Pauses between attempts to connect: each twice as long, with jitter, so that thousands do not come at once."""

    def __init__(self, first_s: float = 0.05, longest_s: float = 5.0, rng: random.Random | None = None) -> None:
        self.first_s = first_s
        self.longest_s = longest_s
        self._random = rng or random.Random()
        self._next_s = first_s

    def pause(self) -> float:
        """How long to wait before the next attempt."""
        pause = self._next_s * self._random.uniform(0.5, 1.0)
        self._next_s = min(self._next_s * 2, self.longest_s)
        return pause

    def reset(self) -> None:
        """It worked."""
        self._next_s = self.first_s
