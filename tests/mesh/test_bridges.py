"""Bridged servers: each event is in each log once, in any topology and after any outage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw as RawBytes

from echomesh.events import Event
from echomesh.mesh import protocol
from echomesh.mesh.bodies import AddBridge, Bridges, Deliver, InSession, Publish, RemoveBridge, Subscribe
from echomesh.mesh.codes import Command
from echomesh.mesh.link import Link
from echomesh.mesh.options import MeshOptions
from tests.mesh.support import Raw, Running, an_event, serving
from tests.support.ports import free_port

HOST = "127.0.0.1"
CHAIN = [(0, 1), (1, 2), (2, 3)]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]
FULL = [(i, j) for i in range(4) for j in range(4) if i < j]
BOTH_WAYS = [(0, 1), (1, 0)]


class Mesh:
    """Servers in this process, each of which can be stopped and started again at its port."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.ports = [free_port() for _ in range(count)]
        self.running: list[Running | None] = [None] * count
        self._held: list[AsyncExitStack | None] = [None] * count

    async def start(self, number: int) -> Running:
        options = replace(MeshOptions(heartbeat_s=1.0), urn=HOST, port=self.ports[number])
        held = AsyncExitStack()
        directory = self.directory / str(number)
        directory.mkdir(exist_ok=True)
        server = await held.enter_async_context(serving(directory, options, port=self.ports[number]))
        self.running[number], self._held[number] = server, held
        return server

    async def stop(self, number: int) -> None:
        held = self._held[number]
        self.running[number] = self._held[number] = None
        if held is not None:
            await held.aclose()

    def __getitem__(self, number: int) -> Running:
        server = self.running[number]
        assert server is not None
        return server

    async def bridge(self, one: int, other: int, topics: list[str] | None = None) -> None:
        admin = await self[one].publisher("admin")
        body = AddBridge(HOST, self.ports[other], "admin", admin.session_id, topics)
        answer = await admin.ask(Command.ADD_BRIDGE_REQUEST, body)
        assert answer.status == 0, answer.description

    def ids(self, number: int, topic: str = "a", environment: str = "TST") -> list[str]:
        """The events in one server's log."""
        log = self[number].server.port
        bounds = log.bounds(environment, topic)
        if bounds is None:
            return []
        found: list[str] = []
        at = bounds[0]
        while at < bounds[1]:
            records = log.read(environment, topic, at, max_bytes=1 << 20)
            found += [Event.decode(event).id for event in records.events()]
            at = records.next_offset
        return found

    async def until(self, reached: Callable[[], bool], what: Callable[[], object]) -> None:
        for _ in range(2000):
            if reached():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(what())


def run(directory: Path, count: int, test: Callable[[Mesh], Any]) -> None:
    async def inside() -> None:
        mesh = Mesh(directory, count)
        try:
            for number in range(count):
                await mesh.start(number)
            await test(mesh)
        finally:
            for number in range(count):
                await mesh.stop(number)

    asyncio.run(inside())


async def publish(client: Raw, topic: str, event: Event, **more: Any) -> protocol.Message:
    body = Publish(client.client_id, client.session_id, topic, RawBytes(event.encode()), **more)
    return await client.ask(Command.PUBLISH_MESSAGE_REQUEST, body)


