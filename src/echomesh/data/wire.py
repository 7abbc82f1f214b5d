"""Beacons and control messages as bytes: MessagePack, on connections behind a length of four bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from echomesh.data.messages import Hello, Message, PartToLook, PartToPart, PartToPub, PartToSub, ToPart
from echomesh.errors import BadPacket, FrameTooLarge
from echomesh.frames import STRANGER_FRAME, Splitter, framed

BEACON_BYTES: Final = 512
"""No beacon is longer: one fits any path."""
LOCAL_BYTES: Final = STRANGER_FRAME
LINK_BYTES: Final = 4 << 20
"""Enough for all endpoints that a participant may have."""
LOOK_BYTES: Final = 64 << 20

T = TypeVar("T", bound=Message)

_encoder: Final = msgspec.msgpack.Encoder()
_beacon: Final = msgspec.msgpack.Decoder(Hello)


def encode(message: Message) -> bytes:
    """The message as a connection carries it."""
    return framed(_encoder.encode(message))


def encode_beacon(hello: Hello) -> bytes:
    """The beacon as a datagram carries it."""
    return _encoder.encode(hello)


def decode_beacon(data: bytes) -> Hello:
    """The beacon of a datagram, or `BadPacket`."""
    if len(data) > BEACON_BYTES:
        raise BadPacket(f"{len(data)} bytes are no beacon")
    return _decode(_beacon, data)


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadPacket(f"{len(data)} bytes are no message: {error}") from None


class Messages(Generic[T]):
    """Takes what a connection brings, in pieces of any size, and gives messages of one kind of talk."""

    def __init__(self, kind: Any, limit: int) -> None:
        self._splitter = Splitter(limit)
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def feed(self, data: bytes) -> Iterator[T]:
        """The messages that are whole now; `BadPacket` where one is none, after those before it."""
        try:
            payloads: Iterable[bytes] = self._splitter.feed(data)
        except FrameTooLarge as error:
            raise BadPacket(str(error)) from None
        for payload in payloads:
            yield _decode(self._decoder, payload)


def from_participant() -> Messages[PartToPart]:
    """For a connection with another participant."""
    return Messages(PartToPart, LINK_BYTES)


def from_local() -> Messages[ToPart]:
    """For a connection of a process of this machine."""
    return Messages(ToPart, LOCAL_BYTES)


def to_publisher() -> Messages[PartToPub]:
    """For a publisher's connection to its participant."""
    return Messages(PartToPub, LINK_BYTES)


def to_subscriber() -> Messages[PartToSub]:
    """For a subscriber's connection to its participant."""
    return Messages(PartToSub, LINK_BYTES)


def to_onlooker() -> Messages[PartToLook]:
    """For one who only wants to know who is there."""
    return Messages(PartToLook, LOOK_BYTES)
