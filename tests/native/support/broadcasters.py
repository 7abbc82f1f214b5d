"""Processes that send and receive broadcasts as fast as they can, and that count."""

from __future__ import annotations

import sys
from pathlib import Path

from echomesh.errors import Lapped
from echomesh.native.broadcast import Receiver, Transmitter
from echomesh.native.counters import Counters
from echomesh.native.mapping import Mapping
from tests.native.support.messages import FRONT, make, size_of
from tests.native.support.sleepers import woken


def transmit(path: str, messages: str) -> None:
    """Waits for a line, then sends without looking at anybody; the last message has type 2."""
    transmitter = Transmitter(Mapping.open(path), wakes=True)
    sys.stdin.readline()
    for sequence in range(int(messages)):
        transmitter.transmit(1, make(0, sequence, size_of(sequence, transmitter.max_message)))
    transmitter.transmit(2, b"")


def receive(path: str) -> None:
    """Receives until the last message; each must be whole and later than the one before."""
    receiver = Receiver(Mapping.open(path))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    last, got, lapped = -1, 0, 0
    while True:
        try:
            message = receiver.receive()
        except Lapped:
            lapped += 1
            continue
        if message is None:
            assert woken(receiver.wait), "lost wake-up"
            continue
        kind, body = message
        if kind == 2:
            break
        producer, sequence, _ = FRONT.unpack_from(body)
        assert body == make(producer, sequence, size_of(sequence, receiver.max_message)), "torn"
        assert sequence > last, "doubled or reordered"
        assert sequence == last + 1 or lapped, "lost without a word"
        last, got = sequence, got + 1
    assert receiver.lapped == lapped
    sys.stdout.write(f"{got} {lapped}\n")


def add(directory: str, number: str, times: str) -> None:
    """Adds to a number that others add to: each process has its own labels, and all have the same values."""
    home = Path(directory)
    table = Counters(Mapping.create(home / f"labels{number}", 128), Mapping.open(home / "values"))
    shared = table.allocate("shared")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for _ in range(int(times)):
        shared.add(3)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
