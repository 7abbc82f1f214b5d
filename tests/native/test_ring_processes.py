"""The ring between real processes: many producers, killed producers, stopped producers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import time
from pathlib import Path

import pytest

from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from tests.native.support.memory import RING_TRAILER, get64
from tests.native.support.messages import Ledger, make
from tests.native.support.processes import Process, eventually, running
from tests.native.support.writers import BATCH, HEALED, REPORTED, SLOTS
from tests.support.counts import count

pytestmark = pytest.mark.fault


def ended(pid: int) -> bool:
    """Whether the process is gone or a zombie; its messages may still be in the ring."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


@pytest.mark.parametrize(("capacity", "producers"), [(256, 3), (4096, 2), (1 << 16, 4)])
@pytest.mark.timeout(600)
def test_many_producers_lose_tear_and_reorder_nothing(shm_dir: Path, capacity: int, producers: int) -> None:
    messages = count(2_000, 100_000)
    ring = Ring(Mapping.create(shm_dir / "ring", capacity + RING_TRAILER))
    ledger = Ledger()
    with contextlib.ExitStack() as stack:
        others = [
            stack.enter_context(running("writers", "produce", shm_dir / "ring", number, messages))
            for number in range(producers)
        ]
        while ledger.total < producers * messages:
            if ledger.total % 2:
                for kind, body in ring.drain(100):
                    ledger.take(kind, body)
            elif not ring.read(ledger.take):
                finished = all(ended(other.pid) for other in others)
                assert not finished or ring.readable() or ledger.total == producers * messages
                time.sleep(0.00002)
        assert [other.end() for other in others] == [0] * producers
    assert dict(ledger.counts) == dict.fromkeys(range(producers), messages)
    assert ring.drain() == []
    assert ring.head == ring.tail
    assert bytes(memoryview(Mapping.open(shm_dir / "ring"))[:capacity]) == bytes(capacity)


class Killing:
    """Producers that are killed at random points and replaced, while this process reads all the time."""

    def __init__(self, home: Path, capacity: int, role: str, *args: object) -> None:
        self.home, self.role, self.args = home, role, args
        self.mapping = Mapping.create(home / "ring", capacity + RING_TRAILER)
        self.report = Mapping.create(home / "report", SLOTS * 32)
        (home / "lock").touch()
        self.ring = Ring(self.mapping)
        self.ledger = Ledger()
        self.made = 0
        self.chance = random.Random()

    def start(self) -> tuple[int, Process]:
        number = self.made
        self.made += 1
        return number, Process("writers", self.role, self.home, number, *self.args)

    def reported(self, number: int) -> int:
        return get64(self.report, number * 32 + REPORTED)

    def read_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read()

    def read(self) -> None:
        if self.chance.random() < 0.5:
            self.ring.read(self.ledger.take, self.chance.choice((1, 10, 1000)))
        else:
            for kind, body in self.ring.drain(self.chance.choice((1, 10, 1000))):
                self.ledger.take(kind, body)

    def read_until_written(self, number: int) -> None:
        """Python takes its time to start; what is killed has begun to write."""
        end = time.monotonic() + 60
        while not self.reported(number):
            self.read()
            assert time.monotonic() < end, "a producer does not get on"

    def check(self) -> None:
        """All that was reported has come, and at the most one unreported step for each producer that died."""
        for number in range(self.made):
            came = self.ledger.counts[number]
            assert self.reported(number) <= came <= self.reported(number) + BATCH

    @property
    def healed(self) -> int:
        return sum(get64(self.report, number * 32 + HEALED) for number in range(self.made))


