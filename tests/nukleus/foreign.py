"""A foreign peer: Agrona's ring and broadcast buffer and the seed's layouts in plain `struct` and `mmap`.

It shares no code with echomesh: what the two exchange is what the bytes are. Its rings carry no marks,
as those of a Java process would not.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

RING_TRAILER = 768
BROADCAST_TRAILER = 128
TAIL, HEAD_CACHE, HEAD, CORRELATION = 128, 256, 384, 512

Record = tuple[int, bytes]


def aligned(length: int) -> int:
    return (length + 7) & ~7


class Memory:
    """A mapped file; whole ints are stored at once, as another process must never see half of one."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR)
        try:
            self._map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self.bytes = memoryview(self._map)
        self.ints = self.bytes.cast("i")
        self.longs = self.bytes[: len(self.bytes) & ~7].cast("q")


class ForeignRing:
    """A many-to-one ring with one writer and one reader."""

    def __init__(self, memory: Memory, start: int, capacity: int) -> None:
        self._memory = memory
        self._start = start
        self.capacity = capacity

    @classmethod
    def create(cls, path: Path, capacity: int) -> ForeignRing:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(capacity + RING_TRAILER))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> ForeignRing:
        memory = Memory(path)
        return cls(memory, 0, len(memory.bytes) - RING_TRAILER)

    def _trailer(self, offset: int) -> int:
        return (self._start + self.capacity + offset) // 8

    @property
    def head(self) -> int:
        return self._memory.longs[self._trailer(HEAD)]

    @property
    def tail(self) -> int:
        return self._memory.longs[self._trailer(TAIL)]

    def next_correlation(self) -> int:
        at = self._trailer(CORRELATION)
        self._memory.longs[at] += 1
        return self._memory.longs[at] - 1

    def write(self, kind: int, body: bytes) -> bool:
        need = aligned(8 + len(body))
        head, tail = self.head, self.tail
        index = tail % self.capacity
        padding = self.capacity - index if need > self.capacity - index else 0
        if need + padding > self.capacity - (tail - head):
            return False
        self._memory.longs[self._trailer(TAIL)] = tail + padding + need
        if padding:
            self._put(index, padding, -1, b"")
            index = 0
        self._put(index, 8 + len(body), kind, body)
        return True

    def _put(self, index: int, length: int, kind: int, body: bytes) -> None:
        at = self._start + index
        self._memory.ints[at // 4] = -length
        self._memory.ints[at // 4 + 1] = kind
        self._memory.bytes[at + 8 : at + 8 + len(body)] = body
        self._memory.ints[at // 4] = length

    def read(self) -> list[Record]:
        """All published messages, also those behind the wrap."""
        found: list[Record] = []
        while True:
            head = self.head
            at = self._start + head % self.capacity
            length = self._memory.ints[at // 4]
            if length <= 0:
                return found
            kind = self._memory.ints[at // 4 + 1]
            if kind != -1:
                found.append((kind, bytes(self._memory.bytes[at + 8 : at + length])))
            self._memory.bytes[at : at + aligned(length)] = bytes(aligned(length))
            self._memory.longs[self._trailer(HEAD)] = head + aligned(length)

    def await_record(self, count: int = 1, timeout_s: float = 10.0) -> list[Record]:
        """At least so many messages."""
        found: list[Record] = []
        deadline = time.monotonic() + timeout_s
        while len(found) < count:
            found += self.read()
            if len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} messages: {found}"
                time.sleep(0.0005)
        return found


class ForeignReceiver:
    """A receiver of a broadcast buffer, from now on."""

    def __init__(self, memory: Memory, start: int, capacity: int) -> None:
        self._memory = memory
        self._start = start
        self._capacity = capacity
        self._cursor = self._tail()

    def _tail(self) -> int:
        return self._memory.longs[(self._start + self._capacity + 8) // 8]

    def receive(self) -> Record | None:
        while self._cursor < self._tail():
            at = self._start + self._cursor % self._capacity
            length, kind = self._memory.ints[at // 4], self._memory.ints[at // 4 + 1]
            body = bytes(self._memory.bytes[at + 8 : at + length])
            self._cursor += aligned(length)
            if kind != -1:
                return kind, body
        return None


class ForeignController:
    """Writes commands to a control file and reads the responses."""

    def __init__(self, path: Path) -> None:
        memory = Memory(path)
        header = struct.unpack(">5i", memory.bytes[:20])
        assert header[0] == 1
        assert bytes(memory.bytes[20:64]) == bytes(44)
        _, commands, self.responses, self.labels, self.values = header
        self.memory = memory
        self.ring = ForeignRing(memory, 64, commands)
        self._responses_at = 64 + commands + RING_TRAILER
        assert len(memory.bytes) == self._responses_at + self.responses + 128 + self.labels + self.values

    def send(self, code: int, body: bytes) -> ForeignReceiver:
        receiver = ForeignReceiver(self.memory, self._responses_at, self.responses)
        assert self.ring.write(code, body)
        return receiver

    def call(self, code: int, body: bytes, timeout_s: float = 10.0) -> Record:
        """The next response of all, as it came."""
        receiver = self.send(code, body)
        deadline = time.monotonic() + timeout_s
        while (answer := receiver.receive()) is None:
            assert time.monotonic() < deadline, f"no answer to {code:#x} {body.hex()}"
            time.sleep(0.0005)
        return answer

    def counters(self) -> dict[str, int]:
        found = {}
        labels_at = self._responses_at + self.responses + BROADCAST_TRAILER
        for slot in range(self.labels // 128):
            at = labels_at + slot * 128
            length = self.memory.ints[at // 4]
            if length == 0:
                break
            if length > 0:
                label = bytes(self.memory.bytes[at + 4 : at + 4 + length]).decode()
                found[label] = self.memory.longs[(labels_at + self.labels + slot * 128) // 8]
        return found


class ForeignPeer:
    """A nukleus of another implementation: a directory with no `owner` file, and its rings."""

    def __init__(self, root: Path, name: str, capacity: int = 1 << 16) -> None:
        self.root = root
        self.name = name
        self.capacity = capacity
        (root / name / "streams").mkdir(parents=True)

    def capture(self, source: str) -> ForeignRing:
        return ForeignRing.create(self.root / self.name / "streams" / source, self.capacity)

    def route(self, destination: str) -> ForeignRing:
        return ForeignRing.open(self.root / destination / "streams" / self.name)
