"""Publishers and subscribers that are killed (-9) under load, fifty subscribers, and peers that lie."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from echomesh.data.config import DataOptions
from echomesh.data.starting import find
from echomesh.sync import Mesh, connect
from tests.data import shm_workers
from tests.data.shm_support import gone, numbered, options_in
from tests.support.counts import count
from tests.support.processes import PATIENCE_S, kill, process, spawn, until

pytestmark = pytest.mark.fault

DATA = 2
HEAD = struct.Struct("<BBHIqq")
HELLO, MESSAGE, LARGE, GAP, SEGMENT, RETIRED, CREDIT, RELEASE = 1, 2, 3, 4, 5, 6, 16, 17
SIZES = [40, 3000, 60_000]


def nuklei(options: dict[str, Any]) -> list[str]:
    return [place.name for place in DataOptions(**options).meeting().places()]


@pytest.mark.timeout(1800)
def test_killed_publishers_and_subscribers_leave_nothing_and_the_living_lose_nothing(shm_dir: Path) -> None:
    options = options_in(shm_dir)
    chance = random.Random(1)
    with connect(**options) as mesh:
        subscriber, publisher = mesh.subscribe("living"), mesh.publisher("living")
        everything = mesh.subscribe("**", queue=64)
        publisher.matched(2, PATIENCE_S)
        sent = 0
        for _ in range(count(12, 500)):
            busy = [
                spawn(shm_workers.publish_for_ever, options, f"dying/{chance.randrange(3)}", SIZES),
                spawn(shm_workers.take_for_ever, options, "**"),
            ]
            end = time.monotonic() + 0.05 + chance.random() * 0.25
            while time.monotonic() < end:
                publisher.send(numbered(sent, SIZES[sent % 3]))
                message = subscriber.receive(PATIENCE_S)
                assert message.sequence == sent
                assert bytes(message) == numbered(sent, SIZES[sent % 3])
                sent += 1
                everything.take_many(64)
                del message
            chance.shuffle(busy)
            for each in busy:
                kill(each)
        until(lambda: everything.take_many(1000) == [] and len(everything.publishers) == 1)
        until(lambda: publisher.statistics.subscribers == 2)
        until(lambda: publisher.statistics.pool_slots == 0, "a slot of the pool is lost")
        until(lambda: len(nuklei(options)) == 1, "the dead left files")
        assert subscriber.statistics.gaps == 0
        assert publisher.statistics.dropped == {}
        participant = find(DataOptions(**options))
        assert participant is not None
    gone(options)
    until(lambda: not psutil.pid_exists(participant.pid))
    assert list(shm_dir.iterdir()) == []


def test_fifty_subscribers_get_every_message(shm_dir: Path) -> None:
    options = options_in(shm_dir)
    total, each = count(300, 3000), 10
    with connect(**options) as mesh:
        told = [shm_dir / f"told{number}" for number in range(50)]
        started = [
            spawn(_take_in_turn, options, [str(path) for path in told[at : at + each]], total)
            for at in range(0, 50, each)
        ]
        publisher = mesh.publisher("t")
        publisher.matched(50, PATIENCE_S)
        for number in range(total):
            publisher.send(numbered(number, SIZES[number % 3]))
        until(lambda: all(path.exists() for path in told), "not all of them told")
        assert [path.read_text() for path in told] == ["[]"] * 50
        until(lambda: publisher.statistics.pool_slots == 0)
        for path in told:
            path.unlink()
        for one in started:
            kill(one)
    gone(options)


def _take_in_turn(options: dict[str, Any], told: list[str], total: int) -> None:
    mesh = connect(**options)
    subscribers = [mesh.subscribe("t") for _ in told]
    wrong: list[list[int]] = [[] for _ in told]
    for number in range(total):
        for at, subscriber in enumerate(subscribers):
            message = subscriber.receive()
            if message.sequence != number or bytes(message) != numbered(number, SIZES[number % 3]):
                wrong[at].append(number)
            del message
    for path, found in zip(told, wrong, strict=True):
        shm_workers.tell(path, repr(found))
    time.sleep(PATIENCE_S)


def head(kind: int, sequence: int = 0, other: int = 0, *, prefix: int = 0, extra: int = 0) -> bytes:
    return HEAD.pack(kind, 0, prefix, extra, sequence, other)


def place(segment: int, slot: int, offset: int, length: int) -> bytes:
    return struct.pack("<qqq", segment << 32 | slot, offset, length)


LIES = {
    "too short": b"\x02",
    "unknown kind": head(99),
    "out of order": head(MESSAGE, 7),
    "before": head(MESSAGE, -1),
    "prefix beyond the end": head(MESSAGE, 1, prefix=100) + b"x",
    "second hello": head(HELLO, 1) + bytes(16) + b"t",
    "no descriptor": head(LARGE, 1),
    "descriptor cut off": head(LARGE, 1) + place(1, 0, 0, 10)[:-1],
    "segment that was not announced": head(LARGE, 1) + place(77, 0, 0, 10),
    "segment that is not there": head(SEGMENT, extra=4_000_000_000),
    "gap backwards": head(GAP, 1, 0),
    "gap without end": head(GAP, 1, 0x7FFFFFFFFFFFFFFF),
    "gap from elsewhere": head(GAP, 50, 60),
    "credit the wrong way": head(CREDIT, 1, 1000) + bytes(8),
}
DESCRIPTORS = {
    "offset beyond the segment": (1 << 40, 10),
    "offset before it": (-8, 10),
    "length beyond it": (0, 1 << 40),
    "negative length": (0, -1),
    "just beyond its end": (0, None),
    "sum that overflows": (0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFF0),
}


def lie(mesh: Mesh, payload: bytes, *, large: bool = False) -> None:
    """A publisher that says this after one true message; its subscriber gives it up, and goes on with others."""
    subscriber, liar = mesh.subscribe("t"), mesh.publisher("t")
    liar.matched(1, PATIENCE_S)
    liar.send(bytes(20_000) if large else b"true")
    subscriber.receive(PATIENCE_S)
    line = liar.targets[0]
    line.outlet.ring.write_frame(DATA, line.stream_id, payload)
    until(lambda: subscriber.publishers == [] and liar.statistics.subscribers == 0, "it was believed")
    assert subscriber.take() is None
    honest = mesh.publisher("t")
    honest.matched(1, PATIENCE_S)
    honest.send(b"still here")
    assert bytes(subscriber.receive(PATIENCE_S)) == b"still here"
    for end in (honest, liar, subscriber):
        end.close()


def test_a_publisher_that_lies_is_given_up(mesh: Mesh) -> None:
    for payload in LIES.values():
        lie(mesh, payload)


def test_descriptors_that_reach_beyond_their_segment_are_given_up(mesh: Mesh) -> None:
    for offset, length in DESCRIPTORS.values():
        number = mesh._joined().next_segment() + 1  # that of the liar's first segment
        size = (2 << 20) // 20_480 * 20_480
        length = size + 1 if length is None else length
        lie(mesh, head(LARGE, 1) + place(number, 0, offset, length), large=True)


def test_random_frames_harm_nobody(mesh: Mesh) -> None:
    chance = random.Random(3)
    subscriber = mesh.subscribe("t")
    for _ in range(count(20, 500)):
        liar = mesh.publisher("t")
        liar.matched(1, PATIENCE_S)
        line = liar.targets[0]
        for _ in range(20):
            kind = chance.choice([HELLO, MESSAGE, LARGE, GAP, SEGMENT, RETIRED, CREDIT, RELEASE, chance.randrange(256)])
            numbers = [chance.choice([0, 1, -1, chance.getrandbits(63), chance.randrange(100)]) for _ in range(2)]
            frame = head(kind, *numbers, prefix=chance.randrange(4), extra=chance.randrange(4))
            line.outlet.ring.write_frame(DATA, line.stream_id, frame + chance.randbytes(chance.randrange(40)))
        liar.close()
        subscriber.take_many(100)
    honest = mesh.publisher("honest")
    other = mesh.subscribe("honest")
    honest.matched(1, PATIENCE_S)
    honest.send(b"still here")
    assert bytes(other.receive(PATIENCE_S)) == b"still here"


@pytest.mark.parametrize(
    "payload",
    [
        head(CREDIT, 5, 100) + bytes(8),
        head(CREDIT, 0, 0) + bytes(8),
        head(CREDIT, 0, 1 << 62) + bytes(8),
        head(CREDIT, 0, 9000) + struct.pack("<q", 1 << 40),
        head(CREDIT, 0, 9000),
        head(RELEASE) + bytes(8),
        head(RELEASE) + struct.pack("<q", 1 << 32),
        head(99),
        b"",
    ],
    ids=[
        "taken too many",
        "less than before",
        "no bound",
        "too many bytes",
        "cut off",
        "release",
        "other",
        "kind",
        "empty",
    ],
)
def test_a_subscriber_that_lies_is_given_up(mesh: Mesh, payload: bytes) -> None:
    liar, honest = mesh.subscribe("t"), mesh.subscribe("t")
    publisher = mesh.publisher("t")
    publisher.matched(2, PATIENCE_S)
    arrival = next(iter(liar._arrivals.values()))
    arrival_outlet = mesh._joined().outlet(arrival.peer)
    arrival_outlet.ring.write_frame(DATA, arrival.stream_id, payload)
    until(lambda: publisher.statistics.subscribers == 1)
    publisher.send(b"x")
    assert bytes(honest.receive(PATIENCE_S)) == b"x"


def test_streams_go_on_while_the_participant_is_gone(shm_dir: Path) -> None:
    options = options_in(shm_dir)
    with connect(**options) as mesh, process(shm_workers.publish_for_ever, options, "t", [100]):
        subscriber = mesh.subscribe("t")
        first = subscriber.receive(PATIENCE_S).sequence
        participant = find(DataOptions(**options))
        assert participant is not None
        os.kill(participant.pid, 9)
        for number in range(first + 1, first + 20_000):
            assert subscriber.receive(PATIENCE_S).sequence == number
        assert subscriber.statistics.gaps == 0
        subscriber.close()
        # Who comes later finds the next participant, and its publisher.
        late = mesh.subscribe("t")
        assert late.receive(PATIENCE_S).sequence > number
        assert find(DataOptions(**options)) not in (None, participant)
    gone(options)
