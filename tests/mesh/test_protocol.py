"""Messages and frames: every body comes back as it went, and no bytes do harm."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from echomesh.errors import BadMessage
from echomesh.mesh import bodies, log_bodies, protocol
from echomesh.mesh.bodies import Abort, Body, Deliver, Publish, Server, Stage, Subscribe
from echomesh.mesh.codes import DESCRIPTIONS, Command, ErrorCode, Status
from echomesh.mesh.protocol import BODIES, answer_to, body_of, decode, encode, parts
from echomesh.native.log_record import encode as encode_record
from echomesh.native.log_record import scan
from echomesh.native.mesh_frames import consecutive, events_frame, runs
from tests.mesh.support import an_event
from tests.support.counts import FULL, count

EVENTS = st.integers(0, 99).map(lambda number: Raw(an_event(number).encode()))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=30),
    int: INT64,
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=30),
    memoryview: st.binary(max_size=30).map(memoryview),
    Raw: EVENTS,
    type(None): st.none(),
    Any: st.none() | st.text(max_size=10) | INT64,
}


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of the type of a property."""
    if hint in SIMPLE:
        return SIMPLE[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of(*map(of_type, args))
    if origin is list:
        return st.lists(of_type(args[0]), max_size=4)
    if origin is tuple:
        return st.tuples(*map(of_type, args))
    assert issubclass(hint, msgspec.Struct), hint
    return of_struct(hint)


def of_struct(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: of_type(hints[name]) for name in kind.__struct_fields__})


