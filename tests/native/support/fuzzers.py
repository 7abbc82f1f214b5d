"""Files of random and hostile bytes, used in every way: only typed errors and results may come of it."""

from __future__ import annotations

import contextlib
import faulthandler
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from echomesh.errors import EchomeshError
from echomesh.native.broadcast import Receiver, Transmitter
from echomesh.native.counters import Counters
from echomesh.native.doorbell import Doorbell
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.native.waiter import Waiter
from tests.native.support.memory import put32, put64

LENGTHS = (0, 1, 7, 8, 9, 12, 16, 63, 64, 1024, 2**31 - 1, -1, -7, -8, -9, -16, -64, -(2**31), -(2**31) + 1)
POSITIONS = (
    0,
    8,
    4,
    56,
    64,
    1016,
    1024,
    2**40,
    2**62,
    2**63 - 8,
    2**63 - 1,
    -1,
    -8,
    -64,
    -(2**63),
    -(2**63) + 8,
)


class Fuzzer:
    """One seed: a file that is written to and used in random order."""

    def __init__(self, seed: int, home: Path) -> None:
        self.chance = random.Random(seed)
        self.home = home
        self.made = 0

    def file(self, size: int) -> Path:
        """Nothing, noise or headers, or a mix of them."""
        chance = self.chance
        data = bytearray(size)
        if chance.random() < 0.3:
            data = bytearray(chance.randbytes(size))
        for _ in range(chance.randrange(12)):
            at = chance.randrange(size // 8) * 8
            header = chance.choice(LENGTHS) & 0xFFFFFFFF | chance.choice((0, 1, 7, 2**32 - 1)) << 32
            data[at : at + 8] = header.to_bytes(8, "little")
        self.made += 1
        path = self.home / f"file{self.made}"
        path.write_bytes(data[: chance.randrange(size)] if chance.random() < 0.1 else data)
        return path

    def position(self) -> int:
        chance = self.chance
        return chance.choice((chance.choice(POSITIONS), chance.randrange(256) * 8, chance.getrandbits(64)))

    def spoil(self, mapping: Mapping, places: list[int]) -> None:
        for at in places:
            if self.chance.random() < 0.5 and at + 8 <= mapping.size:
                put64(mapping, at, self.position())

    def attempt(self, calls: list[Callable[[], object]], times: int) -> None:
        for _ in range(times):
            with contextlib.suppress(EchomeshError):
                self.chance.choice(calls)()

    def body(self) -> bytes:
        return bytes(self.chance.randrange(140))

    def ring(self) -> None:
        chance, capacity = self.chance, 1024
        mapping = Mapping.open(self.file(capacity + 768))
        places = [capacity + at for at in (0, 8, 128, 136, 144, 152, 256, 384, 512, 640)]
        self.spoil(mapping, places)
        ring = Ring(mapping, serial=chance.random() < 0.5)
        bell = Doorbell.create(self.home / "bell")
        if chance.random() < 0.5:
            ring.connect_reader(bell)
            ring.connect_writer(bell)
        waiter = Waiter(bell)
        waiter.watch([ring], [(ring, chance.randrange(-5, 200))])
        held: list[object] = []

        def spoil_a_record() -> None:
            put32(mapping, chance.randrange(mapping.size // 4) * 4, chance.choice(LENGTHS))

        self.attempt(
            [
                lambda: ring.write(chance.randrange(-2, 9), self.body()),
                lambda: ring.write_many(1, [self.body() for _ in range(5)]),
                lambda: ring.write_frame(1, 5, self.body()),
                lambda: held.append(ring.claim(1, chance.randrange(-1, 130))),
                held.clear,
                lambda: ring.read(lambda kind, view: bytes(view), chance.randrange(-1, 9)),
                ring.drain,
                lambda: ring.unblock(to_tail=chance.random() < 0.5),
                ring.heal,
                ring.blocked,
                ring.readable,
                lambda: ring.has_room(chance.randrange(200)),
                lambda: (ring.head, ring.tail, ring.size, ring.head_cache, ring.heartbeat, ring.writer_rings),
                ring.next_correlation_id,
                lambda: waiter.wait(0.0005, spin=chance.choice((0.0, 0.0001, float("inf")))),
                waiter.arm,
                bell.silence,
                lambda: self.spoil(mapping, places),
                spoil_a_record,
            ],
            60,
        )

    def broadcast(self) -> None:
        chance, capacity = self.chance, 256
        mapping = Mapping.open(self.file(capacity + 128))
        places = [capacity + at for at in (0, 8, 16, 64, 72)]
        if chance.random() < 0.5:
            self.spoil(mapping, places)
        receiver, transmitter = Receiver(mapping), Transmitter(mapping, wakes=chance.random() < 0.5)
        self.attempt(
            [
                lambda: transmitter.transmit(chance.randrange(-1, 5), self.body()[:40]),
                receiver.receive,
                receiver.receive,
                lambda: receiver.wait(0.0005),
                lambda: (receiver.tail_intent, receiver.tail, receiver.latest, receiver.lapped),
                lambda: self.spoil(mapping, places),
                lambda: put32(mapping, chance.randrange(mapping.size // 4) * 4, chance.choice(LENGTHS)),
            ],
            60,
        )

    def counters(self) -> None:
        chance = self.chance
        labels, values = Mapping.open(self.file(1024)), Mapping.open(self.file(1024))
        where = [0, 0]
        sizes: list[int | None] = [None, None]
        if chance.random() < 0.3:
            where = [chance.choice((0, 8, 128, -8, 2**62, 1024)) for _ in range(2)]
            sizes = [chance.choice((None, 0, 128, 1024, 2**62, -1)) for _ in range(2)]
        table = Counters(labels, values, *where, *sizes)
        held = [table.allocate("one")]
        self.attempt(
            [
                table.list,
                lambda: held.append(table.allocate("x" * chance.randrange(130))),
                lambda: table.free(chance.choice(held)),
                lambda: chance.choice(held).add(2**62),
                lambda: put32(labels, chance.randrange(labels.size // 128) * 128, chance.choice(LENGTHS)),
            ],
            40,
        )

    def opening(self) -> None:
        """Offsets and capacities as a hostile header would give them."""
        mapping = Mapping.open(self.file(4096))
        offset, capacity = self.chance.choice(POSITIONS), self.chance.choice((*POSITIONS, *LENGTHS))
        self.attempt(
            [
                lambda: Ring(mapping, offset, capacity).drain(),
                lambda: Receiver(mapping, offset, capacity).receive(),
                lambda: Transmitter(mapping, offset, capacity).transmit(1, b""),
                lambda: Counters(mapping, mapping, offset, 0, capacity, capacity).list(),
            ],
            10,
        )


def fuzz(what: str, first: str, count: str, limit_s: str) -> None:
    """Runs seeds first to first + count; a crash names its seed on the way out."""
    faulthandler.dump_traceback_later(float(limit_s), exit=True)
    seeds = Mapping.open(Path(sys.argv[-1]))
    for seed in range(int(first), int(first) + int(count)):
        put64(seeds, 0, seed)
        home = tempfile.TemporaryDirectory(prefix="echomesh-test-", dir="/dev/shm")
        with home as directory, contextlib.suppress(EchomeshError):
            getattr(Fuzzer(seed, Path(directory)), what)()


if __name__ == "__main__":
    fuzz(*sys.argv[1:5])
