"""Processes that write to a ring, to be killed and stopped at any point."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from tests.native.support.memory import get64, put64
from tests.native.support.messages import make, size_of

BATCH = 4  # the most messages that one step publishes
SLOTS = 4096
# The report has 32 bytes for each producer: messages whose write returned, and places that it healed.
REPORTED, HEALED = 0, 8


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def produce(path: str, producer: str, count: str) -> None:
    """Writes `count` messages without a lock, one by one, in batches and in place."""
    ring = Ring(Mapping.open(path))
    number, total, sequence = int(producer), int(count), 0
    while sequence < total:
        bodies = [
            make(number, n, size_of(n, ring.max_message))
            for n in range(sequence, min(total, sequence + 1 + sequence % BATCH))
        ]
        if sequence % 3 == 0:
            claim = ring.claim(number + 1, len(bodies[0]))
            written = int(claim is not None)
            if claim is not None:
                with claim as view:
                    view[:] = bodies[0]
        elif sequence % 3 == 1:
            written = int(ring.write(number + 1, bodies[0]))
        else:
            written = ring.write_many(number + 1, bodies)
        sequence += written
        if not written:
            time.sleep(0.00002)


def steps(ring: Ring, number: int, report: Mapping, chance: random.Random) -> Callable[[], None]:
    """One step writes a few messages in one of three ways, and reports them once the call has returned."""
    kind, sequence = number + 1, 0

    def body(n: int) -> bytes:
        return make(number, n, size_of(n, ring.max_message))

    def in_place(data: bytes) -> bool:
        claim = ring.claim(kind, len(data))
        if claim is None:
            return False
        with claim as view:
            for at in range(0, len(data), max(1, len(data) // 4)):
                view[at:] = data[at:]
                os.sched_yield()  # on a busy machine a killed process is one that has just yielded
            if chance.random() < 0.3:
                time.sleep(0.0005)
        return True

    def step() -> None:
        nonlocal sequence
        way = chance.random()
        if way < 0.6:
            written = int(in_place(body(sequence)))
        elif way < 0.8:
            written = int(ring.write(kind, body(sequence)))
        else:
            written = ring.write_many(kind, [body(sequence + n) for n in range(BATCH)])
        sequence += written
        if not written:
            time.sleep(0.0002)
        put64(report, number * 32 + REPORTED, sequence)

    return step


def produce_under_lock(directory: str, producer: str) -> None:
    """Writes for ever, each step under the lock of the ring's writers; heals first, as every holder must."""
    home, number = Path(directory), int(producer)
    report = Mapping.open(home / "report")
    ring = Ring(Mapping.open(home / "ring"), serial=True)
    step = steps(ring, number, report, random.Random(number))
    lock = os.open(home / "lock", os.O_RDWR)
    while True:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if ring.heal():
            put64(report, number * 32 + HEALED, get64(report, number * 32 + HEALED) + 1)
        step()
        fcntl.lockf(lock, fcntl.LOCK_UN)
        os.sched_yield()


def produce_alone(directory: str, producer: str) -> None:
    """Writes for ever as the ring's one writer; some claims stay open while others are made."""
    home, number = Path(directory), int(producer)
    ring = Ring(Mapping.open(home / "ring"))
    report = Mapping.open(home / "report")
    chance = random.Random(number)
    step = steps(ring, number, report, chance)
    while True:
        held = [ring.claim(99, chance.randrange(ring.max_message)) for _ in range(chance.randrange(3))]
        step()
        del held  # padded: the reader skips it


def stop_between_claim_and_publish(path: str) -> None:
    """Claims, fills half, stops itself, and goes on when somebody continues it."""
    ring = Ring(Mapping.open(path))
    data = make(0, 0, 100)
    claim = ring.claim(1, len(data))
    assert claim is not None
    with claim as view:
        view[:50] = data[:50]
        say("claimed")
        os.kill(os.getpid(), signal.SIGSTOP)
        view[50:] = data[50:]
    say("published")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
