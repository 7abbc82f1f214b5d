"""The short way of publishes takes nothing that the long way would refuse, and understands it the same."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from echomesh.errors import LogError
from echomesh.events import Event
from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Publish
from echomesh.mesh.codes import Command
from echomesh.native.mesh_event import learn, sound
from echomesh.native.mesh_publish import Lane, Publishes
from tests.support.counts import count

EVENT = Event(type="order.created", source="/shop", id="7", data=b"x" * 20, time=datetime(2026, 1, 2, 3, 4, 5, 6, UTC))
TEXT = Event(type="order.created", source="/shop", id="8", data="text", subject="s", time=None)


class Done:
    """An append that is on disk at once."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def done(self) -> bool:
        return True

    def result(self) -> int:
        return self.offset


class Wire:
    """A connection that keeps what is written, and a log that keeps what is appended."""

    def __init__(self, **more: Any) -> None:
        self.appended: list[tuple[str, bytes, str]] = []
        self.answered: list[tuple[str, int]] = []
        self.queue = Publishes()
        self.in_flight: dict[str, int] = {}
        self.may = {"orders": "orders", "/orders": "orders"}
        self.lane = Lane(self, self.queue, self.append, "TST", "shop", "s1", self.may, self.in_flight, **more)

    def append(self, topic: str, event: bytes, *, environment: str) -> Done:
        self.appended.append((topic, event, environment))
        return Done(len(self.appended) - 1)

    def settle(self) -> list[tuple[str, str]]:
        def answer(pending: Done, connection: object, seq: str) -> None:
            self.in_flight.pop(seq)
            self.answered.append((seq, pending.result()))

        return self.queue.settle(answer)


def request(event: bytes = EVENT.encode(), seq: str = "1", **more: Any) -> bytes:
    body = Publish(**{"client_id": "shop", "session_id": "s1", "topic": "orders", "cloud_event": Raw(event), **more})
    return protocol.encode(Command.PUBLISH_MESSAGE_REQUEST, seq, body)


def test_an_event_passes_once_its_source_and_type_are_known() -> None:
    unknown = Event(type="never.seen.before", source="/nowhere/else", id="1")
    assert not sound(unknown.encode())
    learn(unknown.encode())
    assert sound(unknown.encode())
    assert not sound(unknown.encode() + b"x")


@given(st.integers(0, 2**32))
@settings(max_examples=count(300, 20_000), deadline=None)
def test_what_passes_is_an_event(seed: int) -> None:
    chance = random.Random(seed)
    for event in (EVENT, TEXT):
        learn(event.encode())
    changed = bytearray(chance.choice((EVENT, TEXT)).encode())
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        if chance.random() < 0.2:
            del changed[at]
        elif chance.random() < 0.2:
            changed.insert(at, chance.randrange(256))
        else:
            changed[at] = chance.randrange(256)
    if sound(bytes(changed)):
        Event.decode(bytes(changed))


