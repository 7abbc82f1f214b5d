"""A publisher or subscriber in the simulator: announces itself, and keeps the list that it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomesh.data import wire
from echomesh.data.link import GRACE_BEACONS
from echomesh.data.messages import (
    Credentials,
    Endpoint,
    InitPub,
    InitSub,
    Lost,
    Message,
    Path,
    Process,
    PubInit,
    PubInsertSubscriber,
    PubRemoveSubscriber,
    Ready,
    SubInit,
    SubInsertPublisher,
    SubRemovePublisher,
    Wired,
)
from tests.simulation.witness import BrokenPromise

if TYPE_CHECKING:
    from tests.simulation.data_host import Host


class LocalEnd:
    """One publisher or subscriber, with or without proof that it shares memory."""

    def __init__(self, host: Host, topic: str, *, publishes: bool, shares: bool) -> None:
        self.host = host
        self.topic = topic
        self.publishes = publishes
        self.shares = shares
        self.id = host.world.clock.random.randbytes(16)
        self.number: int | None = None
        self.left = False
        self.known: dict[bytes, Path] = {}
        """Whom it is matched with, and how."""
        self.coming: set[bytes] = set()
        """Whom it was told to wait for."""
        self.streams: dict[bytes, Wired] = {}
        self._broken: set[bytes] = set()
        self._messages: wire.Messages[Message] = wire.Messages(Message, wire.LINK_BYTES)

    def start(self) -> None:
        """Connects to the participant of its machine."""
        if not self.left and self.number is None:
            self.host.connect(self)

    def connected(self, number: int) -> None:
        """The participant is there."""
        self.number = number
        self._messages = wire.Messages(Message, wire.LINK_BYTES)
        self.known.clear()
        self._broken.clear()
        credentials = Credentials(b"cookie", "sim")
        process = Process(f"p{self.id.hex()[:6]}", "", b"proof" if self.shares else b"none")
        self.host.world.clock.after(GRACE_BEACONS, lambda: self._end_grace(number))
        if self.publishes:
            self._say(InitPub(self.topic, self.id, credentials, process, {}, list(self.streams.values())))
        else:
            self._say(InitSub(Endpoint(self.id, self.topic, 9), credentials, process))

    def _end_grace(self, number: int) -> None:
        # Who was not told again by a restarted participant has gone with the old one.
        if self.number == number:
            self.streams = {id: made for id, made in self.streams.items() if id in self.known}

    def disconnected(self) -> None:
        """The participant is gone; another one will come."""
        self.number = None
        self.host.world.clock.after(self.host.world.clock.between(0.01, 0.3), self.start)

    def leave(self) -> None:
        """It closes, or is killed: nobody can tell the difference."""
        self.left = True
        self.host.gone(self)
        self.number = None

    def break_stream(self) -> None:
        """A stream is reset, for whatever reason: another one is wanted."""
        if self.publishes and self.number is not None and self.streams and self.known.keys() >= self.streams.keys():
            id, made = self.streams.popitem()
            del self.known[id]
            self._broken.add(id)
            self._say(Lost(made.reference))

    def _say(self, message: Message) -> None:
        self.host.said(self, wire.encode(message))

    def told(self, data: bytes) -> None:
        """The participant says something."""
        for message in self._messages.feed(data):
            self.host.world.clock.note(self.host.name, f"tells {self.topic} {type(message).__name__}")
            self._take(message)

    def _take(self, message: Message) -> None:
        match message:
            case PubInit(subscribers, coming):
                self.coming = set(coming)
                for subscriber in subscribers:
                    self._insert(subscriber.id, Path.NONE)
            case SubInit():
                pass
            case PubInsertSubscriber(subscriber, path, nukleus, stream, prepared, bound, reference):
                self._insert(subscriber.id, path)
                if path is Path.SHARED_MEMORY:
                    made = Wired(subscriber.id, nukleus, stream, prepared, bound, reference)
                    if self.streams.setdefault(subscriber.id, made) != made:
                        raise BrokenPromise("a stream that is up was made a second time")
            case SubInsertPublisher(publisher, _, path, _, reference):
                self._insert(publisher.id, path)
                if path is Path.SHARED_MEMORY:
                    self._say(Ready(reference))
            case PubRemoveSubscriber(gone) | SubRemovePublisher(gone):
                # It may have left just when it was asked for another stream.
                heard = gone.id in self._broken or gone.id in self.coming
                if self.known.pop(gone.id, None) is None and not heard:
                    raise BrokenPromise(f"{self.topic} lost somebody that it did not know")
                self.coming.discard(gone.id)
                self.streams.pop(gone.id, None)
            case _:
                raise BrokenPromise(f"a participant said {message}")

    def _insert(self, id: bytes, path: Path) -> None:
        if id in self.known:
            raise BrokenPromise(f"{self.topic} was told twice of the same one")
        self.known[id] = path
        self.coming.discard(id)
        self._broken.discard(id)
