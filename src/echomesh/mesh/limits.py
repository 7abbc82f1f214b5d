"""How often is too often: publishes of a client, and passwords that somebody guesses. Time is an argument."""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from functools import lru_cache
from typing import Final


class Rate:
    """So many a second, and `burst` at once (a second's worth when not given): a bucket that fills evenly.

    All sessions of a client share one.

    >>> rate = Rate(2)
    >>> [rate.take(now) for now in (0.0, 0.0, 0.0, 0.5)]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self.per_second = per_second
        self.burst = max(1.0, per_second) if burst is None else burst
        self._left = self.burst
        self._at = -math.inf

    def take(self, now: float, count: int = 1) -> float:
        """0.0 when allowed, else the seconds until it will be. More than `burst` at once are paid for afterwards."""
        if now > self._at:
            self._left = min(self.burst, self._left + (now - self._at) * self.per_second)
            self._at = now
        # A rounding error is no reason to wait.
        missing = min(float(count), self.burst) - self._left
        if missing > 1e-6:
            return missing / self.per_second
        self._left -= count
        return 0.0


class Failures:
    """Who guesses passwords has to wait, longer each time: 1 s, 2 s, 4 s, at most a minute.

    It begins after 5 wrong ones for one client id from one address, and after 100 for all client ids from there. So a
    program with an old password does not shut out its neighbours behind the same address, but one who tries every name
    is shut out. Memory is bounded: beyond `MOST` guessers, the one that failed longest ago is forgotten.
    """

    MOST: Final = 10_000

    def __init__(self) -> None:
        self._pairs = _Tally(free=5, forgiven_s=120.0, most=self.MOST)
        # Ten programs that try an old password once a minute add nothing to the count of their address.
        self._addresses = _Tally(free=100, forgiven_s=6.0, most=self.MOST)

    def wait(self, address: str, now: float, client_id: str = "") -> float:
        """The seconds until this address may try as this client, 0.0 for now. To come too early is no new failure."""
        source, pair = _keys(address, client_id)
        return max(self._pairs.wait(pair, now), self._addresses.wait(source, now))

    def failed(self, address: str, now: float, client_id: str = "") -> None:
        """Counts a wrong password, or a client that does not exist."""
        source, pair = _keys(address, client_id)
        self._pairs.add(pair, now)
        self._addresses.add(source, now)

    def succeeded(self, address: str, client_id: str = "") -> None:
        """Forgets the wrong passwords of this client; the address's own count stays, as a guesser may have a client."""
        self._pairs.forget(_keys(address, client_id)[1])

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._pairs) + len(self._addresses)


class _Tally:
    """Failures by key: each is forgiven after `forgiven_s`; from `free` on they make a pause."""

    FIRST_S: Final = 1.0
    LONGEST_S: Final = 60.0
    MOST_DOUBLED: Final = 8.0

    def __init__(self, *, free: int, forgiven_s: float, most: int) -> None:
        self._free = free
        self._forgiven_s = forgiven_s
        self._most = most
        self._failed: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def wait(self, key: int, now: float) -> float:
        number, last = self._failed.get(key, (0.0, now))
        if number < self._free:
            return 0.0
        pause: float = min(self.LONGEST_S, self.FIRST_S * 2.0 ** (number - self._free))
        return max(0.0, last + pause - now)

    def add(self, key: int, now: float) -> None:
        number, last = self._failed.pop(key, (0.0, now))
        number = max(0.0, number - (now - last) / self._forgiven_s) + 1.0
        self._failed[key] = (min(number, self._free + self.MOST_DOUBLED), now)
        if len(self._failed) > self._most:
            self._failed.popitem(last=False)

    def forget(self, key: int) -> None:
        self._failed.pop(key, None)


def _keys(address: str, client_id: str) -> tuple[int, int]:
    # Hashes, so that a stranger's long names are not kept.
    source = _source(address)
    return hash(source), hash((source, client_id))


@lru_cache(maxsize=1024)
def _source(address: str) -> str:
    # Who has one IPv6 address has the other 2^64 of its network.
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return parsed.exploded[:19]