@given(st.integers(0, 2**32))
@settings(max_examples=count(300, 20_000), deadline=None)
def test_what_a_lane_takes_means_the_same_the_long_way(seed: int) -> None:
    chance = random.Random(seed)
    learn(EVENT.encode())
    changed = bytearray(request(seq=chance.choice(("1", "é", "x" * 40))))
    for _ in range(chance.randrange(3)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    wire = Wire()
    if wire.lane.take(bytes(changed), 0.0):
        message = protocol.decode(bytes(changed))
        body: Publish = protocol.body_of(message)
        assert (body.client_id, body.session_id, body.urn) == ("shop", "s1", None)
        assert wire.appended == [(wire.may[body.topic], bytes(body.cloud_event), "TST")]
        assert list(wire.in_flight) == [message.seq]
        Event.decode(bytes(body.cloud_event))
    else:
        assert not wire.appended
        assert not wire.in_flight


def test_what_is_unusual_is_left_to_the_long_way() -> None:
    learn(EVENT.encode())
    wire = Wire()
    assert wire.lane.take(request(), 0.0)
    for payload in (
        request(),  # this seq is in flight
        request(seq=""),
        request(seq="2", client_id="other"),
        request(seq="2", session_id="other"),
        request(seq="2", topic="unknown"),
        request(seq="2", urn="far", port=1),
        request(seq="2", hops=1),
        request(Event(type="order.created", source="/shop", extensions={"traced": True}).encode(), seq="2"),
        request(protocol.encode_value({"id": "1"}), seq="2"),
        protocol.encode(Command.HEARTBEAT_REQUEST, "2"),
        b"",
        request(seq="2")[:-1],
        request(seq="2") + b"\xc0",
    ):
        assert not wire.lane.take(payload, 0.0)
    assert wire.settle() == [("TST", "orders")]
    assert wire.answered == [("1", 0)]
    assert wire.lane.in_flight_bytes == 0


def test_frames_are_taken_up_to_one_that_is_unusual_or_not_whole() -> None:
    learn(EVENT.encode())
    wire = Wire()
    two = framed(request(seq="1")) + framed(request(seq="2"))
    assert wire.lane.take_frames(two, 0, 0.0, 1 << 30) == len(two)
    assert wire.lane.take_frames(two, len(two), 0.0, 1 << 30) == len(two)
    third = framed(request(seq="3"))
    heartbeat = framed(protocol.encode(Command.HEARTBEAT_REQUEST, "4"))
    for number, rest in enumerate((third[:3], third[:-1], heartbeat, b"\xff" * 8, two)):
        data = b"before" + framed(request(seq=f"n{number}")) + rest
        assert wire.lane.take_frames(data, 6, 0.0, 1 << 30) == len(data) - len(rest)
    assert len(wire.appended) == 7
    with pytest.raises(IndexError):
        wire.lane.take_frames(two, len(two) + 1, 0.0, 1 << 30)


def test_frames_are_taken_up_to_so_many_bytes_and_the_rest_of_the_last() -> None:
    learn(EVENT.encode())
    wire = Wire()
    frames = [framed(request(seq=str(number))) for number in range(4)]
    data, one = b"".join(frames), len(frames[0])
    assert wire.lane.take_frames(data, 0, 0.0, 1) == one
    assert wire.lane.take_frames(data, one, 0.0, one + 1) == 3 * one
    assert wire.lane.take_frames(data, 3 * one, 0.0, 5 * one) == 4 * one
    assert list(wire.in_flight) == ["0", "1", "2", "3"]


def test_a_frame_that_the_log_refuses_is_left_to_the_long_way() -> None:
    class Full(Wire):
        def append(self, topic: str, event: bytes, *, environment: str) -> Done:
            if self.appended:
                raise LogError("the disk is full")
            return super().append(topic, event, environment=environment)

    learn(EVENT.encode())
    wire = Full()
    first = framed(request(seq="1"))
    assert wire.lane.take_frames(first + framed(request(seq="2")), 0, 0.0, 1 << 30) == len(first)
    assert list(wire.in_flight) == ["1"]


def test_a_limit_is_kept() -> None:
    class Limit:
        def take(self, now: float) -> float:
            return 0.0 if now < 1 else 0.5

    learn(EVENT.encode())
    wire = Wire(rate=Limit())
    assert wire.lane.take(request(), 0.0)
    assert not wire.lane.take(request(seq="2"), 1.0)


def test_answers_of_the_log_become_frames(shm_dir: Any) -> None:
    from echomesh.log import AsyncTopicLog

    frames: list[bytes] = []

    class Connection:
        def write(self, frame: bytes) -> None:
            frames.append(frame)

    async def test() -> None:
        learn(EVENT.encode())
        async with AsyncTopicLog(shm_dir) as log:
            queue = Publishes()
            in_flight: dict[str, int] = {}
            lane = Lane(Connection(), queue, log.append, "TST", "shop", "s1", {"orders": "orders"}, in_flight)
            seqs = ["1", "é", "x" * 40, *(f"n{i}" for i in range(300))]
            for i, seq in enumerate(seqs):
                event = Event(type="order.created", source="/shop", id=f"{i}", data=b"x")
                assert lane.take(request(event.encode(), seq=seq), 0.0)
            assert not queue.answerable
            await log.when_idle()
            assert queue.answerable
            assert queue.settle(lambda *given: None) == [("TST", "orders")]
            assert (len(queue), in_flight, lane.in_flight_bytes) == (0, {}, 0)
        assert len(frames) == 1
        at, answers = 0, []
        while at < len(frames[0]):
            size = int.from_bytes(frames[0][at : at + 4], "big")
            message = protocol.decode(frames[0][at + 4 : at + 4 + size])
            answers.append((message.command, message.status, message.seq, protocol.body_of(message).offset))
            at += 4 + size
        assert answers == [(15, 0, seq, i) for i, seq in enumerate(seqs)]

    asyncio.run(test())


@pytest.mark.parametrize("seed", range(5))
def test_twins_among_requests_that_are_read_together_are_stored_once(shm_dir: Any, seed: int) -> None:
    from echomesh.log import AsyncTopicLog

    chance, frames = random.Random(seed), list[bytes]()

    class Connection:
        def write(self, frame: bytes) -> None:
            frames.append(frame)

    async def test() -> None:
        learn(EVENT.encode())
        topics = {"orders": "orders", "bills": "bills"}
        first: dict[tuple[str, int], int] = {}
        ends = dict.fromkeys(topics, 0)
        sent, expected = b"", {}
        for number in range(200):
            topic, id = chance.choice(list(topics)), chance.randrange(60)
            event = Event(type="order.created", source="/shop", id=f"{id}", data=b"x" * chance.randrange(50))
            sent += framed(request(event.encode(), seq=f"{number}", topic=topic))
            if (topic, id) not in first:
                first[topic, id] = ends[topic]
                ends[topic] += 1
            expected[f"{number}"] = first[topic, id]
        async with AsyncTopicLog(shm_dir) as log:
            queue = Publishes()
            lane = Lane(Connection(), queue, log.append, "TST", "shop", "s1", topics, {})
            at = 0
            while at < len(sent):
                at = lane.take_frames(sent, at, 0.0, chance.randrange(1, 5000))
            await log.when_idle()
            queue.settle(lambda *given: None)
        at, answers, whole = 0, {}, b"".join(frames)
        while at < len(whole):
            size = int.from_bytes(whole[at : at + 4], "big")
            message = protocol.decode(whole[at + 4 : at + 4 + size])
            answers[message.seq] = protocol.body_of(message).offset
            at += 4 + size
        assert answers == expected

    asyncio.run(test())


@given(st.binary(max_size=200))
@settings(max_examples=count(200, 20_000), deadline=None)
def test_bytes_of_any_kind_do_no_harm(data: bytes) -> None:
    wire = Wire()
    for payload in (data, request()[:17] + data):
        if wire.lane.take(payload, 0.0):
            protocol.body_of(protocol.decode(payload))
    if sound(data):
        Event.decode(data)
