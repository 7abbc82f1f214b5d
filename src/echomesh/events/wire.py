"""The MessagePack form of an event: one flat map of its attributes, plus `data`.

Boolean, Integer, String, Binary and Timestamp are MessagePack's bool, int, str, bin and timestamp; `time` may
be an RFC 3339 string as well. `data` is bin or str, and absent when there is none. Nil stands nowhere: what
is not set is left out. No name comes twice.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from echomesh.errors import BadEvent, BadEventEncoding
from echomesh.events.rules import MAX_ATTRIBUTES

# Decoding anything at all is quickest, but a stranger's nested arrays take sixty times their size: up to here
# that is nothing, and beyond it each value's type is looked at before it is built.
SMALL_BYTES: Final = 64 << 10

ABSENT: Final = Raw(b"")


class Plain(msgspec.Struct, gc=False):
    """A small event without extensions: its names need no dictionary, which halves the time to decode it."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    datacontenttype: str | None = None
    dataschema: str | None = None
    subject: str | None = None
    raw_time: Raw = msgspec.field(name="time", default=ABSENT)
    raw_data: Raw = msgspec.field(name="data", default=ABSENT)


encode: Final = msgspec.msgpack.Encoder().encode
_decode_plain = msgspec.msgpack.Decoder(Plain).decode
_decode_small = msgspec.msgpack.Decoder(dict[str, Any]).decode
_decode_large = msgspec.msgpack.Decoder(dict[str, Raw]).decode

_NESTED: Final = frozenset((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))


_decode_value: Final = msgspec.msgpack.Decoder().decode
_MALFORMED: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def decode_plain(buffer: bytes) -> tuple[Plain, Any, Any] | None:
    """A plain event with its time and data; None for any other, for `decode` to take or to refuse."""
    if len(buffer) > SMALL_BYTES:
        return None
    names = 0x84
    time = data = None
    try:
        plain = _decode_plain(buffer)
        if plain.raw_time is not ABSENT:
            time = _decode_value(plain.raw_time)
        if plain.raw_data is not ABSENT:
            data = _decode_value(plain.raw_data)
    except _MALFORMED:
        return None
    if time is not None:
        names += 1
    if data is not None:
        names += 1
    if plain.datacontenttype is not None:
        names += 1
    if plain.dataschema is not None:
        names += 1
    if plain.subject is not None:
        names += 1
    # The map's header counts one more for an extension, a nil, and a name that is there twice.
    return (plain, time, data) if buffer[0] == names else None


def decode(buffer: bytes) -> dict[str, Any]:
    """The attributes and `data` in these bytes; their values are still to be checked."""
    try:
        count = buffer[0] ^ 0x80 if buffer[0] & 0xF0 == 0x80 else _count(buffer)
        attributes = _decode_small(buffer) if len(buffer) <= SMALL_BYTES else _decode_by_type(buffer)
    except (*_MALFORMED, IndexError) as error:
        if isinstance(error, BadEvent):
            raise
        raise BadEventEncoding(str(error) if buffer else "there are none", len(buffer)) from None
    if len(attributes) != count:
        raise BadEventEncoding("an attribute is there twice", len(buffer))
    # Nil is 0xC0, a byte that UTF-8 never has: most events need no closer look.
    if 0xC0 in buffer:
        for name, value in attributes.items():
            if value is None:
                raise BadEvent(name, None, "is nil: leave it out instead")
    return attributes


def _decode_by_type(buffer: bytes) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, raw in _decode_large(buffer).items():
        if memoryview(raw)[0] in _NESTED:
            raise BadEvent(
                name,
                bytes(memoryview(raw)[:16]),
                "is an array or a map: only data may have structure, as JSON",
            )
        attributes[name] = _decode_value(raw)
    return attributes


def _count(buffer: bytes) -> int:
    if buffer[0] == 0xDE:
        count = int.from_bytes(buffer[1:3])
    elif buffer[0] == 0xDF:
        count = int.from_bytes(buffer[1:5])
    else:
        raise BadEventEncoding("they do not begin with a MessagePack map", len(buffer))
    if count > MAX_ATTRIBUTES:
        raise BadEventEncoding(f"a map of {count} is over the limit of {MAX_ATTRIBUTES} attributes", len(buffer))
    return count
