"""The other end of a client's pure core."""

from __future__ import annotations

from typing import Any

import msgspec

from echomesh.frames import Splitter, framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Body, Hello, Welcome
from echomesh.mesh.client_core import ClientCore
from echomesh.mesh.client_events import Answered, Up
from echomesh.mesh.codes import Command
from echomesh.mesh.protocol import Message
from tests.mesh.support import an_event

EVENT = an_event(1).encode()


LOG = b"L" * 16


class Wire:
    """The other end of a core: reads what it sends, and answers by hand."""

    def __init__(self, core: ClientCore | None = None) -> None:
        self.core = core or ClientCore(Hello("shop", password="secret"))
        self.now = 100.0
        self.sessions = 0
        self._splitter = Splitter(64 << 20)

    def sent(self) -> list[Message]:
        """What the core has to send."""
        data = self.core.take_output(self.now)
        return [protocol.decode(payload) for payload in self._splitter.feed(data)]

    def bodies(self) -> list[Any]:
        return [protocol.body_of(message) for message in self.sent()]

    def up(self, log_id: bytes | None = LOG, **welcome: Any) -> Up:
        """Connects, and welcomes."""
        self._splitter = Splitter(64 << 20)
        self.core.connected(self.now)
        (hello,) = self.sent()
        assert hello.command == Command.HELLO_REQUEST
        self.sessions += 1
        body = Welcome(f"session-{self.sessions}", log_id, **welcome)
        happened = self.answer(Command.HELLO_RESPONSE, hello.seq, body)
        assert isinstance(happened[0], Up)
        return happened[0]

    def answer(self, command: Command, seq: str, body: Body | None = None, **more: Any) -> list[Any]:
        return self.core.receive(framed(protocol.encode(command, seq, body, **more)), self.now)

    def deliver(self, topic: str, offset: int, *events: bytes, **more: Any) -> list[Any]:
        return self.core.receive(delivery(topic, offset, *events, **more), self.now)


def delivery(topic: str, offset: int, *events: bytes, **more: Any) -> bytes:
    body = {"Environment": "TST", "Topic": topic, "Offset": offset, "CloudEvents": [msgspec.Raw(e) for e in events]}
    fields = ("EventMesh", "0000", 6, 0, "", "", f"{topic}@{offset}", {**body, **more})
    return framed(protocol.encode_value(fields))


# Subscriptions


def subscribed(wire: Wire, *topics: str, **options: Any) -> None:
    wire.core.subscribe(list(topics), "subscription", **options)
    (message,) = wire.sent()
    assert wire.answer(Command.SUBSCRIBE_RESPONSE, message.seq) == [Answered("subscription", None)]
