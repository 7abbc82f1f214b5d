"""Servers that are killed under load: what was acknowledged is kept, delivered in order, and not delivered again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import Raw as RawBytes

from echomesh.events import Event
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Ack, Deliver, Publish, Subscribe
from echomesh.mesh.client import Session, session
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.protocol import Message
from tests.faults.mesh_support import ServerProcess, events_of, until
from tests.mesh.support import Raw
from tests.support.counts import count

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(1800)]

TOPICS = ("load/a", "load/b")
IN_FLIGHT = 64


class Publisher:
    """Keeps many publishes in flight; the session publishes again what was not answered."""

    def __init__(self, name: str, made: Session) -> None:
        self.name = name
        self.stopped = False
        self.answered: dict[str, tuple[str, int]] = {}
        """Topic and offset of what was acknowledged, by id."""
        self._session = made

    async def run(self) -> None:
        """Publishes until it is stopped, and waits for all answers."""
        numbers = 0
        waiting: set[asyncio.Task[None]] = set()
        while not self.stopped:
            while len(waiting) < IN_FLIGHT:
                waiting.add(asyncio.create_task(self._publish(numbers)))
                numbers += 1
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.01)  # load enough, for two cores
        await asyncio.gather(*waiting)
        assert len(self.answered) == numbers

    async def _publish(self, number: int) -> None:
        topic, identity = TOPICS[number % 2], f"{self.name}-{number}"
        event = Event(type="load", source="/load", id=identity, data=b"x" * (number % 300))
        self.answered[identity] = (topic, await self._session.publish(topic, event))


class Subscriber:
    """Acknowledges most of what it gets, some of it late; remembers all."""

    def __init__(self, made: Session) -> None:
        self.delivered: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        """Offsets in the order in which they were first delivered."""
        self.ids: dict[tuple[str, int], str] = {}
        self.acknowledged: set[tuple[str, int]] = set()
        self.wrong: list[str] = []
        self._session = made
        self._random = random.Random(7)

    async def run(self) -> None:
        """Subscribes until it is cancelled."""
        late: list[asyncio.Task[None]] = []
        async for received in await self._session.subscribe("load/**", start="earliest", ack="manual"):
            place = (received.topic, received.offset)
            if place in self.acknowledged:
                self.wrong.append(f"{place} came again after its acknowledgement")
            if place not in self.ids:
                self.ids[place] = received.id
                self.delivered[received.topic].append(received.offset)
            elif self.ids[place] != received.id:
                self.wrong.append(f"{place} was {self.ids[place]}, and is {received.id} now")

            async def ack(received: object = received, place: tuple[str, int] = place) -> None:
                await received.ack()  # type: ignore[attr-defined]
                self.acknowledged.add(place)

            late.append(asyncio.ensure_future(ack()))
            if self._random.random() < 0.9:
                await asyncio.gather(*late)
                late.clear()

    def behind(self, publishers: list[Publisher]) -> int:
        """How many acknowledged publishes it has not got yet, if none came twice."""
        return sum(len(publisher.answered) for publisher in publishers) - len(self.ids)


def test_what_was_acknowledged_survives_kills_and_stops_under_load(shm_dir: Path) -> None:
    rounds = count(5, 100)

    async def test() -> None:
        chance = random.Random(rounds)
        server = ServerProcess(shm_dir / "data")
        await server.start()
        async with AsyncExitStack() as held:
            sessions = [await held.enter_async_context(session(server.address, client_id=f"c{i}")) for i in range(3)]
            publishers = [Publisher(f"p{i}", made) for i, made in enumerate(sessions[:2])]
            subscriber = Subscriber(sessions[2])
            reading = asyncio.create_task(subscriber.run())
            writing = [asyncio.create_task(publisher.run()) for publisher in publishers]
            for _ in range(rounds):
                goals = [len(publisher.answered) + chance.randrange(100, 1500) for publisher in publishers]
                await until(
                    lambda goals=goals: all(  # type: ignore[misc]
                        task.done() or len(publisher.answered) >= goal
                        for publisher, goal, task in zip(publishers, goals, writing, strict=True)
                    ),
                    lambda: (server.said[-2000:], [len(publisher.answered) for publisher in publishers]),
                )
                await (server.stop() if chance.random() < 0.2 else server.kill())
                await server.start()
            for publisher in publishers:
                publisher.stopped = True
            await asyncio.gather(*writing)
            await until(lambda: reading.done() or subscriber.behind(publishers) <= 0, lambda: server.said[-2000:])
            if reading.done():
                reading.result()
            reading.cancel()
        await server.stop()
        check(server.directory, publishers, subscriber)

    asyncio.run(test())


def check(directory: Path, publishers: list[Publisher], subscriber: Subscriber) -> None:
    """The promises, after the end."""
    assert not subscriber.wrong, subscriber.wrong[:10]
    for topic in TOPICS:
        ids = [event.id for event in events_of(directory, topic)]
        assert max(Counter(ids).values()) == 1, "each event is in the log once"
        assert subscriber.delivered[topic] == sorted(subscriber.delivered[topic])
        assert subscriber.delivered[topic] == list(range(len(ids)))
        assert [subscriber.ids[topic, at] for at in range(len(ids))] == ids
        for publisher in publishers:
            own = [int(identity.partition("-")[2]) for identity in ids if identity.startswith(publisher.name)]
            assert own == sorted(own), "events of one session keep their order"
    for publisher in publishers:
        for identity, place in publisher.answered.items():
            assert subscriber.ids[place] == identity


class Reader:
    """Reads one topic by hand; it knows which of its acknowledgements the server has dealt with."""

    def __init__(self, client: Raw) -> None:
        self.client = client
        self._delivered: deque[Deliver] = deque()

    async def next(self) -> Deliver:
        """The next delivery."""
        while not self._delivered:
            self._take(await self.client.receive())
        return self._delivered.popleft()

    async def acknowledge(self, topic: str, offset: int) -> None:
        """Acknowledges, and waits until the server has dealt with that: it answers what was sent behind it."""
        body = Ack(self.client.client_id, self.client.session_id, "TST", topic, offset)
        self.client.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, body)
        seq = self.client.send(Command.HEARTBEAT_REQUEST)
        while (message := await self.client.receive()).seq != seq:
            self._take(message)

    def _take(self, message: Message) -> None:
        if message.command == Command.ASYNC_MESSAGE_TO_CLIENT:
            self._delivered.append(protocol.body_of(message))


def test_an_acknowledgement_that_arrived_survives_a_kill(shm_dir: Path) -> None:
    rounds = count(3, 30)

    async def test() -> None:
        server = ServerProcess(shm_dir / "data")
        done = 0
        for number in range(rounds):
            await server.start()
            writer, reader = await Raw.connect(server.port), await Raw.connect(server.port)
            await writer.hello("writer", purpose=Purpose.PUBLISH)
            await reader.hello("reader", buffer_cloud_events=7)
            for i in range(20):
                event = Event(type="load", source="/load", id=f"{number}-{i}")
                body = Publish("writer", writer.session_id, "a", RawBytes(event.encode()))
                assert (await writer.ask(Command.PUBLISH_MESSAGE_REQUEST, body)).status == 0
            start = "earliest" if not number else None
            subscribed = await reader.ask(
                Command.SUBSCRIBE_REQUEST, Subscribe("reader", reader.session_id, ["a"], start)
            )
            assert subscribed.status == 0
            reading = Reader(reader)
            for _ in range(random.randrange(1, 4)):
                delivered = await reading.next()
                assert delivered.offset == done, "it goes on exactly where it was acknowledged"
                done += random.randrange(1, len(delivered.cloud_events) + 1)
                await reading.acknowledge("a", done)
                if done != delivered.offset + len(delivered.cloud_events):
                    break
            await server.kill()
            writer.close()
            reader.close()

    asyncio.run(test())
