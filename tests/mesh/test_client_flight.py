"""Publishes in flight, as compiled: the same answers are understood as by the slow and thorough way, and no others."""

from __future__ import annotations

import random
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import BadMessage, BadTopic, FrameTooLarge, SessionBusy
from echomesh.frames import Splitter, framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Published, Server
from echomesh.mesh.codes import Command
from echomesh.native.mesh_client import SEQ_DIGITS, Flight
from echomesh.topics import parse_topic
from tests.support.counts import count


def body(topic: str, server: Server | None) -> bytes:
    """A body whose last entry is the event."""
    entries = {"Topic": topic} if server is None else {"Topic": topic, "Urn": server.urn}
    packed: bytes = msgpack.packb(entries)
    return bytes((packed[0] + 1,)) + packed[1:] + b"\xaaCloudEvent"


def flight(publishes: int = 0, most: int = 1 << 20) -> Flight:
    made = Flight(body, parse_topic, most)
    made.resume()
    for number in range(publishes):
        made.publish(f"token-{number}", "t", b"\x80")
    return made


def answer(seq: str, offset: int) -> bytes:
    return framed(protocol.encode(Command.PUBLISH_MESSAGE_RESPONSE, seq, Published(offset)))


def seq(number: int) -> str:
    return f"{number:0{SEQ_DIGITS}x}"


def test_frames_of_publishes_are_whole_messages_with_numbers_in_order() -> None:
    made = flight()
    made.publish("a", "orders", b"\x81\xa2id\xa11")
    made.write(b"between")
    made.publish("b", "orders", b"\x80", Server("far", 1))
    out = made.take()
    first, _, second = out.partition(b"between")
    for number, data in enumerate((first, second)):
        (payload,) = Splitter().feed(data)
        message = protocol.decode(payload)
        assert (message.command, message.seq) == (Command.PUBLISH_MESSAGE_REQUEST, seq(number))
    assert msgpack.unpackb(first[4:])[7] == {"Topic": "orders", "CloudEvent": {"id": "1"}}
    assert msgpack.unpackb(second[4:])[7] == {"Topic": "orders", "Urn": "far", "CloudEvent": {}}
    assert made.take() == b""


def test_while_it_is_down_publishes_are_kept_and_sent_later_in_order() -> None:
    made = Flight(body, parse_topic, 100)
    for number in range(5):
        made.publish(number, "t", b"\x80")
    assert made.take() == b""
    assert made.forget(seq(2)) == (2,)
    assert made.resume() == []
    sent = [protocol.decode(payload).seq for payload in Splitter().feed(made.take())]
    assert sent == [seq(number) for number in (0, 1, 3, 4)]
    made.most = 0
    assert made.resume() == [(seq(number), 1) for number in (0, 1, 3, 4)]


def test_the_window_and_the_size_of_an_event_are_bounded() -> None:
    made = flight(most=10)
    made.window_events, made.window_bytes = 3, 15
    with pytest.raises(FrameTooLarge):
        made.publish("x", "t", b"x" * 11)
    made.publish("a", "t", b"x" * 10)
    made.publish("b", "t", b"x" * 10)
    with pytest.raises(SessionBusy) as raised:
        made.publish("c", "t", b"x")
    assert (raised.value.events, raised.value.waiting_bytes) == (2, 20)
    made.window_bytes = 100
    made.publish("c", "t", b"x")
    with pytest.raises(SessionBusy):
        made.publish("d", "t", b"x")
    made.forget(seq(0))
    made.publish("d", "t", b"x")
    assert (made.publishing, made.in_flight_bytes) == (3, 12)


@pytest.mark.parametrize("wrong", [("t", "text"), ("t", None), (None, b"x"), (b"t", b"x"), ("t", bytearray(b"x"))])
def test_only_text_and_bytes_are_published(wrong: tuple[Any, Any]) -> None:
    made = flight()
    with pytest.raises(TypeError):
        made.publish("token", *wrong)
    assert made.publishing == 0


@pytest.mark.parametrize("topic", ["", "a//b", "a/*", "x" * 256, "\udc80"])
def test_what_is_no_topic_is_refused_before_anything_is_kept(topic: str) -> None:
    for made in (flight(), Flight(body, parse_topic, 100)):
        with pytest.raises(BadTopic):
            made.publish("token", topic, b"x")
        assert (made.publishing, made.take()) == (0, b"")


