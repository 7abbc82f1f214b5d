"""The broadcast buffer: against a model, between processes, and lapped."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echomesh.errors import Lapped, MessageTooLarge, RingDamaged, UsageError
from echomesh.native.broadcast import TRAILER_LENGTH, Receiver, Transmitter
from echomesh.native.mapping import Mapping
from tests.native.support.memory import (
    BROADCAST_TAIL,
    BROADCAST_TRAILER,
    INTENT,
    LATEST,
    put32,
    put64,
    record,
    scratch,
)
from tests.native.support.processes import running
from tests.native.support.ring_model import PADDING, align
from tests.native.support.sleepers import delay, woken
from tests.support.counts import count


def start_at(mapping: Mapping, capacity: int, position: int) -> None:
    for at in (INTENT, BROADCAST_TAIL, LATEST):
        put64(mapping, capacity + at, position)


class BroadcastAgainstModel(RuleBasedStateMachine):
    """One transmitter, receivers that join at any time and read or fall behind as they like."""

    @initialize(power=st.integers(6, 12), start=st.integers(0, 2**30))
    def begin(self, power: int, start: int) -> None:
        self.capacity = 1 << power
        self.mapping = scratch(self.capacity + BROADCAST_TRAILER)
        self.tail = self.latest = start * 8
        start_at(self.mapping, self.capacity, self.tail)
        self.image = bytearray(self.capacity)
        self.transmitter = Transmitter(self.mapping)
        self.records: dict[int, tuple[int, int, bytes]] = {}  # position: bytes, type, body
        self.receivers: list[list[Any]] = []  # receiver, its cursor, how often it was lapped
        self.sent = 0

    @rule()
    def join(self) -> None:
        if len(self.receivers) < 4:
            self.receivers.append([Receiver(self.mapping), self.tail, 0])

    @rule(sizes=st.lists(st.integers(0, 512), min_size=1, max_size=12), kind=st.integers(0, 2**31 - 1))
    def transmit(self, sizes: list[int], kind: int) -> None:
        for size in sizes:
            self.sent += 1
            body = bytes([self.sent % 255 + 1]) * (size % (self.capacity // 8 + 1))
            self.transmitter.transmit(kind, body)
            need, at = align(len(body) + 8), self.tail % self.capacity
            if self.capacity - at < need:
                self.put(self.tail, self.capacity - at, PADDING, b"")
                self.tail += self.capacity - at
            self.put(self.tail, len(body) + 8, kind, body)
            self.latest = self.tail
            self.tail += need

    def put(self, position: int, length: int, kind: int, body: bytes) -> None:
        at = position % self.capacity
        self.records[position] = (length, kind, body)
        self.image[at : at + 8 + len(body)] = record(length, kind) + body

    @precondition(lambda self: self.receivers)
    @rule(which=st.integers(0, 3), limit=st.integers(1, 30))
    def receive(self, which: int, limit: int) -> None:
        entry = self.receivers[which % len(self.receivers)]
        for _ in range(limit):
            cursor = entry[1]
            if cursor < self.tail and cursor + self.capacity <= self.tail:
                with pytest.raises(Lapped) as caught:
                    entry[0].receive()
                assert caught.value.lost_bytes == self.latest - cursor
                entry[1:] = self.latest, entry[2] + 1
                continue
            expected = None
            while expected is None and cursor < self.tail:
                length, kind, body = self.records[cursor]
                cursor += align(length)
                expected = None if kind == PADDING else (kind, body)
            assert entry[0].receive() == expected
            entry[1] = cursor

    @invariant()
    def positions_and_bytes_are_exact(self) -> None:
        sender = self.transmitter
        assert (sender.tail_intent, sender.tail, sender.latest) == (self.tail, self.tail, self.latest)
        assert bytes(memoryview(self.mapping)[: self.capacity]) == self.image
        for receiver, _, lapped in self.receivers:
            assert receiver.lapped == lapped


TestBroadcastAgainstModel = BroadcastAgainstModel.TestCase


def a_buffer(capacity: int = 1024) -> Mapping:
    return scratch(capacity + BROADCAST_TRAILER)


def test_a_receiver_hears_nothing_of_what_was_before_it() -> None:
    mapping = a_buffer()
    transmitter = Transmitter(mapping)
    transmitter.transmit(1, b"an answer to somebody else")
    receiver = Receiver(mapping)
    assert receiver.receive() is None
    transmitter.transmit(0, bytearray(b"mine"))
    assert receiver.receive() == (0, b"mine")


def test_what_can_not_be_sent_is_refused_and_changes_nothing() -> None:
    mapping = a_buffer()
    transmitter = Transmitter(mapping)
    assert transmitter.max_message == 128
    with pytest.raises(MessageTooLarge) as caught:
        transmitter.transmit(1, bytes(129))
    assert (caught.value.size, caught.value.limit) == (129, 128)
    with pytest.raises(UsageError):
        transmitter.transmit(-1, b"")
    assert bytes(mapping) == bytes(1024 + BROADCAST_TRAILER)
    assert TRAILER_LENGTH == BROADCAST_TRAILER


def test_a_message_that_is_overwritten_while_it_is_read_is_never_handed_out() -> None:
    # As if the transmitter had begun to come around: the intent says so, the bytes still look fine.
    mapping = a_buffer(256)
    transmitter, receiver = Transmitter(mapping), Receiver(mapping)
    transmitter.transmit(1, b"about to go")
    put64(mapping, 256 + INTENT, 256)
    with pytest.raises(Lapped):
        receiver.receive()
    assert receiver.lapped == 1


@pytest.mark.parametrize("length", [-1, 0, 7, 249, 2**31 - 1, -(2**31)])
def test_a_length_that_can_not_be_true_is_damage(length: int) -> None:
    mapping = a_buffer(256)
    transmitter, receiver = Transmitter(mapping), Receiver(mapping)
    transmitter.transmit(1, b"12345678")
    transmitter.transmit(1, b"12345678")
    assert receiver.receive() is not None
    put32(mapping, 16, length)
    with pytest.raises(RingDamaged):
        receiver.receive()


@pytest.mark.timeout(30)
def test_padding_without_end_is_damage_and_no_endless_loop() -> None:
    mapping = a_buffer(64)
    receiver = Receiver(mapping)
    memoryview(mapping)[:8] = record(64, PADDING)
    put64(mapping, 64 + BROADCAST_TAIL, 2**62)
    with pytest.raises(RingDamaged):
        receiver.receive()


@pytest.mark.parametrize("tail", [-8, 4, -(2**63)])
def test_a_transmitter_does_not_send_over_a_tail_that_can_not_be_true(tail: int) -> None:
    mapping = a_buffer()
    put64(mapping, 1024 + BROADCAST_TAIL, tail)
    with pytest.raises(RingDamaged):
        Transmitter(mapping).transmit(1, b"")


@pytest.mark.parametrize(("offset", "capacity"), [(0, 100), (0, 32), (4, 64), (-8, 64), (960, 64), (2**63 - 8, 64)])
def test_a_buffer_that_its_file_can_not_hold_is_damage(offset: int, capacity: int) -> None:
    for end in (Receiver, Transmitter):
        with pytest.raises(RingDamaged):
            end(scratch(1024), offset, capacity)


def test_a_buffer_that_is_mapped_for_reading_only_can_be_received_from(shm_dir: Path) -> None:
    transmitter = Transmitter(Mapping.create(shm_dir / "out", 1024 + BROADCAST_TRAILER), wakes=True)
    mapping = Mapping.open(shm_dir / "out", writable=False)
    with pytest.raises(UsageError):
        Transmitter(mapping)
    receiver = Receiver(mapping)
    timer = threading.Timer(0.02, lambda: transmitter.transmit(1, b"seen"))
    timer.start()
    assert woken(receiver.wait)
    timer.join()
    assert receiver.receive() == (1, b"seen")


@pytest.mark.parametrize("wakes", [True, False])
def test_a_receiver_that_waits_is_woken_or_looks_each_millisecond(wakes: bool) -> None:
    mapping = a_buffer()
    transmitter, receiver = Transmitter(mapping, wakes=wakes), Receiver(mapping)
    start = time.monotonic()
    assert receiver.wait(0.02) is False
    assert time.monotonic() - start >= 0.0195
    timer = threading.Timer(0.02, lambda: transmitter.transmit(1, b""))
    timer.start()
    assert woken(receiver.wait)
    timer.join()


@pytest.mark.timeout(600)
def test_no_wake_up_of_a_receiver_is_lost(shm_dir: Path) -> None:
    rounds = count(10_000, 100_000)
    out, back = (Mapping.create(shm_dir / name, 1024 + BROADCAST_TRAILER) for name in ("out", "back"))
    transmitter, receiver = Transmitter(out, wakes=True), Receiver(back)
    chance = random.Random(6)
    with running("sleepers", "listen", shm_dir, rounds) as other:
        assert other.line() == "ready"
        for number in range(rounds):
            body = number.to_bytes(8, "little")
            transmitter.transmit(1, body)
            delay(chance)
            while (got := receiver.receive()) is None:
                assert woken(receiver.wait), f"lost wake-up in round {number}"
            assert got == (1, body)
        assert other.end() == 0


def test_ctrl_c_ends_a_receivers_wait_within_100_ms(shm_dir: Path) -> None:
    Transmitter(Mapping.create(shm_dir / "out", 1024 + BROADCAST_TRAILER), wakes=True)
    took: list[float] = []
    with running("sleepers", "listen_for_interrupts", shm_dir) as other:
        for _ in range(3):
            assert other.line() == "ready"
            time.sleep(0.1)
            start = time.monotonic_ns()
            os.kill(other.pid, signal.SIGINT)
            took.append((int(other.line().split()[0]) - start) / 1e6)
    assert min(took) < 100


@pytest.mark.parametrize("capacity", [1024, 1 << 16])
@pytest.mark.timeout(600)
def test_receivers_in_other_processes_get_whole_messages_in_order_or_are_told(shm_dir: Path, capacity: int) -> None:
    messages = count(10_000, 300_000)
    Mapping.create(shm_dir / "out", capacity + BROADCAST_TRAILER)
    with contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(running("broadcasters", "receive", shm_dir / "out")) for _ in range(2)]
        assert [receiver.line() for receiver in receivers] == ["ready"] * 2
        sender = stack.enter_context(running("broadcasters", "transmit", shm_dir / "out", messages))
        sender.say()
        for receiver in receivers:
            got, lapped = map(int, receiver.line().split())
            assert 0 < got <= messages
            assert lapped or got == messages
            assert receiver.end() == 0
        assert sender.end() == 0
