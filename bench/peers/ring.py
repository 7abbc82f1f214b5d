"""Ours: a ring each way between two processes, each with its own bell."""

from __future__ import annotations

import math
from typing import Any

from bench.harness.peer import Peer, Receiver, Role, Run, Sender
from bench.native.checker import Checker, Stamper
from echomesh.native.doorbell import Doorbell
from echomesh.native.mapping import Mapping
from echomesh.native.ring import TRAILER_LENGTH, Ring
from echomesh.native.waiter import Waiter

KIND = 1
# Large enough that a side that loses its core for a moment does not stop the other; small enough for a cache.
CAPACITY = 4 << 20
BATCH = 64
# One call gives the room back once, at its end: long batches keep the head's cache line still.
DRAIN_LIMIT = 256
# A wake-up costs both sides some microseconds: a stream spins as long as that before it sleeps.
STREAM_SPIN = 50e-6


class RingPeer(Peer):
    """Variants: single, batch and in place for streams; spin and sleep for round trips."""

    def __init__(self, run: Run, role: Role) -> None:
        super().__init__(run, role)
        self.inbound = Ring(Mapping.create(self._ring_path(role), CAPACITY + TRAILER_LENGTH))
        self.bell = Doorbell.create(run.directory / f"bell-{role}")
        self.spin = {"spin": math.inf, "sleep": 0.0}.get(run.variant, STREAM_SPIN)

    def _ring_path(self, reader: Role) -> str:
        return str(self.run.directory / f"ring-to-{reader}")

    def connect(self) -> None:
        other: Role = "b" if self.role == "a" else "a"
        bell = Doorbell.open(self.run.directory / f"bell-{other}")
        self.outbound = Ring(Mapping.open(self._ring_path(other)))
        self.outbound.connect_reader(bell)
        self.inbound.connect_writer(bell)

    def sender(self, channel: str) -> Sender:
        room = Waiter(self.bell)
        room.watch((), [(self.outbound, self.run.size)])
        return (RingBatchSender if self.run.variant == "batch" else RingSender)(self, room)

    def receiver(self, channel: str) -> Receiver:
        arrivals = Waiter(self.bell)
        arrivals.watch([self.inbound])
        return (RingReaderInPlace if self.run.variant == "in place" else RingReceiver)(self, arrivals)


class RingSender(Sender):
    """One call for each message."""

    def __init__(self, peer: RingPeer, room: Waiter) -> None:
        self.body = bytearray(peer.run.size)
        self.ring, self.room, self.spin = peer.outbound, room, peer.spin

    def send(self, body: Any) -> None:
        while not self.ring.write(KIND, body):
            self.room.wait(spin=self.spin)

    def send_all(self, stamps: Stamper[Any]) -> None:
        write, wait, spin = self.ring.write, self.room.wait, self.spin
        for body in stamps:
            while not write(KIND, body):
                wait(spin=spin)


class RingBatchSender(RingSender):
    """One call for many messages."""

    def send_all(self, stamps: Stamper[Any]) -> None:
        bodies = [bytearray(len(self.body)) for _ in range(BATCH)]
        write_many, wait, spin = self.ring.write_many, self.room.wait, self.spin
        while stamps.fill(bodies):
            written = write_many(KIND, bodies)
            while written < BATCH:
                wait(spin=spin)
                written += write_many(KIND, bodies[written:])


class RingReceiver(Receiver):
    """Takes messages out as bytes."""

    def __init__(self, peer: RingPeer, arrivals: Waiter) -> None:
        self.ring, self.arrivals, self.spin = peer.inbound, arrivals, peer.spin

    def receive(self) -> Any:
        self.arrivals.wait(spin=self.spin)
        while not (taken := self.ring.drain(1)):
            self.arrivals.wait(spin=self.spin)
        return taken[0][1]

    def receive_all(self, checker: Checker) -> None:
        drain, check, wait, spin = self.ring.drain, checker.check, self.arrivals.wait, self.spin
        while not checker.ended:
            messages = drain(DRAIN_LIMIT)
            if not messages:
                wait(spin=spin)
            for _, body in messages:
                check(body)


class RingReaderInPlace(RingReceiver):
    """Looks at messages where they lie."""

    def receive_all(self, checker: Checker) -> None:
        read, check, wait, spin = self.ring.read, checker.check, self.arrivals.wait, self.spin

        def handler(_: int, view: memoryview) -> None:
            check(view)

        while not checker.ended:
            if not read(handler):
                wait(spin=spin)


make = RingPeer