def plain(value: Any) -> Any:
    """A body without objects that are equal only to themselves."""
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, [plain(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, Raw | memoryview):
        return bytes(value)
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


COMMANDS = sorted(Command)
SOME = 300 if FULL else 6  # for each of the commands
WITH_BODY = [command for command in COMMANDS if BODIES[command] is not None]


def test_every_command_and_every_body_is_in_the_table() -> None:
    assert sorted(BODIES) == COMMANDS
    inner = {bodies.Server, log_bodies.TopicState, bodies.BridgeState, bodies.Route, bodies.Figures, Body}
    found = [*vars(bodies).values(), *vars(log_bodies).values()]
    kinds = {kind for kind in found if isinstance(kind, type) and issubclass(kind, Body)}
    assert kinds - inner <= set(BODIES.values())


@pytest.mark.parametrize("command", WITH_BODY, ids=lambda command: command.name)
@settings(max_examples=SOME)
@given(data=st.data())
def test_a_body_comes_back_as_it_went(command: Command, data: st.DataObject) -> None:
    kind = BODIES[command]
    assert kind is not None
    body = data.draw(of_struct(kind))
    seq = data.draw(st.text(max_size=20))
    message = decode(encode(command, seq, body))
    assert (message.command, message.seq, message.status, message.error) == (command, seq, 0, "")
    assert plain(body_of(message)) == plain(body)


@given(of_struct(Stage), st.text(max_size=20), st.binary(max_size=70_000))
def test_the_records_of_a_stage_are_a_part_of_their_own(body: Stage, seq: str, records: bytes) -> None:
    body.records = records
    found = parts(Command.STAGE_REQUEST, seq, body)
    assert [part for part in found if part is records] == ([records] if records else [])
    message = decode(b"".join(found))
    assert message.seq == seq
    assert plain(body_of(message)) == plain(body)
    assert b"".join(parts(Command.ABORT_REQUEST, seq, Abort("c", "s", "w", 1))) == encode(
        Command.ABORT_REQUEST, seq, Abort("c", "s", "w", 1)
    )


@pytest.mark.parametrize("command", WITH_BODY, ids=lambda command: command.name)
@settings(max_examples=SOME)
@given(data=st.data())
def test_another_library_reads_the_same_names_and_values(command: Command, data: st.DataObject) -> None:
    kind = BODIES[command]
    assert kind is not None
    body = data.draw(of_struct(kind))
    fields = msgpack.unpackb(encode(command, "7", body), strict_map_key=False)
    assert fields[:7] == ["EventMesh", "0000", command, 0, "success", "", "7"]
    for name, wire in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        value = getattr(body, name)
        assert wire == "".join(part.capitalize() for part in name.split("_"))
        if isinstance(value, str | int | float | bytes):
            assert fields[7].get(wire, value) == value  # what has its default may be left out


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("error", ErrorCode)
def test_status_and_error_come_back(status: Status, error: ErrorCode) -> None:
    message = decode(encode(Command.PUBLISH_MESSAGE_RESPONSE, "1", None, status=status, error=error))
    assert (message.status, message.error, message.description) == (status, error, DESCRIPTIONS[status])
    message = decode(encode(Command.PUBLISH_MESSAGE_RESPONSE, "1", None, status=status, description="why"))
    assert message.description == "why"


def test_properties_that_nobody_knows_are_ignored() -> None:
    body = {"ClientId": "c", "SessionId": "s", "Topics": ["t"], "Later": [{"a": 1}, None], "Start": 5}
    payload = msgpack.packb(["EventMesh", "0000", 4, 0, "", "", "1", body, "a ninth field"])
    assert body_of(decode(payload)) == Subscribe("c", "s", ["t"], 5)


def test_a_request_may_leave_status_description_and_error_empty() -> None:
    payload = msgpack.packb(["EventMesh", "0000", 0, None, None, None, "1", None])
    assert body_of(decode(payload)) is None
    payload = msgpack.packb(["EventMesh", "0000", 0, 0, "", "", "1"])  # and the body out
    assert decode(payload).seq == "1"


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (["EventMush", "0000", 0, 0, "", "", "9", None], "magic"),
        (["EventMesh", "0001", 0, 0, "", "", "9", None], "version"),
        (["EventMesh", "0000", 16, 0, "", "", "9", None], "command"),
        (["EventMesh", "0000", -1, 0, "", "", "9", None], "command"),
        (["EventMesh", "0000", 277, 0, "", "", "9", None], "command"),
    ],
)
def test_a_wrong_head_is_told_with_the_seq_that_could_be_read(fields: list[Any], what: str) -> None:
    with pytest.raises(BadMessage, match=what) as raised:
        decode(msgpack.packb(fields))
    assert raised.value.seq == "9"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc0",
        b"\x90",
        b"\xc1",
        b"\x98\xa9EventMesh",
        msgpack.packb({"magic": "EventMesh"}),
        msgpack.packb(["EventMesh", "0000", "0", 0, "", "", "9", None]),
        msgpack.packb(["EventMesh", "0000", 0, 0, "", "", 9, None]),
        msgpack.packb(["EventMesh", "0000", 0, 0, "", "", None, None]),
        msgpack.packb(["EventMesh", "0000", 0, 0, "", "", "9", None]) + b"\x00",
        b"\x98\xa9EventMesh\xa40000\x00\x00\xa0\xa0\xa19" + b"\x91" * 100_000 + b"\xc0",
        b"\x98\xa9EventMesh\xa40000\x00\x00\xa0\xa0\xa19\xdd\xff\xff\xff\xff",
        b"\x98\xa9EventMesh\xa40000\x00\x00\xa0\xa0\xdb\xff\xff\xff\xff",
    ],
)
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(payload)


@pytest.mark.parametrize(
    ("command", "body"),
    [
        (Command.HELLO_REQUEST, None),
        (Command.HELLO_REQUEST, {}),
        (Command.HELLO_REQUEST, {"ClientId": 5}),
        (Command.HELLO_REQUEST, ["shop"]),
        (Command.SUBSCRIBE_REQUEST, {"ClientId": "c", "SessionId": "s", "Topics": "t"}),
        (Command.PUBLISH_MESSAGE_REQUEST, {"ClientId": "c", "SessionId": "s", "Topic": "t"}),
        (Command.ASYNC_MESSAGE_TO_CLIENT_ACK, {"ClientId": "c", "SessionId": "s", "Topic": "t", "Offset": "0"}),
    ],
)
def test_a_body_that_is_not_of_its_commands_form_is_told(command: Command, body: Any) -> None:
    message = decode(msgpack.packb(["EventMesh", "0000", command, 0, "", "", "9", body]))
    with pytest.raises(BadMessage, match=command.name) as raised:
        body_of(message)
    assert raised.value.seq == "9"


def test_a_body_nested_without_end_is_refused() -> None:
    deep = b"\x81\xa1x" * 50_000 + b"\xc0"
    payload = b"\x98\xa9EventMesh\xa40000\x04\x00\xa0\xa0\xa19" + deep
    with pytest.raises(BadMessage):
        body_of(decode(payload))


