"""Fuzzed beacons and control messages: a participant drops who sends them, keeps no memory of it, and serves on."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from echomesh.data import wire
from echomesh.data.link import PublisherLink, SubscriberLink
from echomesh.data.looking import look
from echomesh.data.membership import MAX_DIALS, MAX_PEERS, Close, Dial
from echomesh.data.messages import (
    VERSION,
    Credentials,
    Endpoint,
    Gone,
    Hello,
    InitLook,
    InitPub,
    InitSub,
    LookInit,
    Lost,
    Message,
    PartInit,
    PartInsertPublisher,
    PartInsertSubscriber,
    PartRemovePublisher,
    PartRemoveSubscriber,
    Process,
    PubInit,
    PubInsertSubscriber,
    Ready,
    SubInit,
    SubInsertPublisher,
    Wired,
)
from echomesh.data.outputs import Unwire, Wire
from echomesh.data.participant_core import Identity, ParticipantCore
from echomesh.errors import BadPacket
from tests.data.test_participant import options, publisher, running, subscriber, until
from tests.data.test_wire import EXAMPLES
from tests.faults.data_fuzz import DataFuzz
from tests.support.counts import count

ME = Hello(4000, VERSION, "default", b"m" * 16, 10)
COOKIE = b"cookie"
TOPICS = ("a", "a/b", "c")
PROCESS = Process("n", "/d", b"right", 1)


def identity(linger_s: float = 2.0) -> Identity:
    return Identity(hello=ME, cookie=COOKIE, beacon_s=1.0, linger_s=linger_s)


def examples(random: Any, cookie: bytes = COOKIE) -> tuple[list[Message], list[Message]]:
    """Messages that make sense: of another participant, and of a process."""
    hello = Hello(5000, VERSION, "default", random.randbytes(1) * 16, random.randrange(5))
    ends = [Endpoint(bytes([random.randrange(6)]) * 16, random.choice((*TOPICS, "**", "a/*"))) for _ in range(3)]
    ends[0] = Endpoint(ends[0].id, random.choice(TOPICS))
    shown = Credentials(cookie, "default")
    there: list[Message] = [
        PartInit([ends[0]], ends[1:], hello),
        PartInit([], [], hello),
        PartInsertPublisher(ends[0]),
        PartInsertSubscriber(ends[1]),
        PartRemovePublisher(ends[0]),
        PartRemoveSubscriber(Gone(ends[1].id)),
        hello,
    ]
    wired = [Wired(ends[1].id, "n", 1, 2, 3, random.randrange(1, 6))]
    here: list[Message] = [
        InitPub(ends[0].topic, ends[0].id, shown, PROCESS, {"history": 1}, wired),
        InitSub(ends[1], shown, PROCESS),
        InitLook(shown),
        Ready(random.randrange(1, 8)),
        Lost(random.randrange(1, 8)),
    ]
    return there, here


class Fuzzed:
    """A core under fire; its wiring does at once what it is asked."""

    def __init__(self, seed: int) -> None:
        self.fuzz = DataFuzz(seed)
        self.core = ParticipantCore(identity(), 0.0, lambda process: process.proof == b"right")
        self.links: set[int] = set()
        self.desks: set[int] = set()
        self.wires: set[int] = set()
        self.now = 0.0

    def step(self) -> None:
        """Something happens."""
        random = self.fuzz.random
        self.now += random.choice((0.0, 0.01, 0.1))
        there, here = examples(random)
        kind = random.randrange(10)
        if kind == 0:
            hello = Hello(5000, VERSION, "default", random.randbytes(16), 1)
            self.core.datagram(self.fuzz.beacon(hello), "10.0.0.1", self.now)
        elif kind == 1:
            self._open(self.links, self.core.accepted("10.0.0.1", self.now))
        elif kind == 2:
            self._open(self.desks, self.core.local(self.now))
        elif kind == 3:
            self.core.advance(self.now)
        elif kind == 4 and self.links | self.desks:
            gone = random.choice(sorted(self.links | self.desks))
            self.links.discard(gone)
            self.desks.discard(gone)
            self.core.lost(gone, self.now)
        elif kind < 8 and self.links:
            self.core.received(random.choice(sorted(self.links)), self.fuzz.spoiled(there), self.now)
        elif self.desks:
            self.core.received(random.choice(sorted(self.desks)), self.fuzz.spoiled(here), self.now)
        self._settle()

    def _open(self, kind: set[int], connection: int | None) -> None:
        if connection is not None:
            kind.add(connection)

    def _settle(self) -> None:
        for output in self.core.take():
            match output:
                case Close(connection):
                    self.links.discard(connection)
                    self.desks.discard(connection)
                case Dial(connection):
                    if self.fuzz.random.random() < 0.5:
                        assert self.core.connected(connection)
                        self.links.add(connection)
                    else:
                        self.core.lost(connection, self.now)
                case Wire(reference):
                    assert reference not in self.wires
                    self.wires.add(reference)
                case Unwire(reference):
                    self.wires.remove(reference)
        assert len(self.core.membership.peers) <= MAX_PEERS
        assert self.core.membership.size <= MAX_PEERS + MAX_DIALS + 32

    def end(self) -> None:
        """All go: nothing is left of them."""
        for connection in sorted(self.links | self.desks):
            self.core.lost(connection, self.now)
        self.links.clear()
        self.desks.clear()
        for _ in range(8):
            self.now += 1.0
            self.core.advance(self.now)
            self._settle()
        assert (len(self.core.locals), self.wires, self.core.matching.owners()) == (0, set(), set())
        assert (self.core.membership.size, self.core.membership.peers) == (0, {})


def test_a_core_survives_everything_and_keeps_nothing_of_it() -> None:
    for seed in range(count(30, 2000)):
        fuzzed = Fuzzed(seed)
        try:
            for _ in range(300):
                fuzzed.step()
            fuzzed.end()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_what_a_participant_says_to_its_processes_is_never_more_than_a_bad_packet() -> None:
    fuzz = DataFuzz(1)
    for kinds, taken in (
        ((PubInit, PubInsertSubscriber), wire.to_publisher),
        ((SubInit, SubInsertPublisher), wire.to_subscriber),
        ((LookInit,), wire.to_onlooker),
    ):
        spoken = [example for example in EXAMPLES if isinstance(example, kinds)]
        bad = 0
        for _ in range(count(300, 30000)):
            try:
                list(taken().feed(fuzz.spoiled(spoken)))
            except BadPacket:
                bad += 1
        assert bad > 0


@pytest.mark.timeout(1800)
def test_a_real_participant_serves_on(shm_dir: Path) -> None:
    chosen = options(shm_dir / "m", beacon_s=0.5)
    unhandled: list[dict[str, Any]] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        async with running(chosen, patience_s=1500.0) as participant:
            cookie = participant.core.identity.cookie
            ends = {participant.port: 1, participant.core.hello.port: 0}
            fuzz = DataFuzz(7)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                for _ in range(count(60, 5000)):
                    hello = Hello(1, VERSION, "default", fuzz.random.randbytes(16), 1)
                    datagrams.sendto(fuzz.beacon(hello), ("127.0.0.1", chosen.beacon_port))
                    for port, which in ends.items():
                        messages = examples(fuzz.random, cookie)[which]
                        await attack(port, [fuzz.spoiled(messages) for _ in range(fuzz.random.randrange(1, 6))])
            one, two = publisher(chosen, "after/all"), subscriber(chosen, "after/*")
            await still_matches(one, two)
            seen = await asyncio.to_thread(look, chosen)
            assert seen.counters["bad messages"] > 0
            assert seen.counters["bad beacons"] > 0
        assert not unhandled, unhandled

    asyncio.run(test())


async def attack(port: int, data: list[bytes]) -> None:
    """Says these, and does not wait for an answer."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for each in data:
            writer.write(each)
        await writer.drain()
        await asyncio.sleep(0)
        writer.transport.abort()
    except OSError:
        pass  # it was put out


async def still_matches(one: PublisherLink, two: SubscriberLink) -> None:
    await one.open()
    await two.open()
    await until(lambda: two.id in one.matched)
    await two.close()
    await one.close()
