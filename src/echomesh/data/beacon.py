"""The beacon: when this participant says that it is there, and what it makes of others who do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from echomesh.data import wire
from echomesh.data.messages import VERSION, Hello
from echomesh.errors import BadPacket

EXPIRY_BEACONS: Final = 3.5
"""A participant that was not heard for so many intervals is gone."""

Count = Callable[[str], None]
"""Counts one event under that label."""


class Beacon:
    """Sends this participant's Hello each interval and reads those of others. No sockets, no clock."""

    def __init__(self, hello: Hello, interval_s: float, now: float, count: Count) -> None:
        self.hello = hello
        self.interval_s = interval_s
        self.due = now
        """When the next one goes out."""
        self._datagram = wire.encode_beacon(hello)
        self._count = count

    @property
    def expiry_s(self) -> float:
        """After how long a silence somebody is gone."""
        return EXPIRY_BEACONS * self.interval_s

    def send(self, now: float) -> bytes | None:
        """The datagram to send now, if it is time."""
        if now < self.due:
            return None
        # One that slept sends one beacon, not all that it missed.
        self.due = max(self.due + self.interval_s, now + self.interval_s / 2)
        return self._datagram

    def heard(self, data: bytes) -> Hello | None:
        """The Hello of another participant that this one may talk to; nothing is ever answered."""
        try:
            hello = wire.decode_beacon(data)
        except BadPacket:
            self._count("bad beacons")
            return None
        return hello if self.welcome(hello) else None

    def welcome(self, hello: Hello) -> bool:
        """Whether it is somebody else, of the same version and domain."""
        if hello.version != VERSION:
            self._count("beacons of other versions")
        elif hello.domain != self.hello.domain:
            self._count("beacons of other domains")
        elif hello.port == 0:
            self._count("bad beacons")
        else:
            return hello.id != self.hello.id
        return False