def test_a_body_that_can_not_be_made_leaves_nothing_behind() -> None:
    def broken(topic: str, server: Any) -> bytes:
        raise RuntimeError(topic)

    made = Flight(broken, parse_topic, 100)
    made.resume()
    with pytest.raises(RuntimeError):
        made.publish("token", "t", b"x")
    assert (made.publishing, made.take(), made.seqs()) == (0, b"", [])


@given(offsets=st.lists(st.integers(0, (1 << 63) - 1) | st.integers(0, 300), max_size=30), data=st.data())
def test_answers_in_any_order_and_form_find_their_tokens(offsets: list[int], data: st.DataObject) -> None:
    made = flight(len(offsets))
    order = data.draw(st.permutations(range(len(offsets))))
    received = b"".join(answer(seq(number), offsets[number]) for number in order)
    tokens: list[Any] = []
    found: list[int] = []
    assert made.answers(received, 0, tokens, found) == len(received)
    assert tokens == [f"token-{number}" for number in order]
    assert found == [offsets[number] for number in order]
    assert made.publishing == 0


def test_it_stops_at_what_is_no_answer_or_not_whole_and_goes_on_behind_it() -> None:
    made = flight(4)
    good = [answer(seq(number), number) for number in range(4)]
    other = framed(protocol.encode(Command.HEARTBEAT_RESPONSE, "x"))
    data = good[0] + other + good[1] + good[2] + good[3][:-1]
    tokens: list[Any] = []
    offsets: list[int] = []
    at = made.answers(data, 0, tokens, offsets)
    assert (at, tokens) == (len(good[0]), ["token-0"])
    at = made.answers(data, at + len(other), tokens, offsets)
    assert data[at:] == good[3][:-1]
    assert tokens == ["token-0", "token-1", "token-2"]
    with pytest.raises(IndexError):
        made.answers(data, len(data) + 1, tokens, offsets)
    with pytest.raises(IndexError):
        made.answers(data, -1, tokens, offsets)


def test_a_second_answer_and_one_to_nobody_are_passed_over() -> None:
    made = flight(1)
    tokens: list[Any] = []
    data = answer(seq(0), 7) * 2 + answer(seq(99), 1)
    assert made.answers(data, 0, tokens, []) == len(data)
    assert tokens == ["token-0"]
    assert made.forget(seq(0)) is None
    assert made.forget("x") is None
    assert made.forget("\udc80" * SEQ_DIGITS) is None


def slowly(payload: bytes) -> tuple[str, int] | None:
    """What the thorough way reads from an answer to a publish."""
    try:
        message = protocol.decode(payload)
        offset = protocol.body_of(message).offset if message.command == 15 and message.status == 0 else None
    except BadMessage:
        return None
    return None if offset is None else (message.seq, offset)


def test_nothing_is_understood_here_that_the_thorough_way_understands_otherwise() -> None:
    rng = random.Random(11)
    taken = 0
    for _ in range(count(20_000, 1_000_000)):
        payload = bytearray(
            answer(seq(rng.randrange(4)), rng.choice((0, 5, 127, 128, 65536, 1 << 40, (1 << 63) - 1)))[4:]
        )
        for _ in range(rng.choice((0, 1, 1, 2))):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        if rng.random() < 0.1:
            del payload[rng.randrange(len(payload)) :]
        data = framed(bytes(payload))
        made = flight(4)
        tokens: list[Any] = []
        offsets: list[int] = []
        at = made.answers(data, 0, tokens, offsets)
        assert at in (0, len(data))
        if at:
            understood = slowly(bytes(payload))
            assert understood is not None
            number = int(understood[0], 16)
            if number < 4:
                taken += 1
                assert (tokens, offsets) == ([f"token-{number}"], [understood[1]])
            else:
                assert tokens == []
    assert taken > 100


def test_any_bytes_are_left_alone() -> None:
    rng = random.Random(3)
    made = flight(3)
    for _ in range(count(5_000, 200_000)):
        data = rng.randbytes(rng.randrange(120))
        assert made.answers(data, 0, [], []) == 0
    assert made.publishing == 3
