"""A publisher's or subscriber's connection to the participant of its machine.

It announces the publisher or subscriber, tells who is matched, and when the participant is gone it finds or starts the
next one and announces it again. Streams that are up go on meanwhile. Its loss is that of the publisher or subscriber:
close it last, once nothing of its streams is needed any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from echomesh.data import wire
from echomesh.data.config import DataOptions
from echomesh.data.messages import (
    Credentials,
    Endpoint,
    InitPub,
    InitSub,
    LookInitFailed,
    Lost,
    Message,
    PartToPub,
    PartToSub,
    Path,
    Process,
    PubInit,
    PubInitFailed,
    PubInsertSubscriber,
    PubRemoveSubscriber,
    Ready,
    Reason,
    SubInit,
    SubInitFailed,
    SubInsertPublisher,
    SubRemovePublisher,
    Wired,
)
from echomesh.data.starting import Address, reach
from echomesh.errors import (
    BadPacket,
    DataError,
    InitFailed,
    NoParticipant,
    NotAuthorised,
    TooManyEndpoints,
    TopicRefused,
    WrongDomain,
    WrongVersion,
)

_log = logging.getLogger(__name__)

ANSWER_S: Final = 10.0
_READ_BYTES: Final = 64 << 10
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 5.0
_AGAIN_S: Final = 0.1
GRACE_BEACONS: Final = 4.5
"""A restarted participant knows its neighbours again within this many beacons: who is not told by then is gone."""

REFUSALS: Final[dict[Reason, type[InitFailed]]] = {
    Reason.VERSION: WrongVersion,
    Reason.DOMAIN: WrongDomain,
    Reason.TOPIC: TopicRefused,
    Reason.COOKIE: NotAuthorised,
    Reason.FULL: TooManyEndpoints,
}

Told = TypeVar("Told", PubInsertSubscriber, SubInsertPublisher)
Talk = TypeVar("Talk", PartToPub, PartToSub)


def refusal(message: PubInitFailed | SubInitFailed | LookInitFailed) -> InitFailed:
    """The error that a user sees."""
    return REFUSALS[message.reason](f"{message.reason.value}: {message.detail}")


def new_id() -> bytes:
    """A name of its own for a publisher or subscriber."""
    return os.urandom(16)


class _Link(ABC, Generic[Talk, Told]):
    """What both kinds of links do. Callbacks come on the event loop that `open` was called on."""

    def __init__(
        self,
        options: DataOptions,
        topic: str,
        process: Process,
        *,
        on_told: Callable[[Told], None],
        on_lost: Callable[[bytes], None],
        on_failed: Callable[[DataError], None],
        id: bytes | None,
        choices: dict[str, Any] | None,
    ) -> None:
        self.options = options
        self.topic = topic
        self.process = process
        self.id = id or new_id()
        self.choices = choices or {}
        self.matched: dict[bytes, Told] = {}
        """Who is matched now, by id."""
        self.connections = 0
        """How often it has been connected: more than once where a participant was restarted."""
        self._on_told: Callable[[Told], None] = on_told
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._accepted: asyncio.Future[None] | None = None
        self._unconfirmed: set[bytes] = set()
        self._grace: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Announces it to the participant, which is started where none runs; raises what keeps it from that."""
        self._accepted = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"link of {self.topic}")
        self._task.add_done_callback(self._ended)
        try:
            await self._accepted
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Takes it back."""
        task, self._task = self._task, None
        if self._grace is not None:
            self._grace.cancel()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def forget(self, id: bytes) -> None:
        """Says that the stream with that one is over: where it is there still, a new one is made and told."""
        told = self.matched.pop(id, None)
        if told is not None:
            self._forgotten(id, told)

    @property
    def connected(self) -> bool:
        """Whether a participant knows it now."""
        return self._writer is not None

    # The connection

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        while True:
            before = self.connections
            try:
                await self._connection()
            except InitFailed as error:
                self._fail(error)
                return
            except (OSError, BadPacket) as error:
                _log.debug("the participant is out of reach: %s", error)
                # One that was about to end may have been found: the next one is not, for some time.
                late = asyncio.get_running_loop().time() > deadline
                if not self.connections and (late or isinstance(error, DataError)):
                    self._fail(error if isinstance(error, DataError) else NoParticipant(str(error)))
                    return
            pause_s = _FIRST_PAUSE_S if self.connections > before else min(2 * pause_s, _LONGEST_PAUSE_S)
            # All links of all processes lose a participant at once: they come back one after the other.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Whatever ended it, nobody may wait for it in vain.
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DataError):
            self._fail(error)
        elif error is not None:
            failure = NoParticipant(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _fail(self, error: DataError) -> None:
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_exception(error)
        else:
            self._on_failed(error)

    async def _connection(self) -> None:
        address = await asyncio.to_thread(reach, self.options)
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        try:
            writer.write(wire.encode(self._announcement(address)))
            await self._talk(reader, writer)
        finally:
            self._writer = None
            writer.close()

    def _credentials(self, address: Address) -> Credentials:
        return Credentials(cookie=address.cookie, domain=self.options.domain)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        messages = self._messages()
        while True:
            try:
                async with asyncio.timeout(ANSWER_S if self._writer is None else None):
                    data = await reader.read(_READ_BYTES)
            except TimeoutError:
                raise NoParticipant(f"the participant did not answer within {ANSWER_S:g} s: is it stopped?") from None
            if not data:
                raise ConnectionResetError("the participant closed the connection")
            for message in messages.feed(data):
                if self._writer is None:
                    self._begin(message, writer)
                else:
                    self._receive(message)

    def _begin(self, message: Talk, writer: asyncio.StreamWriter) -> None:
        if isinstance(message, PubInitFailed | SubInitFailed):
            raise refusal(message)
        if not isinstance(message, PubInit | SubInit):
            raise BadPacket(f"the participant began with {type(message).__name__}")
        self._writer = writer
        self.connections += 1
        self._unconfirmed = set(self.matched)
        if self._unconfirmed:
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(GRACE_BEACONS * self.options.beacon_s, self._end_grace)
        self._started(message)
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(None)

    def _end_grace(self) -> None:
        for id in sorted(self._unconfirmed & self.matched.keys()):
            self._lose(id)

    def _tell(self, id: bytes, told: Told) -> None:
        self._unconfirmed.discard(id)
        known = self.matched.get(id)
        if known == told:
            return
        if known is not None:
            self._lose(id)
        self.matched[id] = told
        self._on_told(told)

    def _lose(self, id: bytes) -> None:
        if self.matched.pop(id, None) is not None:
            self._on_lost(id)

    def _send(self, message: Message) -> None:
        if self._writer is not None:
            self._writer.write(wire.encode(message))

    @abstractmethod
    def _announcement(self, address: Address) -> Message:
        """What is said first."""

    @abstractmethod
    def _messages(self) -> wire.Messages[Talk]:
        """For the bytes that come."""

    def _forgotten(self, id: bytes, told: Told) -> None:
        """Asks for a new stream."""

    def _started(self, message: Talk) -> None:
        """The participant said yes."""

    @abstractmethod
    def _receive(self, message: Talk) -> None:
        """What it says then."""


class PublisherLink(_Link[PartToPub, PubInsertSubscriber]):
    """A publisher at its participant: `on_subscriber` and `on_subscriber_lost` keep its list of subscribers.

    A subscriber with the path `shm` has a stream, which this process's nukleus has begun by then; one with the path
    `none` can't be sent to yet.
    """

    def __init__(
        self,
        options: DataOptions,
        topic: str,
        process: Process,
        *,
        on_subscriber: Callable[[PubInsertSubscriber], None],
        on_subscriber_lost: Callable[[bytes], None],
        on_failed: Callable[[DataError], None],
        id: bytes | None = None,
        choices: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            options,
            topic,
            process,
            on_told=on_subscriber,
            on_lost=on_subscriber_lost,
            on_failed=on_failed,
            id=id,
            choices=choices,
        )
        self.coming: set[bytes] = set()
        """Subscribers that were there before it, and that no stream leads to yet."""
        self._tries: dict[bytes, int] = {}

    def _forgotten(self, id: bytes, told: PubInsertSubscriber) -> None:
        # After a while that grows: the subscriber may be about to leave, and what resets a stream may do so again.
        tries = self._tries[id] = self._tries.get(id, 0) + 1
        pause_s = min(_AGAIN_S * 2**tries, _LONGEST_PAUSE_S)
        asyncio.get_running_loop().call_later(pause_s, self._ask_again, id, told.reference)

    def _ask_again(self, id: bytes, reference: int) -> None:
        if id not in self.matched:
            self._send(Lost(reference))

    def _lose(self, id: bytes) -> None:
        self._tries.pop(id, None)
        super()._lose(id)

    def _announcement(self, address: Address) -> InitPub:
        wired = [
            Wired(id, told.nukleus, told.stream, told.prepared, told.bound, told.reference)
            for id, told in self.matched.items()
            if told.path is Path.SHARED_MEMORY
        ]
        return InitPub(self.topic, self.id, self._credentials(address), self.process, self.choices, wired)

    def _messages(self) -> wire.Messages[PartToPub]:
        return wire.to_publisher()

    def _started(self, message: PartToPub) -> None:
        assert isinstance(message, PubInit)
        self.coming = set(message.coming)
        for subscriber in message.subscribers:
            self._tell(subscriber.id, PubInsertSubscriber(subscriber))

    def _receive(self, message: PartToPub) -> None:
        if isinstance(message, PubInsertSubscriber):
            self._tell(message.subscriber.id, message)
            self.coming.discard(message.subscriber.id)
        elif isinstance(message, PubRemoveSubscriber):
            if message.subscriber.id in self.coming:
                self.coming.remove(message.subscriber.id)
                self._on_lost(message.subscriber.id)
            self._lose(message.subscriber.id)


class SubscriberLink(_Link[PartToSub, SubInsertPublisher]):
    """A subscriber at its participant: `on_publisher` and `on_publisher_lost` tell who publishes for it.

    A publisher with the path `shm` begins a stream once `on_publisher` has returned: its BIND has the source reference
    that was told.
    """

    def __init__(
        self,
        options: DataOptions,
        topic: str,
        process: Process,
        *,
        on_publisher: Callable[[SubInsertPublisher], None],
        on_publisher_lost: Callable[[bytes], None],
        on_failed: Callable[[DataError], None],
        id: bytes | None = None,
        port: int = 0,
        choices: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            options,
            topic,
            process,
            on_told=on_publisher,
            on_lost=on_publisher_lost,
            on_failed=on_failed,
            id=id,
            choices=choices,
        )
        self.port = port

    def _announcement(self, address: Address) -> InitSub:
        endpoint = Endpoint(self.id, self.topic, self.port)
        return InitSub(endpoint, self._credentials(address), self.process, self.choices)

    def _messages(self) -> wire.Messages[PartToSub]:
        return wire.to_subscriber()

    def _receive(self, message: PartToSub) -> None:
        if isinstance(message, SubInsertPublisher):
            self._tell(message.publisher.id, message)
            if message.path is Path.SHARED_MEMORY:
                self._send(Ready(message.reference))
        elif isinstance(message, SubRemovePublisher):
            self._lose(message.publisher.id)
