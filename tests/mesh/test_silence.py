"""Connections that are slow and those that are silent: bytes that keep moving are life, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Hello, Publish
from echomesh.mesh.client import session
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.connection import Connection
from echomesh.mesh.core import MeshCore
from echomesh.mesh.options import MeshOptions
from tests.mesh.proxy import proxy
from tests.mesh.support import Running, an_event, serving

OPTIONS = MeshOptions(heartbeat_s=10.0, stranger_s=10.0, least_rate=1000, stranger_bytes=64 << 10)


class Wire:
    """The shell of a connection that no socket has."""

    def __init__(self) -> None:
        self.unsent = 0

    def flush(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Clock:
    """The time of a test, and the connections that live by it."""

    def __init__(self, running: Running) -> None:
        self.core: MeshCore = running.server.core
        # The server's own clock goes on beside it; its looks come before all times here.
        self.now = asyncio.get_running_loop().time() + 1_000_000.0

    def connect(self) -> Connection:
        made = self.core.connect("192.0.2.1", self.now)
        assert made is not None
        made.wire = Wire()
        return made

    def publisher(self) -> Connection:
        made = self.connect()
        hello = Hello("shop", purpose=Purpose.PUBLISH)
        made.receive(framed(protocol.encode(Command.HELLO_REQUEST, "1", hello)), self.now)
        assert made.session is not None
        return made

    def go(self, seconds: float) -> None:
        """Time passes; the server looks every second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.core.tick(self.now)

    def drip(self, connection: Connection, data: bytes, a_second: int) -> int:
        """Sends bytes at a rate, until the connection ends; how many were taken."""
        for at in range(0, len(data), a_second):
            connection.receive(data[at : at + a_second], self.now)
            self.go(1)
            if connection.aborting:
                return at
        return len(data)


@pytest.fixture
def run(shm_dir: Path) -> Callable[[Callable[[Clock], None]], None]:
    def go(test: Callable[[Clock], None]) -> None:
        async def inside() -> None:
            async with serving(shm_dir, OPTIONS) as running:
                clock = Clock(running)
                test(clock)
                for connection in list(clock.core.connections):
                    connection.lost(clock.now)

        asyncio.run(inside())

    return go


def a_publish(connection: Connection, size: int) -> bytes:
    assert connection.session is not None
    body = Publish("shop", connection.session.id, "orders", Raw(an_event(1, size=size).encode()))
    return framed(protocol.encode(Command.PUBLISH_MESSAGE_REQUEST, "p", body))


def test_a_message_that_takes_longer_than_three_heartbeats_is_taken_while_its_bytes_keep_coming(
    run: Callable[[Callable[[Clock], None]], None],
) -> None:
    def test(clock: Clock) -> None:
        client = clock.publisher()
        data = a_publish(client, 200_000)
        assert clock.drip(client, data, 1100) == len(data)
        assert client.in_flight or (client.lane is not None and client.lane.in_flight_bytes)

    run(test)


def test_a_message_that_comes_slower_than_the_least_rate_is_cut_after_three_heartbeats(
    run: Callable[[Callable[[Clock], None]], None],
) -> None:
    def test(clock: Clock) -> None:
        client = clock.publisher()
        assert clock.drip(client, a_publish(client, 200_000), 900) == 900 * 30

    run(test)


def test_small_messages_of_a_slow_client_are_no_slow_message(run: Callable[[Callable[[Clock], None]], None]) -> None:
    def test(clock: Clock) -> None:
        client = clock.publisher()
        beat = framed(protocol.encode(Command.HEARTBEAT_REQUEST, "h"))
        # Each piece ends a heartbeat in the middle of the next one, so that there is always a frame that is not whole.
        data = beat * 30
        client.receive(data[:10], clock.now)
        assert clock.drip(client, data[10:], len(beat)) == len(data) - 10

    run(test)


def test_a_silent_client_is_cut_after_three_heartbeats(run: Callable[[Callable[[Clock], None]], None]) -> None:
    def test(clock: Clock) -> None:
        client = clock.publisher()
        clock.go(30)
        assert not client.aborting
        clock.go(1)
        assert client.aborting

    run(test)


def test_a_stranger_has_its_ten_seconds_however_steadily_it_sends(
    run: Callable[[Callable[[Clock], None]], None],
) -> None:
    def test(clock: Clock) -> None:
        stranger = clock.connect()
        hello = framed(protocol.encode(Command.HELLO_REQUEST, "1", Hello("x" * 60_000)))
        assert clock.drip(stranger, hello, 4000) == 4000 * 10

    run(test)


def test_who_reads_slowly_lives_and_who_stops_reading_does_not(
    run: Callable[[Callable[[Clock], None]], None],
) -> None:
    def test(clock: Clock) -> None:
        client = clock.publisher()
        client.blocked = True
        client.wire.unsent = 300_000
        for _ in range(100):
            client.wire.unsent -= 1100
            clock.go(1)
            assert not client.aborting
        clock.go(30)
        assert not client.aborting
        clock.go(1)
        assert client.aborting

    run(test)


def test_who_waits_for_our_own_disk_is_not_silent(run: Callable[[Callable[[Clock], None]], None]) -> None:
    def test(clock: Clock) -> None:
        client = clock.publisher()
        client.in_flight_bytes = 1 << 30
        clock.go(100)
        assert not client.aborting
        client.in_flight_bytes = 0
        clock.go(31)
        assert client.aborting

    run(test)


def test_strangers_together_are_kept_within_a_bound_and_the_ones_that_began_first_go(shm_dir: Path) -> None:
    hello = framed(protocol.encode(Command.HELLO_REQUEST, "1", Hello("x" * 50_000)))

    async def inside() -> None:
        options = MeshOptions(strangers_bytes=1 << 20)
        async with serving(shm_dir, options) as running:
            clock = Clock(running)
            many = [clock.connect() for _ in range(1000)]
            most = 0
            for stranger in many:
                stranger.receive(hello[:40_000], clock.now)
                most = max(most, sum(other.splitter.waiting for other in many if not other.aborting))
            assert (1 << 20) - 40_000 <= most <= 1 << 20
            left = [stranger for stranger in many if not stranger.aborting]
            assert left == many[-(1 << 20) // 40_000 :][-len(left) :]
            # A client whose HELLO comes in two pieces is welcome all the same.
            client = clock.connect()
            said = framed(protocol.encode(Command.HELLO_REQUEST, "1", Hello("shop")))
            client.receive(said[:20], clock.now)
            for _ in range(5):
                clock.connect().receive(hello[:40_000], clock.now)
            client.receive(said[20:], clock.now)
            assert client.session is not None
            for connection in list(clock.core.connections):
                connection.lost(clock.now)
            assert not clock.core.strangers.kept_bytes

    asyncio.run(inside())


def test_a_long_message_over_a_slow_way_arrives_at_the_server_and_at_a_subscriber(shm_dir: Path) -> None:
    async def inside() -> None:
        async with (
            asyncio.timeout(100),
            serving(shm_dir, MeshOptions(heartbeat_s=0.4)) as running,
            proxy(running.port) as way,
            session(f"127.0.0.1:{way.port}", client_id="shop") as shop,
            shop.subscribe("films", start="earliest") as films,
        ):
            way.pace_s = 0.015
            event = an_event(1, size=8 << 20)
            await shop.publish("films", event)
            received = await anext(aiter(films))
            assert received.event == event

    asyncio.run(inside())
