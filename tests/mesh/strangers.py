"""A client of the EventMesh protocol that shares no code with echomesh: sockets and MessagePack, by the page alone."""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgpack  # type: ignore[import-untyped]

SUBSCRIBE, PUBLISH = 0, 1


class Stranger:
    """One connection and its session."""

    def __init__(self, port: int, client_id: str, purpose: int, host: str = "127.0.0.1", **hello: Any) -> None:
        self.socket = socket.create_connection((host, port), timeout=20)
        self.client_id = client_id
        self.numbers = 0
        self.deliveries: list[list[Any]] = []
        body = {"ClientId": client_id, "Environment": "TST", "Purpose": purpose, **hello}
        self.session_id = self.ask(2, body)["SessionId"]

    def send(self, command: int, seq: str, body: Any) -> None:
        payload = msgpack.packb(["EventMesh", "0000", command, 0, "", "", seq, body])
        self.socket.sendall(struct.pack(">I", len(payload)) + payload)

    def receive(self) -> list[Any]:
        (size,) = struct.unpack(">I", self.exactly(4))
        message: list[Any] = msgpack.unpackb(self.exactly(size), timestamp=3)
        if message[:2] != ["EventMesh", "0000"]:
            raise ValueError(message)
        return message

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def ask(self, command: int, body: Any) -> Any:
        """Sends a request, and gives the body of its answer; deliveries that come meanwhile are kept."""
        self.numbers += 1
        seq = str(self.numbers)
        self.send(command, seq, body)
        while True:
            message = self.receive()
            if message[6] == seq and message[2] == command + 1:
                if message[3] != 0:
                    raise PermissionError(message[3], message[5], message[4])
                return message[7]
            self.deliveries.append(message)

    def me(self, **more: Any) -> dict[str, Any]:
        return {"ClientId": self.client_id, "SessionId": self.session_id, **more}

    def heartbeat(self) -> None:
        self.ask(0, None)

    def subscribe(self, *topics: str, **more: Any) -> None:
        self.ask(4, self.me(Topics=list(topics), **more))

    def publish(self, topic: str, **attributes: Any) -> int:
        event = {"specversion": "1.0", "source": "/stranger", "type": "greeting", **attributes}
        offset: int = self.ask(14, self.me(Topic=topic, CloudEvent=event))["Offset"]
        return offset

    def next_delivery(self) -> tuple[str, int, list[dict[str, Any]]]:
        """Topic, first offset and events of the next delivery; it is acknowledged."""
        message = self.deliveries.pop(0) if self.deliveries else self.receive()
        if message[2] != 6:
            raise ValueError(message)
        body = message[7]
        topic, offset, events = body["Topic"], body["Offset"], body["CloudEvents"]
        ack = self.me(Environment="TST", Topic=topic, Offset=offset + len(events), BridgeServers=[], IsClient=True)
        self.send(7, message[6], ack)
        return topic, offset, events

    def disconnect(self) -> None:
        self.ask(11, self.me())
        if self.socket.recv(1):
            raise ValueError("the server went on")
        self.socket.close()