@pytest.mark.parametrize(
    "edges", [BOTH_WAYS, CHAIN, RING, DIAMOND, FULL], ids=["both ways", "chain", "ring", "diamond", "full"]
)
def test_each_event_is_in_each_log_once(shm_dir: Path, edges: list[tuple[int, int]]) -> None:
    count = max(max(edge) for edge in edges) + 1

    async def test(mesh: Mesh) -> None:
        clients = [await mesh[i].publisher(f"p{i}") for i in range(count)]
        for i, client in enumerate(clients):
            await publish(client, "a", an_event(1000 + i))  # before the bridges are there
        for one, other in edges:
            await mesh.bridge(one, other)
        for number in range(25):
            for i, client in enumerate(clients):
                assert (await publish(client, "a", an_event(i * 100 + number))).status == 0
        wanted = sorted(f"e{i * 100 + n}" for i in range(count) for n in range(25)) + [
            f"e{1000 + i}" for i in range(count)
        ]
        await mesh.until(
            lambda: all(len(mesh.ids(i)) >= len(wanted) for i in range(count)),
            lambda: [len(mesh.ids(i)) for i in range(count)],
        )
        await asyncio.sleep(0.05)  # time for a duplicate to show up
        for i in range(count):
            assert sorted(mesh.ids(i)) == sorted(wanted)
            for origin in range(count):
                of_origin = [int(name[1:]) for name in mesh.ids(i) if int(name[1:]) // 100 == origin]
                assert of_origin == sorted(of_origin), "order holds for each origin"

    run(shm_dir, count, test)


def test_nothing_is_sent_back_to_where_it_came_from(shm_dir: Path) -> None:
    async def chain(mesh: Mesh) -> None:
        for one, other in CHAIN:
            await mesh.bridge(one, other)
        client = await mesh[0].publisher("p")
        for number in range(20):
            assert (await publish(client, "a", an_event(number))).status == 0
        await mesh.until(lambda: len(mesh.ids(3)) == 20, lambda: mesh.ids(3))
        # The first ones, while the bridges are being made, may be on their way in both directions.
        sent = mesh[3].server.core.counts.bridged_out
        for number in range(20, 60):
            assert (await publish(client, "a", an_event(number))).status == 0
        await mesh.until(lambda: len(mesh.ids(3)) == 60, lambda: mesh.ids(3))
        assert mesh[3].server.core.counts.bridged_out == sent
        assert all(mesh[number].server.core.counts.bridged_out >= 60 for number in range(3))

    run(shm_dir, 4, chain)


def test_an_event_waits_a_moment_at_most_for_the_acknowledgement_of_the_one_before(
    shm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Link, "acknowledged", lambda self, message: True)  # as if it were on its way for long

    async def test(mesh: Mesh) -> None:
        await mesh.bridge(0, 1)
        client = await mesh[0].publisher("shop")
        for number in range(20):
            await publish(client, "a", an_event(number))
        await mesh.until(lambda: len(mesh.ids(1)) == 20, lambda: mesh.ids(1))

    run(shm_dir, 2, test)


def test_what_is_published_while_a_server_is_down_comes_later_and_once(shm_dir: Path) -> None:
    async def test(mesh: Mesh) -> None:
        for one, other in [(0, 1), (1, 2), (2, 0)]:
            await mesh.bridge(one, other)
        client = await mesh[0].publisher("p")
        number = 0
        for down in (1, 2, 1):
            for _ in range(10):
                await publish(client, "a", an_event(number))
                number += 1
            await mesh.stop(down)
            for _ in range(10):
                await publish(client, "a", an_event(number))
                number += 1
            await mesh.start(down)
        wanted = [f"e{i}" for i in range(number)]
        await mesh.until(
            lambda: all(len(mesh.ids(i)) >= number for i in range(3)), lambda: [mesh.ids(i) for i in range(3)]
        )
        assert [mesh.ids(i) for i in range(3)] == [wanted] * 3

    run(shm_dir, 3, test)


def test_subscribers_are_told_the_way_that_an_event_came(shm_dir: Path) -> None:
    async def test(mesh: Mesh) -> None:
        await mesh.bridge(0, 1)
        await mesh.bridge(1, 2)
        reader = await mesh[2].client("reader")
        await reader.ask(Command.SUBSCRIBE_REQUEST, Subscribe("reader", reader.session_id, ["**"]))
        await publish(await mesh[0].publisher("p"), "a", an_event(1))
        body: Deliver = protocol.body_of(await reader.receive())
        assert [(server.urn, server.port) for server in body.bridge_servers] == [
            (HOST, mesh.ports[0]),
            (HOST, mesh.ports[1]),
        ]
        await publish(await mesh[2].publisher("q"), "b", an_event(2))
        here: Deliver = protocol.body_of(await reader.receive())
        assert (here.topic, here.bridge_servers) == ("b", [])

    run(shm_dir, 3, test)


def test_a_targeted_publish_goes_over_as_many_hops_as_needed_and_is_seen_only_there(shm_dir: Path) -> None:
    async def test(mesh: Mesh) -> None:
        for one, other in CHAIN:
            await mesh.bridge(one, other)
        client = await mesh[0].publisher("p")
        answer = None
        for _ in range(500):  # routes take a moment to be known
            answer = await publish(client, "a", an_event(7), urn=HOST, port=mesh.ports[3])
            if answer.status == 0:
                break
            assert answer.error == "NO_BRIDGE_SERVER"
            await asyncio.sleep(0.01)
        assert answer is not None
        assert (answer.status, protocol.body_of(answer).offset) == (0, 0)
        await publish(client, "a", an_event(8))
        await mesh.until(lambda: mesh.ids(3) == ["e7", "e8"], lambda: mesh.ids(3))
        assert [mesh.ids(i) for i in range(3)] == [["e8"]] * 3
        nowhere = await publish(client, "a", an_event(9), urn="nowhere", port=1)
        assert nowhere.error == "NO_BRIDGE_SERVER"
        await mesh.stop(1)
        await mesh.until(lambda: not mesh[0].server.core.bridges.links, lambda: "the link is still up")
        down = await publish(client, "a", an_event(9), urn=HOST, port=mesh.ports[1])
        assert down.error == "BRIDGE_NOT_ACTIVE"
        beyond = await publish(client, "a", an_event(9), urn=HOST, port=mesh.ports[3])
        assert beyond.error == "BRIDGE_NOT_ACTIVE"

    run(shm_dir, 4, test)


def test_a_bridge_takes_only_the_topics_that_it_names_both_ways(shm_dir: Path) -> None:
    async def test(mesh: Mesh) -> None:
        await mesh.bridge(0, 1, ["wanted/**"])
        clients = [await mesh[i].publisher("p") for i in range(2)]
        for i, client in enumerate(clients):
            await publish(client, "private", an_event(i))
            await publish(client, "wanted/x", an_event(10 + i))
        await mesh.until(
            lambda: [sorted(mesh.ids(i, "wanted/x")) for i in range(2)] == [["e10", "e11"]] * 2,
            lambda: [mesh.ids(i, "wanted/x") for i in range(2)],
        )
        assert [mesh.ids(i, "private") for i in range(2)] == [["e0"], ["e1"]]

    run(shm_dir, 2, test)


def test_environments_stay_apart_over_bridges(shm_dir: Path) -> None:
    async def test(mesh: Mesh) -> None:
        await mesh.bridge(0, 1)
        await publish(await mesh[0].publisher("p", environment="PRD"), "a", an_event(1))
        await publish(await mesh[0].publisher("p"), "a", an_event(2))
        await mesh.until(
            lambda: (mesh.ids(1, "a", "PRD"), mesh.ids(1, "a")) == (["e1"], ["e2"]), lambda: mesh.ids(1, "a")
        )

    run(shm_dir, 2, test)


def test_bridges_are_told_and_removed_and_remembered(shm_dir: Path) -> None:
    async def test(mesh: Mesh) -> None:
        await mesh.bridge(0, 1)
        admin = await mesh[0].publisher("admin")
        again = AddBridge(HOST, mesh.ports[1], "admin", admin.session_id)
        assert (await admin.ask(Command.ADD_BRIDGE_REQUEST, again)).error == "BRIDGE_EXISTS"
        told: Bridges = protocol.body_of(await admin.ask(Command.BRIDGES_REQUEST, InSession("admin", admin.session_id)))
        assert [(bridge.urn, bridge.port, bridge.active) for bridge in told.bridges] == [(HOST, mesh.ports[1], True)]
        await mesh.stop(0)
        await mesh.start(0)
        admin = await mesh[0].publisher("admin")
        await mesh.until(lambda: bool(mesh[0].server.core.bridges.links), lambda: "no link after the restart")
        gone = RemoveBridge(HOST, mesh.ports[1], "admin", admin.session_id)
        assert (await admin.ask(Command.REMOVE_BRIDGE_REQUEST, gone)).status == 0
        assert (await admin.ask(Command.REMOVE_BRIDGE_REQUEST, gone)).error == "UNKNOWN_BRIDGE"
        await mesh.until(lambda: not mesh[1].server.core.bridges.links, lambda: "the link is still up")
        await mesh.stop(0)
        await mesh.start(0)
        assert not mesh[0].server.core.bridges.bridges

    run(shm_dir, 2, test)
