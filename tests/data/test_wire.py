"""Beacons and control messages: what they look like, how they come in pieces, and what is none."""

from __future__ import annotations

import struct
from typing import Any, get_args

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as some

from echomesh.data import messages, wire
from echomesh.data.messages import (
    Credentials,
    Endpoint,
    Gone,
    Hello,
    InitLook,
    InitPub,
    InitSub,
    LookInit,
    LookInitFailed,
    Lost,
    Message,
    PartInit,
    PartInsertPublisher,
    PartInsertSubscriber,
    PartRemovePublisher,
    PartRemoveSubscriber,
    Path,
    Process,
    PubInit,
    PubInitFailed,
    PubInsertSubscriber,
    PubRemoveSubscriber,
    Reachable,
    Ready,
    Reason,
    Seen,
    SubInit,
    SubInitFailed,
    SubInsertPublisher,
    SubRemovePublisher,
    Wired,
)
from echomesh.errors import BadPacket

ONE, OTHER = bytes(range(16)), bytes(range(16, 32))
HELLO = Hello(4000, 1, "default", ONE, 1_700_000_000_000_000_000)
END = Endpoint(OTHER, "camera/front", 5000)
CREDENTIALS = Credentials(b"c" * 32, "default")
PROCESS = Process("echomesh-17", "/dev/shm/echomesh-1000/default", b"p" * 16, 17)

EXAMPLES: list[Message] = [
    HELLO,
    PartInit([END], [], HELLO),
    PartInsertPublisher(END),
    PartRemovePublisher(END),
    PartInsertSubscriber(END),
    PartRemoveSubscriber(Gone(OTHER)),
    PubInit([Reachable(OTHER, "10.0.0.7", 5000)], [ONE]),
    PubInitFailed(Reason.TOPIC, "it is empty"),
    PubInsertSubscriber(Reachable(OTHER, "127.0.0.1"), Path.SHARED_MEMORY, "echomesh-18", 1, 3, 2, 77),
    PubRemoveSubscriber(Gone(OTHER)),
    SubInit(),
    SubInitFailed(Reason.COOKIE),
    SubInsertPublisher(END, "127.0.0.1", Path.SHARED_MEMORY, "echomesh-17", 77),
    SubRemovePublisher(Gone(OTHER)),
    InitPub("camera/front", OTHER, CREDENTIALS, PROCESS, {"history": 3}, [Wired(ONE, "n", 1, 3, 2, 77)]),
    InitSub(END, CREDENTIALS, PROCESS),
    Ready(77),
    Lost(77),
    InitLook(CREDENTIALS),
    LookInit([Seen(HELLO, "10.0.0.7", 120, True, [END], [])], {"restarts seen": 1}),
    LookInitFailed(Reason.DOMAIN, "its domain is 'lab'"),
]


def tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


def test_there_is_an_example_of_every_message() -> None:
    assert {type(example) for example in EXAMPLES} == set(get_args(Message))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: tag(type(example)))
def test_a_message_comes_back_as_it_was(example: Message) -> None:
    taken: wire.Messages[Any] = wire.Messages(Message, wire.LINK_BYTES)
    assert list(taken.feed(wire.encode(example))) == [example]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Hello, ["port"]),
        (PartInit, ["publishers", "subscribers"]),
        (PubInit, ["subscribers"]),
        (PubInitFailed, ["reason"]),
        (SubInitFailed, ["reason"]),
        (InitPub, ["topic"]),
        (InitSub, ["subscriber"]),
    ],
)
def test_the_fields_of_the_protocol_come_first_and_in_its_order(kind: Any, fields: list[str]) -> None:
    assert list(kind.__struct_fields__[: len(fields)]) == fields


def test_a_message_is_a_length_and_an_array_that_begins_with_its_name() -> None:
    data = wire.encode(PartInsertSubscriber(END))
    assert struct.unpack(">I", data[:4]) == (len(data) - 4,)
    assert msgpack.unpackb(data[4:]) == [
        "PartToPart.InsertSubscriber",
        {"id": OTHER, "topic": "camera/front", "port": 5000},
    ]


def test_fields_that_are_not_known_yet_are_left_alone() -> None:
    newer = msgpack.packb(["Beacon.Hello", 4000, 1, "default", ONE, 5, "something new"])
    assert wire.decode_beacon(newer) == Hello(4000, 1, "default", ONE, 5)
    newer = msgpack.packb(["PartToPart.RemoveSubscriber", {"id": ONE, "why": "no idea"}, 7])
    (seen,) = wire.from_participant().feed(struct.pack(">I", len(newer)) + newer)
    assert seen == PartRemoveSubscriber(Gone(ONE))


@given(some.lists(some.integers(1, 50), min_size=1))
def test_messages_come_in_pieces_of_any_size(sizes: list[int]) -> None:
    data = b"".join(map(wire.encode, EXAMPLES))
    taken: wire.Messages[Any] = wire.Messages(Message, wire.LINK_BYTES)
    seen: list[Message] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        seen += taken.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert seen == EXAMPLES


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        ["Beacon.Hello"],
        ["Beacon.Hello", -1, 1, "d", ONE, 5],
        ["Beacon.Hello", 65536, 1, "d", ONE, 5],
        ["Beacon.Hello", 4000, 1, "d", ONE[:15], 5],
        ["Beacon.Hello", 4000, 1, "d" * 256, ONE, 5],
        ["Beacon.Hello", 4000, 1, "d", ONE, -5],
        ["Beacon.Hello", 4000, 1, "d", ONE, 1 << 63],
        ["PartToPart.Init", [], [], []],
    ],
)
def test_what_is_no_beacon_is_a_bad_packet(fields: Any) -> None:
    with pytest.raises(BadPacket):
        wire.decode_beacon(msgpack.packb(fields))


def test_a_length_over_the_limit_is_refused_before_anything_is_kept_for_it() -> None:
    for taken in (wire.from_local(), wire.from_participant()):
        with pytest.raises(BadPacket, match="over the limit"):
            list(taken.feed(struct.pack(">I", 1 << 31)))


def test_what_came_before_a_bad_message_is_not_lost() -> None:
    taken = wire.from_local()
    came = taken.feed(wire.encode(Ready(1)) + struct.pack(">I", 1) + b"\xc1")
    assert next(came) == Ready(1)
    with pytest.raises(BadPacket):
        next(came)


def test_a_message_of_another_talk_is_refused() -> None:
    with pytest.raises(BadPacket):
        list(wire.from_local().feed(wire.encode(PartInit([], [], HELLO))))


def test_the_longest_beacon_fits_the_limit() -> None:
    longest = Hello(65535, messages.VERSION, "d" * 255, ONE, (1 << 63) - 1)
    assert wire.decode_beacon(wire.encode_beacon(longest)) == longest
