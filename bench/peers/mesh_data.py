"""Ours: publishers and subscribers of the data plane, with a participant of the run's own."""

from __future__ import annotations

import math
import time
from typing import Any

import echomesh.sync
from bench.harness.peer import Peer, Receiver, Role, Run, Sender
from bench.native.checker import Checker, Stamper, stamp
from echomesh.data.config import DataOptions
from echomesh.data.starting import find
from echomesh.data.sync import Publisher, Subscriber

BATCH = 64
MATCH_SECONDS = 20.0
LINGER_SECONDS = 0.2


def options(run: Run) -> dict[str, Any]:
    """Of a mesh that nobody else is in."""
    return {
        "directory": run.directory / "mesh",
        "participant_port": 0,
        "beacon_port": run.port,
        "broadcast": False,
        "group": "",
        "linger_s": LINGER_SECONDS,
    }


def wait_until_gone(run: Run) -> None:
    """The participant must not come back to a directory that the harness has removed."""
    mine = DataOptions(**options(run))
    deadline = time.monotonic() + MATCH_SECONDS
    while find(mine) is not None and time.monotonic() < deadline:
        time.sleep(0.01)


class DataPeer(Peer):
    """Variants: single, many and loan for streams; spin and sleep for round trips."""

    def __init__(self, run: Run, role: Role) -> None:
        super().__init__(run, role)
        self.mesh = echomesh.sync.connect(**options(run))
        self.publishers: list[Publisher] = []

    def sender(self, channel: str) -> Sender:
        publisher = self.mesh.publisher(channel)
        self.publishers.append(publisher)
        return {"many": ManySender, "loan": LoanSender}.get(self.run.variant, DataSender)(publisher, self.run.size)

    def receiver(self, channel: str) -> Receiver:
        subscriber = self.mesh.subscribe(channel, spin=math.inf if self.run.variant == "spin" else 0.0)
        return DataReceiver(subscriber)

    def echo(self, is_end: Any) -> None:
        receive, sender = self.receiver("ping").receive, self.sender("pong")
        self.begin()
        while not is_end(body := receive()):
            sender.send(body)

    def begin(self) -> None:
        for publisher in self.publishers:
            publisher.matched(1, MATCH_SECONDS)

    def close(self) -> None:
        self.mesh.close()
        wait_until_gone(self.run)


class DataSender(Sender):
    """One call for each message."""

    def __init__(self, publisher: Publisher, size: int) -> None:
        self.body = bytearray(size)
        self.publisher = publisher
        self.send = publisher.send


class ManySender(DataSender):
    """One call for many messages."""

    def send_all(self, stamps: Stamper[Any]) -> None:
        bodies = [bytearray(len(self.body)) for _ in range(BATCH)]
        send_many = self.publisher.send_many
        while stamps.fill(bodies):
            send_many(bodies)


class LoanSender(DataSender):
    """Written in place: what is stamped is the shared memory itself."""

    def send_all(self, stamps: Stamper[Any]) -> None:
        loan, size = self.publisher.loan, len(self.body)
        for number, _ in enumerate(stamps):
            with loan(size) as frame:
                stamp(frame, number)


class DataReceiver(Receiver):
    """Messages one by one; large ones are looked at in place."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self.receive = iter(subscriber).__next__

    def receive_all(self, checker: Checker) -> None:
        check = checker.check
        for message in self.subscriber:  # which is a buffer itself
            if check(message):
                return


make = DataPeer