@pytest.mark.timeout(900)
def test_three_producers_killed_at_random_under_a_lock_lose_nothing_published(shm_dir: Path) -> None:
    kills = count(20, 200)
    work = Killing(shm_dir, 1 << 15, "produce_under_lock")
    producers = [work.start() for _ in range(3)]
    try:
        for _ in range(kills):
            which = work.chance.randrange(3)
            number, process = producers[which]
            work.read_until_written(number)
            work.read_for(work.chance.random() * 0.02)
            process.kill()
            producers[which] = work.start()
    finally:
        for _, process in producers:
            process.kill()
    # The next that takes the lock finds the last one's place, if it left one; nobody ever calls unblock.
    writer = Ring(work.mapping, serial=True)
    with (shm_dir / "lock").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        healed = work.healed + writer.heal()
    while work.ring.readable():
        work.read()
    assert work.ring.head == work.ring.tail
    assert bytes(memoryview(work.mapping)[: 1 << 15]) == bytes(1 << 15)
    work.check()
    assert healed > 0, "no producer died between claim and publish: the test shows nothing"


@pytest.mark.timeout(600)
def test_a_ring_whose_one_writer_is_killed_at_random_is_unblocked_to_its_tail(shm_dir: Path) -> None:
    work = Killing(shm_dir, 1 << 12, "produce_alone")
    unblocked = 0
    for _ in range(count(15, 150)):
        number, process = work.start()
        try:
            work.read_until_written(number)
            work.read_for(work.chance.random() * 0.01)
        finally:
            process.kill()
        # Its process is waited for, so that nobody can be writing.
        while work.ring.size:
            work.read()
            if work.ring.blocked():
                assert work.ring.unblock(to_tail=True)
                unblocked += 1
        assert bytes(memoryview(work.mapping)[: 1 << 12]) == bytes(1 << 12)
        assert work.reported(number) <= work.ledger.counts[number]
    work.check()
    assert unblocked > 0, "no writer died between claim and publish: the test shows nothing"


def test_a_stopped_writers_place_is_kept_while_others_write(shm_dir: Path) -> None:
    ring = Ring(Mapping.create(shm_dir / "ring", (1 << 15) + RING_TRAILER))
    assert ring.write(5, b"before")
    ledger = Ledger()
    others = 60
    with running("writers", "stop_between_claim_and_publish", shm_dir / "ring") as stopped:
        assert stopped.line() == "claimed"
        eventually(lambda: "T" in Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0])
        assert ring.drain() == [(5, b"before")]
        with (
            running("writers", "produce", shm_dir / "ring", 1, others) as first,
            running("writers", "produce", shm_dir / "ring", 2, others) as second,
        ):
            eventually(lambda: ring.size > 1 << 14)
            assert ring.drain() == []  # the reader waits at the stopped one's place, however long
            os.kill(stopped.pid, signal.SIGCONT)
            assert stopped.line() == "published"
            got: list[tuple[int, bytes]] = []
            end = time.monotonic() + 60
            while len(got) < 1 + 2 * others and time.monotonic() < end:
                got += ring.drain()
            assert [first.end(), second.end(), stopped.end()] == [0, 0, 0]
    assert got[0] == (1, make(0, 0, 100)), "it arrives in its place, before all that was claimed later"
    for kind, body in got:
        ledger.take(kind, body)
    assert dict(ledger.counts) == {0: 1, 1: others, 2: others}
    assert ring.head == ring.tail


def test_a_stopped_lock_holder_is_not_dead_and_nobody_heals_over_it(shm_dir: Path) -> None:
    work = Killing(shm_dir, 1 << 15, "produce_under_lock")
    number, process = work.start()
    try:
        work.read_until_written(number)
        with (shm_dir / "lock").open("r+") as lock:
            for _ in range(count(20, 200)):
                os.kill(process.pid, signal.SIGSTOP)
                # The lock says who may heal: while it is held the place may be half written.
                try:
                    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass
                else:
                    writer = Ring(work.mapping, serial=True)
                    assert writer.heal() is False
                    fcntl.lockf(lock, fcntl.LOCK_UN)
                work.read_for(0.001)
                os.kill(process.pid, signal.SIGCONT)
                work.read_for(work.chance.random() * 0.002)
    finally:
        process.kill()
    while work.ring.readable():
        work.read()
    work.check()
