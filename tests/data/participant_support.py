"""A participant's core that a test drives, and what those say who come to it."""

from __future__ import annotations

from typing import Any

from echomesh.data import wire
from echomesh.data.messages import (
    VERSION,
    Credentials,
    Endpoint,
    Hello,
    InitPub,
    InitSub,
    Message,
    PartInit,
    Process,
    Ready,
)
from echomesh.data.outputs import Send, Streamed
from echomesh.data.participant_core import Identity, ParticipantCore

ME = Hello(4000, VERSION, "default", b"m" * 16, 10)
OTHER = Hello(4001, VERSION, "default", b"z" * 16, 20)
PUB, SUB, FAR = b"p" * 16, b"s" * 16, b"f" * 16
SHOWN = Credentials(b"cookie", "default")
HERE = "127.0.0.1"


class Driven:
    """A core, and what it asked for."""

    def __init__(self, linger_s: float = 2.0) -> None:
        identity = Identity(hello=ME, cookie=b"cookie", beacon_s=1.0, linger_s=linger_s, first_reference=70)
        self.core = ParticipantCore(identity, 0.0, lambda process: process.proof == b"right")
        self.now = 0.0
        self.done: list[Any] = []
        """Outputs that are not messages."""

    def said(self) -> dict[int, list[Message]]:
        """The messages since the last time, by connection."""
        said: dict[int, list[Message]] = {}
        for output in self.core.take():
            if isinstance(output, Send):
                taken: wire.Messages[Any] = wire.Messages(Message, wire.LOOK_BYTES)
                said.setdefault(output.connection, []).extend(taken.feed(output.data))
            else:
                self.done.append(output)
        return said

    def others(self) -> list[Any]:
        """The other outputs since the last time."""
        self.said()
        done, self.done = self.done, []
        return done

    def local(self, *messages: Message) -> int:
        """A process of this machine connects and says something."""
        connection = self.core.local(self.now)
        assert connection is not None
        self.hears(connection, *messages)
        return connection

    def hears(self, connection: int, *messages: Message) -> None:
        self.core.received(connection, b"".join(map(wire.encode, messages)), self.now)

    def participant(self, *messages: Message, hello: Hello = OTHER) -> int:
        """Another participant connects and says who it is, and what it has."""
        connection = self.core.accepted("10.0.0.2", self.now)
        assert connection is not None
        self.hears(connection, *(messages or (PartInit([], [], hello),)))
        return connection


def publish(topic: str = "a/b", *, id: bytes = PUB, proof: bytes = b"right", **more: Any) -> InitPub:
    return InitPub(topic, id, SHOWN, Process("pn", "/d", proof, 1), **more)


def subscribe(topic: str = "a/*", *, id: bytes = SUB, proof: bytes = b"right") -> InitSub:
    return InitSub(Endpoint(id, topic, 5000), SHOWN, Process("sn", "/d", proof, 2))


def wired() -> tuple[Driven, int, int]:
    core = Driven()
    subscriber, publisher = core.local(subscribe()), core.local(publish())
    core.hears(subscriber, Ready(70))
    core.core.wired(70, Streamed(1, 3, 2))
    core.others()
    return core, publisher, subscriber
