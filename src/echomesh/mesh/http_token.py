"""Where a subscriber is in many topics, as a short text that it can bring back: the `id` of server-sent events."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Final

from echomesh.errors import UsageError

LOG_BYTES: Final = 8  # of the log's id: offsets mean nothing in another one
MOST_CHARACTERS: Final = 32 << 10
_VERSION: Final = 1
_MOST_BITS: Final = 63


def encode(log_id: bytes, places: Iterable[tuple[int, int]]) -> str:
    """The token for (topic's number, next offset) pairs, in the order of the numbers. Places 0 are left out."""
    out = bytearray((_VERSION, *log_id[:LOG_BYTES]))
    before = -1
    for number, offset in places:
        if offset:
            _put(out, number - before - 1)
            _put(out, offset)
            before = number
    return base64.urlsafe_b64encode(out).rstrip(b"=").decode()


def decode(token: str, log_id: bytes) -> Mapping[int, int] | None:
    """Next offsets by topic's number; None for a token of another log. `UsageError` for what is no token."""
    if len(token) > MOST_CHARACTERS or not token.isascii():
        raise _wrong()
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _wrong() from None
    if len(data) < 1 + LOG_BYTES or data[0] != _VERSION:
        raise _wrong()
    numbers = _numbers(data[1 + LOG_BYTES :])
    if len(numbers) % 2:
        raise _wrong()
    if data[1 : 1 + LOG_BYTES] != log_id[:LOG_BYTES]:
        return None
    places: dict[int, int] = {}
    number = -1
    for gap, offset in zip(numbers[::2], numbers[1::2], strict=True):
        number += gap + 1
        places[number] = offset
    return places


def _put(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)


def _numbers(data: bytes) -> list[int]:
    found = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
        elif shift >= _MOST_BITS:
            raise _wrong()
    if shift:
        raise _wrong()
    return found


def _wrong() -> UsageError:
    return UsageError("Last-Event-ID is not one that this server gave: connect without it, or with `start`")