def test_answers_follow_their_requests() -> None:
    for command in COMMANDS:
        if command.name.endswith("_REQUEST"):
            assert answer_to(command).name == command.name.replace("_REQUEST", "_RESPONSE")
    assert answer_to(Command.ASYNC_MESSAGE_TO_CLIENT_ACK) is Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE
    assert answer_to(Command.ASYNC_MESSAGE_TO_SERVER) is Command.ASYNC_MESSAGE_TO_CLIENT_ACK
    assert answer_to(9999) is Command.HEARTBEAT_RESPONSE


def test_events_go_in_and_come_out_byte_for_byte() -> None:
    events = [an_event(number, size=number).encode() for number in range(40)]
    entries: dict[str, object] = {"Environment": "TST", "Topic": "t", "Offset": 5, "BridgeServers": [Server("u", 1)]}
    origin = bytes(24)
    stored = [encode_record(number, 0, origin if number % 3 else None, event) for number, event in enumerate(events)]
    records = scan(b"".join(stored), 0, 0)
    head = protocol.events_head(Command.ASYNC_MESSAGE_TO_CLIENT, "t@5", entries)
    for first, end in ((0, 0), (0, 1), (3, 18), (0, 16), (0, 40)):
        frame = events_frame(head, records, first, end)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        body: Deliver = body_of(decode(frame[4:]))
        assert [bytes(raw) for raw in body.cloud_events] == events[first:end]
        assert (body.offset, body.bridge_servers) == (5, [Server("u", 1)])
    with pytest.raises(IndexError):
        events_frame(head, records, 0, 41)
    publish = Publish("c", "s", "t", Raw(events[3]))
    assert bytes(body_of(decode(encode(Command.PUBLISH_MESSAGE_REQUEST, "1", publish))).cloud_event) == events[3]


def test_offsets_count_on_or_they_do_not() -> None:
    assert consecutive([], 5)
    assert consecutive([5, 6, 7], 5)
    assert not consecutive([5, 6, 7], 4)
    assert not consecutive([5, 7, 7], 5)
    assert not consecutive([5, 5, 7], 5)


# Any bytes at all


def attempt(payload: bytes) -> None:
    """A message, or BadMessage; nothing else comes out."""
    with suppress(BadMessage):
        body_of(decode(payload))


@given(payload=st.binary(max_size=400))
def test_random_bytes_are_refused_politely(payload: bytes) -> None:
    attempt(payload)


@given(data=st.data(), command=st.sampled_from(WITH_BODY))
def test_truncated_and_flipped_messages_are_refused_or_read(command: Command, data: st.DataObject) -> None:
    kind = BODIES[command]
    assert kind is not None
    payload = bytearray(encode(command, "seq", data.draw(of_struct(kind))))
    for _ in range(data.draw(st.integers(0, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    attempt(bytes(payload[: data.draw(st.integers(0, len(payload)))]))
    attempt(bytes(payload))


def test_many_broken_messages_cost_bounded_memory() -> None:
    rng = random.Random(7)
    event = an_event(1, 200).encode()
    good = encode(Command.ASYNC_MESSAGE_TO_CLIENT, "s", Deliver("TST", "t", 0, [Raw(event)] * 20))
    tracemalloc.start()
    for _ in range(count(3_000, 300_000)):
        payload = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        attempt(bytes(payload))
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()


@given(origins=st.lists(st.none() | st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=30))
def test_runs_are_of_one_origin_and_leave_out_what_is_not_for_the_other_end(
    origins: list[tuple[int, int] | None],
) -> None:
    logs, here = [b"a" * 16, b"b" * 16, bytes(16)], bytes(24)
    given = [None if one is None else logs[one[0]] + one[1].to_bytes(8, "little") for one in origins]
    given = [here if origin is not None and origin[:16] == here[:16] else origin for origin in given]
    stored = [encode_record(number, 0, origin, b"event") for number, origin in enumerate(given)]
    found = runs(scan(b"".join(stored), 0, 0), logs[0])
    assert [number for first, end, _, _ in found for number in range(first, end)] == list(range(len(given)))
    for first, end, origin, theirs in found:
        assert origin == given[first]
        for at, of in enumerate(given[first:end]):
            assert theirs == (of is not None and (of == here or of[:16] == logs[0]))
            if not theirs and origin is not None:
                assert of == origin[:16] + (int.from_bytes(origin[16:], "little") + at).to_bytes(8, "little")
            elif not theirs:
                assert of is None
