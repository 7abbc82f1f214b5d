"""pyzmq, PUSH and PULL over ipc://: the pattern of ZeroMQ that waits instead of losing."""

from __future__ import annotations

from typing import Any

from zmq.constants import PULL, PUSH
from zmq.sugar.context import Context

from bench.harness.peer import Peer, Receiver, Role, Run, Sender

QUEUED_BYTES = 64 << 20


class ZeroMQPeer(Peer):
    """One socket for each channel; role a binds."""

    def __init__(self, run: Run, role: Role) -> None:
        super().__init__(run, role)
        self.context = Context()
        self.queued = max(4, min(1000, QUEUED_BYTES // run.size))

    def _socket(self, kind: int, channel: str) -> Any:
        made = self.context.socket(kind)
        made.sndhwm = made.rcvhwm = self.queued
        address = f"ipc://{self.run.directory}/{channel}"
        if self.role == "a":
            made.bind(address)
        else:
            made.connect(address)
        return made

    def sender(self, channel: str) -> Sender:
        return ZeroMQSender(self._socket(PUSH, channel), self.run.size)

    def receiver(self, channel: str) -> Receiver:
        return ZeroMQReceiver(self._socket(PULL, channel))

    def close(self) -> None:
        self.context.destroy(linger=0)


class ZeroMQSender(Sender):
    """Copies each message, which is ZeroMQ's fastest up to some tens of kilobytes."""

    def __init__(self, socket: Any, size: int) -> None:
        self.body = bytearray(size)
        self.send = socket.send


class ZeroMQReceiver(Receiver):
    """Blocking receive."""

    def __init__(self, socket: Any) -> None:
        self.receive = socket.recv


make = ZeroMQPeer
