"""Bridged servers whose links break and whose processes are killed under load: each event is everywhere, once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import pytest

from echomesh.events import Event
from echomesh.mesh.client import Session, session
from tests.faults.mesh_support import HOST, ServerProcess, events_of, until
from tests.mesh.proxy import Proxy, proxy
from tests.support.counts import count

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(1800)]

CONFIG = """
[mesh]
heartbeat = "1s"
"""
TOPICS = ("orders/a", "orders/b")
IN_FLIGHT = 5
PAUSE_S = 0.02  # for each server: in a full mesh of six, each event crosses thirty links
Edges = list[tuple[int, int]]


def chain(servers: int) -> Edges:
    return [(i, i + 1) for i in range(servers - 1)]


def ring(servers: int) -> Edges:
    return [*chain(servers), (servers - 1, 0)]


def full(servers: int) -> Edges:
    return [(i, j) for i in range(servers) for j in range(i)]


DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


class Place:
    """One server, somebody who publishes there, and somebody who subscribes."""

    def __init__(self, number: int, directory: Path, pause_s: float) -> None:
        self.number = number
        self.pause_s = pause_s
        self.server = ServerProcess(directory / f"s{number}", config=CONFIG)
        self.published = 0
        self.got: Counter[tuple[str, str]] = Counter()
        self.order: dict[tuple[str, str], list[int]] = {}
        self.stopped = False

    async def publish(self, made: Session) -> None:
        """Publishes, many in flight, until it is stopped; all of it is answered then."""
        waiting: set[asyncio.Task[int]] = set()
        numbers = 0
        while not self.stopped:
            while len(waiting) < IN_FLIGHT:
                event = Event(type="load", source=f"/s{self.number}", id=f"{numbers}")
                waiting.add(asyncio.create_task(made.publish(TOPICS[numbers % 2], event)))
                numbers += 1
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            self.published += len([task.result() for task in done])
            await asyncio.sleep(self.pause_s)
        self.published += len(await asyncio.gather(*waiting))

    async def subscribe(self, made: Session) -> None:
        """Acknowledges each event as it comes."""
        async for received in await made.subscribe("orders/**", start="earliest", ack="manual"):
            await received.ack()
            self.got[received.source, received.id] += 1
            self.order.setdefault((received.source, received.topic), []).append(int(received.id))


class Mesh:
    """Servers, and a proxy in the middle of each bridge."""

    def __init__(self, directory: Path, servers: int) -> None:
        self.places = [Place(number, directory, PAUSE_S * servers) for number in range(servers)]
        self.links: list[Proxy] = []
        self._held = AsyncExitStack()
        self._publishing: list[asyncio.Task[None]] = []
        self._subscribing: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(place.server.start() for place in self.places))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._publishing, *self._subscribing):
            task.cancel()
        await self._held.aclose()
        await asyncio.gather(*(place.server.kill() for place in self.places))

    async def client(self, place: Place, name: str) -> Session:
        return await self._held.enter_async_context(session(place.server.address, client_id=name))

    async def bridge(self, edges: Edges) -> None:
        """Makes the bridges; each server knows the other one by the address of the proxy between them."""
        for one, other in edges:
            between = await self._held.enter_async_context(proxy(self.places[other].server.port))
            self.links.append(between)
            async with session(self.places[one].server.address, client_id="admin") as admin:
                await admin.add_bridge(f"{HOST}:{between.port}")

    async def load(self) -> None:
        """Everybody publishes and subscribes."""
        for place in self.places:
            publisher, subscriber = await self.client(place, "publisher"), await self.client(place, "subscriber")
            self._subscribing.append(asyncio.create_task(place.subscribe(subscriber)))
            self._publishing.append(asyncio.create_task(place.publish(publisher)))

    async def progress(self, events: int) -> None:
        """Waits until so many more were published at each server."""
        goals = [place.published + events for place in self.places]
        await until(
            lambda: (
                any(task.done() for task in (*self._publishing, *self._subscribing))
                or all(place.published >= goal for place, goal in zip(self.places, goals, strict=True))
            ),
            lambda: [place.published for place in self.places],
        )
        self._check_tasks()

    def _check_tasks(self) -> None:
        for task in (*self._publishing, *self._subscribing):
            if task.done():
                task.result()

    async def end(self) -> None:
        """No more is published; all of it gets everywhere."""
        for place in self.places:
            place.stopped = True
        await asyncio.gather(*self._publishing)
        total = sum(place.published for place in self.places)
        await until(
            lambda: (
                any(task.done() for task in self._subscribing) or all(len(place.got) == total for place in self.places)
            ),
            lambda: (total, [len(place.got) for place in self.places]),
        )
        self._check_tasks()

    def check(self) -> None:
        """Each subscriber got each event once, and each log has each event once; those of one origin in order."""
        wanted = {(f"/s{place.number}", str(n)) for place in self.places for n in range(place.published)}
        for place in self.places:
            assert place.got.keys() == wanted
            assert max(place.got.values()) == 1, "each subscriber gets each event once"
            for numbers in place.order.values():
                assert numbers == sorted(numbers)
            for number, topic in enumerate(TOPICS):
                logged = Counter((event.source, event.id) for event in events_of(place.server.directory, topic))
                assert logged.keys() == {(source, id) for source, id in wanted if int(id) % 2 == number}
                assert max(logged.values()) == 1, "each log has each event once"


class Trouble:
    """What goes wrong, by chance."""

    def __init__(self, mesh: Mesh, seed: int) -> None:
        self.mesh = mesh
        self.random = random.Random(seed)

    async def strike(self) -> None:
        """Something happens while everybody publishes, and ends."""
        await self.random.choice((self._cut, self._part, self._stall, self._kill, self._kill_and_cut))()
        await self.mesh.progress(20)

    async def _cut(self) -> None:
        self.random.choice(self.mesh.links).cut()

    async def _part(self) -> None:
        links = self.random.sample(self.mesh.links, self.random.randint(1, len(self.mesh.links)))
        for link in links:
            link.close()
        await self.mesh.progress(50)
        for link in links:
            link.open = True

    async def _stall(self) -> None:
        link = self.random.choice(self.mesh.links)
        link.hold()
        made = link.connections
        if self.random.random() < 0.5:
            # Long enough for a server to notice: it gives the connection up, and dials again.
            await until(lambda: link.connections > made, lambda: "nobody noticed that the link is dead")
        else:
            await self.mesh.progress(50)
        link.go_on()

    async def _kill(self) -> None:
        place = self.random.choice(self.mesh.places)
        await place.server.kill()
        await place.server.start()

    async def _kill_and_cut(self) -> None:
        for link in self.mesh.links:
            link.cut()
        await self._kill()


@pytest.mark.parametrize(
    ("servers", "edges"),
    [
        pytest.param(2, [(0, 1)], id="2 servers"),
        pytest.param(2, [(0, 1), (1, 0)], id="2 servers, both ways"),
        pytest.param(3, chain(3), id="chain of 3"),
        pytest.param(5, ring(5), id="ring of 5"),
        pytest.param(4, DIAMOND, id="diamond"),
        pytest.param(6, full(6), id="full mesh of 6"),
    ],
)
def test_each_event_is_everywhere_once_whatever_breaks(shm_dir: Path, servers: int, edges: Edges) -> None:
    rounds = count(2, 30)

    async def test() -> None:
        async with Mesh(shm_dir, servers) as mesh:
            await mesh.bridge(edges)
            await mesh.load()
            await mesh.progress(20)
            trouble = Trouble(mesh, servers * 100 + len(edges))
            for _ in range(rounds):
                await trouble.strike()
            await mesh.end()
            mesh.check()

    asyncio.run(test())


def test_a_server_behind_another_name_is_reached_by_both_names(shm_dir: Path) -> None:
    async def test() -> None:
        async with Mesh(shm_dir, 2) as mesh:
            await mesh.bridge([(0, 1)])
            one, other = mesh.places
            client = await mesh.client(one, "client")
            for number, port in enumerate((other.server.port, mesh.links[0].port)):
                event = Event(type="load", source="/s0", id=str(number))
                assert await client.publish("orders/a", event, server=f"{HOST}:{port}") == number
            assert len(events_of(other.server.directory, "orders/a")) == 2

    asyncio.run(test())
