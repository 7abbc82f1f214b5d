"""Ends of peers that live in an event loop: the harness has their names alone."""

from __future__ import annotations

from bench.harness.peer import Receiver, Sender


class NamedSender(Sender):
    """Its socket belongs to the event loop, and is made there."""

    def __init__(self, channel: str, size: int) -> None:
        self.channel = channel
        self.body = bytearray(size)


class NamedReceiver(Receiver):
    """As the sender."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
