"""What can be set for the data plane of a process, and what it is when nobody does."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from echomesh.errors import BadOptions
from echomesh.nukleus.directory import Directory, check_name, default_domain, default_root

BEACON_PORT: Final = 7331
PARTICIPANT_PORT: Final = 7332
GROUP: Final = "239.255.73.31"
BEACON_S: Final = 1.0
LINGER_S: Final = 2.0

T = TypeVar("T")


def _set(name: str, parse: Callable[[str], T], default: T) -> T:
    """The value of an environment variable, where it is set."""
    given = os.environ.get(name)
    if not given:
        return default
    try:
        return parse(given)
    except ValueError as error:
        raise BadOptions(name, given, str(error)) from None


def _port(name: str, default: int) -> Callable[[], int]:
    return lambda: _set(name, int, default)


def _peers(text: str) -> tuple[str, ...]:
    return tuple(peer.strip() for peer in text.split(",") if peer.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Which participant a process belongs to, and how participants find each other.

    What is not given comes from the environment. Processes of one machine that shall talk to each other have the same
    domain and directory; those of several machines the same domain, beacon port and group.
    """

    domain: str = field(default_factory=default_domain)
    """Only the same domain talks; `ECHOMESH_DOMAIN`, else `default`."""
    directory: Path | str | None = None
    """Where the nuklei meet; `ECHOMESH_DIR`, else this user's and domain's directory in shared memory."""
    beacon_port: int = field(default_factory=_port("ECHOMESH_BEACON_PORT", BEACON_PORT))
    """UDP port on which participants hear each other; `ECHOMESH_BEACON_PORT`."""
    participant_port: int = field(default_factory=_port("ECHOMESH_PARTICIPANT_PORT", PARTICIPANT_PORT))
    """TCP port of 127.0.0.1 for the processes of this machine; `ECHOMESH_PARTICIPANT_PORT`; 0: any free one."""
    link_port: int = field(default_factory=_port("ECHOMESH_LINK_PORT", 0))
    """TCP port for the other participants; `ECHOMESH_LINK_PORT`; 0: any free one, which the beacon tells."""
    broadcast: bool = field(default_factory=lambda: os.environ.get("ECHOMESH_BROADCAST", "1") not in ("", "0"))
    """Whether beacons go to the broadcast address of every interface; `ECHOMESH_BROADCAST`, 0 or 1."""
    group: str = field(default_factory=lambda: os.environ.get("ECHOMESH_GROUP", GROUP))
    """The multicast group for beacons, `ECHOMESH_GROUP`; empty for none."""
    peers: Sequence[str] = field(default_factory=lambda: _peers(os.environ.get("ECHOMESH_PEERS", "")))
    """Hosts (`host` or `host:port`) that get beacons whatever the network does; `ECHOMESH_PEERS`, comma-separated."""
    beacon_s: float = field(default_factory=lambda: _set("ECHOMESH_BEACON_SECONDS", float, BEACON_S))
    """Seconds between two beacons, the same on all machines; `ECHOMESH_BEACON_SECONDS`."""
    linger_s: float = field(default_factory=lambda: _set("ECHOMESH_LINGER_SECONDS", float, LINGER_S))
    """For how long a participant stays when its last process has left; `ECHOMESH_LINGER_SECONDS`."""

    def __post_init__(self) -> None:
        check_name(self.domain)
        object.__setattr__(self, "peers", _peers(self.peers) if isinstance(self.peers, str) else tuple(self.peers))
        object.__setattr__(self, "directory", None if self.directory is None else Path(self.directory))
        for name in ("beacon_port", "participant_port", "link_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise BadOptions(name, getattr(self, name), "a port is a number from 0 to 65535")
        if self.beacon_port == 0:
            raise BadOptions("beacon_port", 0, "all participants must know it: choose one")
        if not 0.01 <= self.beacon_s <= 60:
            raise BadOptions("beacon_s", self.beacon_s, "beacons go out each 0.01 to 60 seconds")
        if not 0 <= self.linger_s <= 86400:
            raise BadOptions("linger_s", self.linger_s, "a participant lingers for 0 to 86400 seconds")
        if self.group and not _is_group(self.group):
            raise BadOptions("group", self.group, "not an IPv4 multicast address such as 239.255.73.31")
        for peer in self.peers:
            split_peer(peer, self.beacon_port)

    @property
    def root(self) -> Path:
        """The directory in use."""
        return Path(self.directory or default_root(self.domain))

    def meeting(self) -> Directory:
        """The directory in use, as nuklei know it."""
        return Directory(self.root)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a process of its own; `DataOptions.of` takes them back."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "directory": str(self.root.absolute()), "peers": list(self.peers)}

    @classmethod
    def of(cls, values: dict[str, Any]) -> DataOptions:
        """From what `to_dict` gave."""
        return cls(**values)


def _is_group(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text).is_multicast
    except ValueError:
        return False


def split_peer(text: str, port: int) -> tuple[str, int]:
    """Host and port of a static peer."""
    host, colon, after = text.rpartition(":")
    if not colon:
        return text, port
    if not host or not after.isdecimal() or not 0 < int(after) <= 65535:
        raise BadOptions("peers", text, "write host or host:port")
    return host, int(after)
