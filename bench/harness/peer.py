"""What a peer looks like to the harness."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.native.checker import END, Checker, Stamper, stamp

GREETING_SECONDS = 0.02

Role = Literal["a", "b"]
Flow = Literal["stream", "round trip", "paced round trip"]


@dataclass(frozen=True)
class Contestant:
    """One way to carry messages: a module of bench.peers, a variant of it, and its name in the table."""

    module: str
    variant: str
    name: str


@dataclass(frozen=True)
class Run:
    """One measurement. It ends after `seconds`, or after `count` messages where that is given."""

    contestant: Contestant
    flow: Flow
    size: int
    seconds: float
    directory: Path
    port: int
    count: int = 0

    @property
    def variant(self) -> str:
        return self.contestant.variant


class Sender:
    """Sends. `body` is the buffer that stamps are written to, of the kind that the peer sends fastest.

    `send` sends one message and waits while there is no room; it may be the library's own, to save a call.
    """

    body: Any
    send: Callable[[Any], object]

    def send_all(self, stamps: Stamper[Any]) -> None:
        """Sends every message of a run: the loop that is measured."""
        send = self.send
        for body in stamps:
            send(body)


class Receiver:
    """Receives. `receive` waits for the next message; what it returns is good until the next call."""

    receive: Callable[[], Any]

    def receive_all(self, checker: Checker) -> None:
        """Gives every message to the checker until that has seen the end: the loop that is measured."""
        receive, check = self.receive, checker.check
        while not check(receive()):
            pass


class Peer(ABC):
    """One end of an exchange, in its own process: role a sends a stream, or pings; b receives, or echoes.

    Both ends are made, then both `connect`: what one must find of the other is there by then.
    """

    def __init__(self, run: Run, role: Role) -> None:
        self.run = run
        self.role = role

    def connect(self) -> None:  # noqa: B027 - some have nothing to reach
        """Reaches the other end."""

    @abstractmethod
    def sender(self, channel: str) -> Sender:
        """The sending end of `channel`: stream, ping or pong."""

    @abstractmethod
    def receiver(self, channel: str) -> Receiver:
        """The receiving end of `channel`."""

    def exchange(self, stamps: Stamper[Any], sender: Sender, receiver: Receiver, check: Callable[[Any], bool]) -> None:
        """Role a of a round trip: sends each message when the one before it has come back."""
        send, receive = sender.send, receiver.receive
        for body in stamps:
            send(body)
            check(receive())

    def echo(self, is_end: Callable[[Any], bool]) -> None:
        """Role b of a round trip: sends back what comes, up to the end."""
        receive, send = self.receiver("ping").receive, self.sender("pong").send
        while not is_end(body := receive()):
            send(body)

    def begin(self) -> None:
        """Role a of a round trip, before the first one; the other end is about to wait."""
        time.sleep(GREETING_SECONDS)

    def finish(self, sender: Sender) -> None:
        """Role a of a round trip, after the last one: tells the other end."""
        stamp(sender.body, END)
        sender.send(sender.body)

    def close(self) -> None:  # noqa: B027 - some leave nothing
        """Gives back what would stay behind."""
