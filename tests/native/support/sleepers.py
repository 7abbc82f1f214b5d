"""Processes that wait for a ring in every way there is, and say when they woke."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from echomesh.native.broadcast import Receiver, Transmitter
from echomesh.native.doorbell import Doorbell
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.native.waiter import Waiter

# Longer than any machine keeps a process from running: a wait that ends with it has lost its wake-up.
LOST_S = 10.0


def woken(wait: Callable[[float], bool]) -> bool:
    """Whether a wake-up ended the wait: one that slept its whole time may still find what it wanted."""
    start = time.monotonic()
    return wait(LOST_S) and time.monotonic() - start < LOST_S - 1


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def delay(chance: random.Random) -> None:
    """Up to some 30 us, about what it takes to fall asleep, with or without a look out of 50 us first.

    So wake-ups meet it at every step.
    """
    if chance.random() < 0.7:
        end = time.perf_counter_ns() + chance.randrange(30_000) + chance.choice((0, 45_000))
        while time.perf_counter_ns() < end:
            pass


def pong(directory: str, rounds: str, spin: str) -> None:
    """Answers each message, asleep in between."""
    home = Path(directory)
    bell = Doorbell.create(home / "pong.bell")
    incoming, outgoing = Ring(Mapping.open(home / "to-pong")), Ring(Mapping.open(home / "to-ping"))
    outgoing.connect_reader(Doorbell.open(home / "ping.bell"))
    say("ready")
    waiter = Waiter(bell)
    waiter.watch([incoming])
    chance = random.Random(1)
    for _ in range(int(rounds)):
        while not (got := incoming.drain()):
            assert woken(partial(waiter.wait, spin=float(spin))), "lost wake-up"
        delay(chance)
        assert outgoing.write_many(1, [body for _, body in got]) == len(got) == 1


def slow_reader(directory: str, messages: str) -> None:
    """Reads from a ring that is too small for its writer, asleep when it is empty."""
    home = Path(directory)
    bell = Doorbell.create(home / "reader.bell")
    ring = Ring(Mapping.open(home / "ring"))
    ring.connect_writer(Doorbell.open(home / "writer.bell"))
    say("ready")
    waiter = Waiter(bell)
    waiter.watch([ring])
    chance, expected = random.Random(2), 0
    while expected < int(messages):
        for _, body in ring.drain(1 + chance.randrange(3)):
            assert int.from_bytes(body, "little") == expected
            expected += 1
        delay(chance)
        if not ring.readable() and expected < int(messages):
            assert woken(waiter.wait), "lost wake-up"
    say("done")


def sleep_on(directory: str, rings: str, spin: str) -> None:
    """Waits without a limit, again and again, and says when it woke and why."""
    home = Path(directory)
    bell = Doorbell.create(home / "sleeper.bell")
    ring = Ring(Mapping.open(home / "ring"))
    waiter = Waiter(bell)
    waiter.watch([ring] if rings == "rings" else [])
    while True:
        say("ready")
        try:
            waiter.wait(spin=float(spin))
            why = f"woke {len(ring.drain())}"
        except KeyboardInterrupt:
            why = "interrupted"
        say(f"{time.monotonic_ns()} {why}")


def listen(directory: str, rounds: str) -> None:
    """Answers each broadcast message by another buffer, asleep in between."""
    home = Path(directory)
    receiver = Receiver(Mapping.open(home / "out"))
    transmitter = Transmitter(Mapping.open(home / "back"), wakes=True)
    say("ready")
    chance = random.Random(3)
    for _ in range(int(rounds)):
        while (got := receiver.receive()) is None:
            assert woken(receiver.wait), "lost wake-up"
        delay(chance)
        transmitter.transmit(*got)


def listen_for_interrupts(directory: str) -> None:
    """Waits for a broadcast that never comes."""
    receiver = Receiver(Mapping.open(Path(directory) / "out"))
    while True:
        say("ready")
        try:
            receiver.wait(3600.0)
        except KeyboardInterrupt:
            say(f"{time.monotonic_ns()} interrupted")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
