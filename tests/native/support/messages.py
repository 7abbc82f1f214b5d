"""Messages that tell by themselves who wrote them, in which order, and whether they are whole."""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict

FRONT = struct.Struct("<iqI")


def make(producer: int, sequence: int, size: int) -> bytes:
    """A body of `size` bytes, at least those of its front."""
    payload = (sequence * 2654435761 % 251 + 1).to_bytes(1, "little") * (size - FRONT.size)
    crc = zlib.crc32(payload, producer * 1_000_003 + sequence & 0xFFFFFFFF)
    return FRONT.pack(producer, sequence, crc) + payload


def size_of(sequence: int, largest: int) -> int:
    """A size that varies from message to message, up to the largest."""
    return FRONT.size + sequence * 7919 % (largest - FRONT.size + 1)


class Ledger:
    """What a consumer got from each producer; a torn, lost, doubled or reordered message fails at once."""

    def __init__(self) -> None:
        self.counts: defaultdict[int, int] = defaultdict(int)

    def take(self, kind: int, body: memoryview | bytes) -> None:
        producer, sequence, crc = FRONT.unpack_from(body)
        assert crc == zlib.crc32(body[FRONT.size :], producer * 1_000_003 + sequence & 0xFFFFFFFF), "torn"
        assert kind == producer + 1, "a type from another message"
        assert sequence == self.counts[producer], "lost, doubled or reordered"
        self.counts[producer] = sequence + 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())
