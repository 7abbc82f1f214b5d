"""What a many-to-one ring does, said as plainly as possible: Agrona's rules on a bytearray."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.native.support.memory import HEAD, HEAD_CACHE, RING_TRAILER, TAIL, record

PADDING = -1


def align(n: int) -> int:
    return (n + 7) // 8 * 8


@dataclass
class Record:
    """One place of the ring that is claimed and not yet consumed."""

    position: int
    length: int  # with the header, not aligned
    kind: int
    body: bytes
    published: bool


@dataclass
class RingModel:
    """The ring's positions, its records in order and the exact bytes of its file."""

    capacity: int
    start: int = 0
    head: int = field(init=False)
    tail: int = field(init=False)
    head_cache: int = field(init=False)
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.head = self.tail = self.head_cache = self.start

    def room(self, length: int) -> int | None:
        """The padding before a body of `length` bytes, or None when it is refused; may renew the cache."""
        need = align(length + 8)
        head = self.head_cache
        if need > self.capacity - (self.tail - head):
            head = self.head
            if need > self.capacity - (self.tail - head):
                return None
            self.head_cache = head
        to_end = self.capacity - self.tail % self.capacity
        if need <= to_end:
            return 0
        if need > head % self.capacity:
            head = self.head
            if need > head % self.capacity:
                return None
            self.head_cache = head
        return to_end

    def claim(self, kind: int, length: int) -> Record | None:
        padding = self.room(length)
        if padding is None:
            return None
        if padding:
            self.records.append(Record(self.tail, padding, PADDING, b"", True))
        made = Record(self.tail + padding, length + 8, kind, bytes(length), False)
        self.records.append(made)
        self.tail = made.position + align(made.length)
        return made

    def write(self, kind: int, body: bytes) -> bool:
        made = self.claim(kind, len(body))
        if made is None:
            return False
        made.body, made.published = body, True
        return True

    def read(self, limit: int, stop_at: int | None = None) -> list[tuple[int, bytes]]:
        """One call of the reader, which ends behind message number `stop_at`."""
        got: list[tuple[int, bytes]] = []
        end = self.head - self.head % self.capacity + self.capacity
        position = self.head
        for entry in list(self.records):
            if position == end or len(got) >= limit or not entry.published:
                break
            position = entry.position + align(entry.length)
            self.records.remove(entry)
            if entry.kind != PADDING:
                got.append((entry.kind, entry.body))
                if len(got) - 1 == stop_at:
                    break
        self.head = position
        return got

    def drain(self, limit: int) -> list[tuple[int, bytes]]:
        got = self.read(limit)
        if len(got) < limit and self.readable():
            got += self.read(limit - len(got))
        return got

    def readable(self) -> bool:
        return bool(self.records) and self.records[0].published

    def blocked(self) -> bool:
        return bool(self.records) and not self.records[0].published

    def image(self) -> bytes:
        """Every byte of the file: zero wherever no record lives."""
        image = bytearray(self.capacity + RING_TRAILER)
        for entry in self.records:
            at = entry.position % self.capacity
            length = entry.length if entry.published else -entry.length
            image[at : at + 8] = record(length, entry.kind)
            image[at + 8 : at + 8 + len(entry.body)] = entry.body
        for at, value in ((TAIL, self.tail), (HEAD_CACHE, self.head_cache), (HEAD, self.head)):
            image[self.capacity + at : self.capacity + at + 8] = value.to_bytes(8, "little")
        return bytes(image)
