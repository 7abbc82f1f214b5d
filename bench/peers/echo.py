"""Ours, through a nukleus: role b is an Echo nukleus, role a speaks to it over bare rings.

So the pinging side is the one that the bare ring is measured with, and the difference is the nukleus alone.
"""

from __future__ import annotations

import math
import struct
import time
from typing import Any

from bench.harness.peer import Peer, Receiver, Role, Run, Sender
from echomesh.native.doorbell import Doorbell
from echomesh.native.mapping import Mapping
from echomesh.native.ring import TRAILER_LENGTH, Ring
from echomesh.native.waiter import Waiter
from echomesh.nukleus import Directory, Echo, Nukleus, Stream
from echomesh.nukleus.commands import Bind, Capture, Message, Refused, Route
from echomesh.nukleus.streams import BEGIN, DATA, END

CAPACITY = 1 << 20
PINGER, NUKLEUS = "ping", "echo"
STREAM = 1
FIRST_BIND_REFERENCE = 2
_LONG = struct.Struct("<q")


class EchoUntilEnd(Echo):
    """The product's Echo, in a nukleus that stops when the pinger has ended its stream."""

    nukleus: Nukleus

    def on_end(self, stream: Stream) -> None:
        super().on_end(stream)
        self.nukleus.stop()


class EchoPeer(Peer):
    """The side with the nukleus."""

    def __init__(self, run: Run, role: Role) -> None:
        super().__init__(run, role)
        handler = EchoUntilEnd()
        self.nukleus = Nukleus(NUKLEUS, handler, directory=run.directory / "nuklei", stream_capacity=CAPACITY)
        handler.nukleus = self.nukleus
        self._do(Capture(1, PINGER))

    def connect(self) -> None:
        self._do(Route(2, PINGER))
        self._do(Bind(3, PINGER, 0))

    def _do(self, command: Message) -> None:
        if isinstance(self.nukleus.do(command), Refused):
            raise RuntimeError(f"the nukleus refused {command}")

    def sender(self, channel: str) -> Sender:
        raise NotImplementedError("a nukleus answers; it begins nothing here")

    def receiver(self, channel: str) -> Receiver:
        raise NotImplementedError("a nukleus answers; it begins nothing here")

    def echo(self, is_end: Any) -> None:
        self.nukleus.run(spin=math.inf)

    def close(self) -> None:
        self.nukleus.close()


class PingPeer(Peer):
    """The side without one: a doorbell and a ring where a nukleus would have them."""

    def __init__(self, run: Run, role: Role) -> None:
        super().__init__(run, role)
        self.directory = Directory(run.directory / "nuklei")
        self.place, self.lock = self.directory.settle(PINGER)
        self.bell = Doorbell.create(self.place.doorbell)
        self.inbound = Ring(Mapping.create(self.place.stream(NUKLEUS), CAPACITY + TRAILER_LENGTH))
        self.waiter = Waiter(self.bell)
        self.waiter.watch([self.inbound])

    def connect(self) -> None:
        other = self.directory.place(NUKLEUS)
        bell = Doorbell.open(other.doorbell)
        self.outbound = Ring(Mapping.open(other.stream(PINGER)))
        self.outbound.connect_reader(bell)
        self.inbound.connect_writer(bell)

    def sender(self, channel: str) -> Sender:
        return FrameSender(self)

    def receiver(self, channel: str) -> Receiver:
        return FrameReceiver(self)

    def begin(self) -> None:
        self.outbound.write_frame(BEGIN, STREAM, _LONG.pack(FIRST_BIND_REFERENCE))
        while not (answers := self.inbound.drain(1)):
            time.sleep(0.001)
        if answers[0][0] != BEGIN:
            raise RuntimeError(f"the nukleus answered with an event of type {answers[0][0]}")

    def finish(self, sender: Sender) -> None:
        self.outbound.write_frame(END, STREAM)

    def close(self) -> None:
        self.directory.leave(self.place, self.lock)


class FrameSender(Sender):
    """DATA events."""

    def __init__(self, peer: PingPeer) -> None:
        self.body = bytearray(peer.run.size)
        self.write_frame = peer.outbound.write_frame

    def send(self, body: Any) -> None:
        self.write_frame(DATA, STREAM, body)


class FrameReceiver(Receiver):
    """The bytes of DATA events."""

    def __init__(self, peer: PingPeer) -> None:
        self.wait, self.drain = peer.waiter.wait, peer.inbound.drain

    def receive(self) -> Any:
        self.wait(spin=math.inf)
        while not (taken := self.drain(1)):
            self.wait(spin=math.inf)
        return taken[0][1][_LONG.size :]


def make(run: Run, role: Role) -> Peer:
    """The end for that role."""
    return PingPeer(run, role) if role == "a" else EchoPeer(run, role)
