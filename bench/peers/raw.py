"""The standard library alone: a unix stream socket, each message behind its length."""

from __future__ import annotations

import socket
import struct
from typing import Any

from bench.harness.peer import Peer, Receiver, Role, Run, Sender

LENGTH = struct.Struct("<I")
READ_AHEAD = 1 << 18


class UnixPeer(Peer):
    """One connection, used both ways; role a listens."""

    def __init__(self, run: Run, role: Role) -> None:
        super().__init__(run, role)
        self.address = str(run.directory / "raw.sock")
        self.socket = socket.socket(socket.AF_UNIX)
        if role == "a":
            self.listener = self.socket
            self.listener.bind(self.address)
            self.listener.listen(1)

    def connect(self) -> None:
        if self.role == "a":
            self.socket, _ = self.listener.accept()
            self.listener.close()
        else:
            self.socket.connect(self.address)

    def sender(self, channel: str) -> Sender:
        return UnixSender(self.socket, self.run.size)

    def receiver(self, channel: str) -> Receiver:
        return UnixReceiver(self.socket)

    def close(self) -> None:
        self.socket.close()


class UnixSender(Sender):
    """Length and body leave in one call, from one buffer."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self.frame = bytearray(LENGTH.size + size)
        LENGTH.pack_into(self.frame, 0, size)
        self.body = memoryview(self.frame)[LENGTH.size :]
        self.sendall = connection.sendall

    def send(self, body: Any) -> None:
        if body is not self.body:
            self.body[:] = body
        self.sendall(self.frame)

    def send_all(self, stamps: Any) -> None:
        sendall, frame = self.sendall, self.frame
        for _ in stamps:
            sendall(frame)


class UnixReceiver(Receiver):
    """Reads through a buffer: one system call for many small messages."""

    def __init__(self, connection: socket.socket) -> None:
        self.read = connection.makefile("rb", buffering=READ_AHEAD).read

    def receive(self) -> Any:
        return self.read(LENGTH.unpack(self.read(LENGTH.size))[0])


make = UnixPeer
