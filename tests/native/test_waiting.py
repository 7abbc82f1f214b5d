"""Waiting: who sleeps is woken, always, and costs nothing until then."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import statistics
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import BusyError
from echomesh.native.doorbell import Doorbell
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.native.waiter import Waiter
from tests.native.support.memory import RING_TRAILER, ROOM_WANTED, WRITER_RINGS, get32, put32, scratch
from tests.native.support.processes import eventually, running
from tests.native.support.sleepers import LOST_S, delay, woken
from tests.support.counts import count

SPINS = pytest.mark.parametrize("spin", [0.0, 0.0001, math.inf], ids=["sleep", "spin then sleep", "spin"])


def a_ring(capacity: int = 1024) -> Ring:
    return Ring(scratch(capacity + RING_TRAILER))


def marked(ring: Ring, bell: Doorbell) -> Ring:
    ring.connect_reader(bell)
    return ring


@pytest.fixture
def bell(shm_dir: Path) -> Doorbell:
    return Doorbell.create(shm_dir / "bell")


@SPINS
def test_a_wait_ends_at_its_time(bell: Doorbell, spin: float) -> None:
    for waiter in (Waiter(bell), Waiter()):
        waiter.watch([marked(a_ring(), bell)])
        for timeout in (0.0, 0.03, -1.0):
            start = time.monotonic()
            assert waiter.wait(timeout, spin=spin) is False
            assert time.monotonic() - start >= max(0.0, timeout) - 0.0005


@SPINS
def test_what_is_there_already_is_found_at_once(bell: Doorbell, spin: float) -> None:
    ring = a_ring()
    ring.write(1, b"")
    waiter = Waiter(bell)
    waiter.watch([a_ring(), ring])
    assert waiter.wait(0, spin=spin) is True
    ring.drain()
    assert waiter.wait(0, spin=spin) is False


@SPINS
def test_a_reader_is_woken_by_a_writer_in_another_thread(bell: Doorbell, spin: float) -> None:
    ring = a_ring()
    writer = marked(Ring(scratch(1024 + RING_TRAILER)), bell)
    waiter = Waiter(bell)
    waiter.watch([ring, writer])
    timer = threading.Timer(0.05, lambda: writer.write(1, b"x"))
    timer.start()
    assert woken(partial(waiter.wait, spin=spin))
    timer.join()
    assert writer.drain() == [(1, b"x")]


def test_write_many_and_a_claim_and_a_lost_claim_wake_too(bell: Doorbell) -> None:
    ring = marked(a_ring(), bell)
    waiter = Waiter(bell)
    waiter.watch([ring])

    def claim_and(end: str) -> None:
        claim = ring.claim(1, 8)
        if end != "lose":
            getattr(claim, end)()

    for wake in (
        lambda: ring.write_many(1, [b"a", b"b"]),
        lambda: ring.write_frame(1, 5),
        lambda: claim_and("commit"),
        lambda: claim_and("abort"),
        lambda: claim_and("lose"),
    ):
        timer = threading.Timer(0.02, wake)
        timer.start()
        assert woken(waiter.wait)
        timer.join()
        ring.drain()
        while waiter.wait(0):  # the bell rang for what was seen already
            pass


def test_one_that_has_learnt_to_look_out_sleeps_again_once_nothing_comes(bell: Doorbell) -> None:
    ring = marked(a_ring(), bell)
    waiter = Waiter(bell)
    waiter.watch([ring])
    answers = threading.Event()

    def answer() -> None:
        while not answers.is_set():
            if not ring.readable():
                ring.write(1, b"")

    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(2_000):
        assert woken(waiter.wait)
        ring.drain()
    answers.set()
    thread.join()
    ring.drain()
    while waiter.wait(0):
        pass
    start = time.thread_time()
    for _ in range(100):
        assert waiter.wait(0.005) is False
    # Eight looks in vain of 50 us at the most; looking out for the whole time would be half a second.
    assert time.thread_time() - start < 0.1


@pytest.mark.parametrize("spin", [0.0, 0.00002], ids=["sleep", "spin then sleep"])
@pytest.mark.timeout(900)
def test_no_wake_up_is_lost_between_two_processes(shm_dir: Path, spin: float) -> None:
    # One that spins has no credit with the scheduler, and takes turns with whatever else runs.
    rounds = count(2_000, 20_000) if spin else count(20_000, 200_000)
    rings = {name: Ring(Mapping.create(shm_dir / name, 1024 + RING_TRAILER)) for name in ("to-ping", "to-pong")}
    own = Doorbell.create(shm_dir / "ping.bell")
    waiter = Waiter(own)
    waiter.watch([rings["to-ping"]])
    chance = random.Random(0)
    with running("sleepers", "pong", shm_dir, rounds, spin) as other:
        assert other.line() == "ready"
        rings["to-pong"].connect_reader(Doorbell.open(shm_dir / "pong.bell"))
        assert not waiter.polls, "a poll each millisecond would hide a lost wake-up"
        for number in range(rounds):
            body = number.to_bytes(8, "little")
            assert rings["to-pong"].write(1, body)
            delay(chance)
            while not (got := rings["to-ping"].drain()):
                assert woken(partial(waiter.wait, spin=spin)), f"lost wake-up in round {number}"
            assert got == [(1, body)]
        assert other.end() == 0


@pytest.mark.timeout(900)
def test_no_wake_up_is_lost_by_a_writer_that_waits_for_room(shm_dir: Path) -> None:
    messages = count(20_000, 200_000)
    mapping = Mapping.create(shm_dir / "ring", 64 + RING_TRAILER)
    ring = Ring(mapping)
    waiter = Waiter(Doorbell.create(shm_dir / "writer.bell"))
    waits = 0
    chance = random.Random(4)
    with running("sleepers", "slow_reader", shm_dir, messages) as other:
        assert other.line() == "ready"
        ring.connect_reader(Doorbell.open(shm_dir / "reader.bell"))
        waiter.watch([], [(ring, 8)])
        assert not waiter.polls
        for number in range(messages):
            while not ring.write(1, number.to_bytes(8, "little")):
                assert woken(waiter.wait), f"lost wake-up at message {number}"
                waits += 1
            if number % 5 == 0:
                delay(chance)
        assert other.line() == "done"
    assert waits > 0


def test_room_is_asked_for_only_while_somebody_waits(bell: Doorbell, shm_dir: Path) -> None:
    mapping = scratch(64 + RING_TRAILER)
    ring = Ring(mapping)
    ring.connect_writer(bell)
    assert ring.write_many(1, [bytes(8)] * 9) == 4
    waiter = Waiter(bell)
    waiter.watch([], [(ring, 8)])
    assert waiter.wait(0.01) is False
    assert get32(mapping, 64 + ROOM_WANTED) == 1
    timer = threading.Timer(0.02, lambda: ring.drain(1))
    timer.start()
    assert woken(waiter.wait)
    timer.join()
    assert get32(mapping, 64 + ROOM_WANTED) == 0
    assert ring.has_room(8)


def switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_marked_ring_is_not_polled_and_an_unmarked_one_is(shm_dir: Path) -> None:
    mapping = Mapping.create(shm_dir / "ring", 1024 + RING_TRAILER)
    put32(mapping, 1024 + WRITER_RINGS, 1)
    with running("sleepers", "sleep_on", shm_dir, "rings", 0.0) as sleeper:
        assert sleeper.line() == "ready"
        eventually(lambda: asleep(sleeper.pid))
        time.sleep(0.05)
        before = switches(sleeper.pid)
        time.sleep(1.0)
        assert switches(sleeper.pid) - before <= 2
        put32(mapping, 1024 + WRITER_RINGS, 0)
        Doorbell.open(shm_dir / "sleeper.bell").ring()
        assert sleeper.line().endswith("woke 0")
        assert sleeper.line() == "ready"
        before = switches(sleeper.pid)
        eventually(lambda: switches(sleeper.pid) - before > 20)


def test_a_foreign_writer_is_noticed_within_some_milliseconds(shm_dir: Path) -> None:
    foreign = Ring(Mapping.create(shm_dir / "ring", 1024 + RING_TRAILER))
    took: list[float] = []
    with running("sleepers", "sleep_on", shm_dir, "rings", 0.0) as sleeper:
        for _ in range(21):
            assert sleeper.line() == "ready"
            time.sleep(0.005)
            start = time.monotonic_ns()
            assert foreign.write(1, b"no bell")
            end, why = sleeper.line().split(" ", 1)
            assert why == "woke 1"
            took.append((int(end) - start) / 1e6)
    assert not foreign.writer_rings
    assert min(took) < 10
    assert statistics.median(took) < 50


@SPINS
def test_ctrl_c_ends_a_wait_within_100_ms(shm_dir: Path, spin: float) -> None:
    mapping = Mapping.create(shm_dir / "ring", 1024 + RING_TRAILER)
    put32(mapping, 1024 + WRITER_RINGS, 1)
    took: list[float] = []
    with running("sleepers", "sleep_on", shm_dir, "rings", spin) as sleeper:
        for _ in range(3):
            assert sleeper.line() == "ready"
            time.sleep(0.1)
            start = time.monotonic_ns()
            os.kill(sleeper.pid, signal.SIGINT)
            end, why = sleeper.line().split(" ", 1)
            assert why == "interrupted"
            took.append((int(end) - start) / 1e6)
    assert min(took) < 100  # the best of three: the machine may be busy, the wait may not


@SPINS
def test_the_gil_is_free_while_somebody_waits(bell: Doorbell, spin: float) -> None:
    waiter = Waiter(bell)
    waiter.watch([marked(a_ring(), bell)])
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(waiter.wait(LOST_S, spin=spin)))
    thread.start()
    time.sleep(0.02)
    progress = sum(1 for _ in range(10_000))
    assert thread.is_alive()
    bell.ring()
    thread.join()
    assert (progress, results) == (10_000, [True])


def test_a_waiter_serves_one_thread_at_a_time(bell: Doorbell) -> None:
    waiter = Waiter(bell)
    waiter.watch([marked(a_ring(), bell)])
    thread = threading.Thread(target=waiter.wait, args=(LOST_S,))
    thread.start()
    eventually(lambda: get32(Mapping.open(bell.path), 4) == 1)
    with pytest.raises(BusyError):
        waiter.wait(1)
    with pytest.raises(BusyError):
        waiter.watch([])
    bell.ring()
    thread.join()


@SPINS
def test_a_ring_of_the_bell_before_the_wait_is_not_lost(bell: Doorbell, spin: float) -> None:
    waiter = Waiter(bell)
    waiter.watch([marked(a_ring(), bell)])
    bell.ring()
    bell.ring()
    assert woken(partial(waiter.wait, spin=spin))
    assert waiter.wait(0, spin=spin) is False


def thread_sleeps(thread: threading.Thread) -> bool:
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


def test_two_threads_that_sleep_on_one_bell_are_both_woken(bell: Doorbell) -> None:
    threads = []
    for _ in range(2):
        waiter = Waiter(bell)
        waiter.watch([marked(a_ring(), bell)])
        threads.append(threading.Thread(target=waiter.wait, args=(LOST_S,)))
        threads[-1].start()
    eventually(lambda: all(thread_sleeps(thread) for thread in threads))
    bell.ring()
    for thread in threads:
        thread.join(LOST_S / 2)
        assert not thread.is_alive()


def test_a_waiter_without_a_bell_looks_each_millisecond() -> None:
    ring = a_ring()
    waiter = Waiter()
    waiter.watch([ring])
    assert waiter.polls
    timer = threading.Timer(0.02, lambda: ring.write(1, b""))
    timer.start()
    assert woken(waiter.wait)
    timer.join()


def test_a_watch_that_fails_leaves_the_waiter_whole(bell: Doorbell) -> None:
    waiter = Waiter(bell)
    waiter.watch([marked(a_ring(), bell)])
    bad: list[tuple[Any, Any]] = [([], 5), (5, []), ([5], []), ([], [(5, 5)]), ([], [5])]
    for rings, full in bad:
        with pytest.raises(TypeError):
            waiter.watch(rings, full)
        assert waiter.wait(0) is False


def test_the_healer_wakes_the_reader_of_a_message_whose_writer_died_before_it_rang(bell: Doorbell) -> None:
    mapping = scratch(1024 + RING_TRAILER)
    assert Ring(mapping, serial=True).write(1, b"published, and then killed")
    next_writer = Ring(mapping, serial=True)
    next_writer.connect_reader(bell)
    waiter = Waiter(bell)
    waiter.watch([])  # asleep since before it was published
    timer = threading.Timer(0.02, next_writer.heal)
    timer.start()
    assert woken(waiter.wait)
    timer.join()


def test_an_event_loop_is_woken_through_the_bells_file(bell: Doorbell) -> None:
    ring = marked(a_ring(), bell)
    waiter = Waiter(bell)
    waiter.watch([ring])

    async def read(messages: int) -> list[tuple[int, bytes]]:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(bell.fileno(), woken.set)
        got: list[tuple[int, bytes]] = []
        try:
            while len(got) < messages:
                if not waiter.arm():
                    await asyncio.wait_for(woken.wait(), LOST_S)
                    woken.clear()
                    bell.silence()
                got += ring.drain()
        finally:
            loop.remove_reader(bell.fileno())
        return got

    def write() -> None:
        chance = random.Random(5)
        for number in range(messages):
            delay(chance)
            while not ring.write(1, number.to_bytes(8, "little")):
                time.sleep(0.001)

    messages = count(2_000, 50_000)
    thread = threading.Thread(target=write)
    thread.start()
    got = asyncio.run(read(messages))
    thread.join()
    assert [int.from_bytes(body, "little") for _, body in got] == list(range(messages))
