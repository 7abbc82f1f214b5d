"""Messages with many events: the events are left where they stand, and nothing else is read otherwise for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from echomesh.errors import BadMessage
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Forward, Server
from echomesh.mesh.codes import Command
from echomesh.mesh.protocol import Carrier, body_of, decode, encode_value, events_head
from echomesh.native.log_record import encode as encode_record
from echomesh.native.log_record import scan
from echomesh.native.mesh_frames import arrived, events_at, events_frame
from tests.mesh.support import an_event

EVENTS = [an_event(number, size=300).encode() for number in range(100)]
RECORDS = scan(b"".join(encode_record(number, 0, None, event) for number, event in enumerate(EVENTS)), 0, 0)
ENTRIES: dict[str, object] = {
    "ClientId": "a",
    "SessionId": "b",
    "Environment": "TST",
    "Topic": "t",
    "Origin": bytes(16),
    "Offset": 7,
    "BridgeServers": [Server("u", 1)],
}
FRAME = events_frame(events_head(Command.ASYNC_MESSAGE_TO_SERVER, "f1", ENTRIES), RECORDS, 0, 100)
PAYLOAD = FRAME[4:]


def taken(payload: bytes) -> Any:
    """What a server makes of the message: its fields, those of its body, and where its events begin and end."""
    try:
        message = decode(payload)
        body = body_of(message)
    except BadMessage:
        return None
    fields = [message.magic, message.version, message.command, message.status, message.description, message.error]
    if not isinstance(body, Forward):
        return fields, message.seq, body
    found = arrived(body.cloud_events)
    if found is None:
        return None
    rest = msgspec.structs.asdict(body) | {"cloud_events": [bytes(event) for event in found[0]]}
    return fields, message.seq, rest, found[1]


def read_whole(payload: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same, without leaving anything where it stands."""
    with monkeypatch.context() as patched:
        patched.setattr(protocol, "LARGE_BYTES", len(payload) + 1)
        return taken(payload)


def test_many_events_are_left_where_they_stand() -> None:
    message = decode(PAYLOAD)
    assert isinstance(message, Carrier)
    assert message.size > sum(map(len, EVENTS))
    assert len(message.body) < 200
    body: Forward = body_of(message)
    assert (body.topic, body.offset, body.bridge_servers) == ("t", 7, [Server("u", 1)])
    found = arrived(body.cloud_events)
    assert found is not None
    assert [bytes(event) for event in found[0]] == EVENTS


def test_few_events_and_other_commands_are_read_as_ever() -> None:
    few = events_frame(events_head(Command.ASYNC_MESSAGE_TO_SERVER, "f1", ENTRIES), RECORDS, 0, 5)[4:]
    assert not isinstance(decode(few), Carrier)
    other = events_frame(events_head(Command.ASYNC_MESSAGE_TO_CLIENT, "f1", ENTRIES), RECORDS, 0, 100)[4:]
    assert not isinstance(decode(other), Carrier)


def test_events_that_are_not_last_or_come_twice_are_read_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Raw(encode_value([Raw(event) for event in EVENTS]))
    begin = encode_value(("EventMesh", "0000", 10, 0, "", "", "s"))[1:]
    for entries in (
        [("CloudEvents", events), *ENTRIES.items()],
        [*ENTRIES.items(), ("CloudEvents", []), ("CloudEvents", events)],
        [*ENTRIES.items(), ("CloudEvents", events), ("CloudEvents", events)],
    ):
        pairs = b"".join(encode_value(name) + encode_value(value) for name, value in entries)
        payload = b"\x98" + begin + bytes((0x80 | len(entries),)) + pairs
        message = decode(payload)
        assert not isinstance(message, Carrier)
        assert taken(payload) == read_whole(payload, monkeypatch)


def test_bytes_behind_the_message_and_missing_ones_are_refused() -> None:
    for payload in (PAYLOAD + b"\x00", PAYLOAD[:-1], PAYLOAD[:-5000]):
        assert taken(payload) is None


@given(data=st.data())
def test_whatever_is_wrong_is_found_either_way(data: st.DataObject) -> None:
    changed = bytearray(PAYLOAD)
    head = events_at(PAYLOAD, 10)
    for _ in range(data.draw(st.integers(1, 3))):
        # Mostly in what is read by both: the events' own bytes are the same for them.
        at = data.draw(st.integers(0, head + 20) | st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    payload = bytes(changed[: data.draw(st.just(len(changed)) | st.integers(0, len(changed)))])
    with pytest.MonkeyPatch.context() as patched:
        assert taken(payload) == read_whole(payload, patched)


@given(payload=st.binary(max_size=300), command=st.integers(0, 300))
def test_no_bytes_do_harm(payload: bytes, command: int) -> None:
    assert 0 <= events_at(payload, command) <= len(payload)


def test_a_lent_frame_is_the_same_and_its_memory_is_used_again_when_nobody_has_it() -> None:
    head = events_head(Command.ASYNC_MESSAGE_TO_SERVER, "f1", ENTRIES)
    first = events_frame(head, RECORDS, 0, 100, True)
    assert isinstance(first, memoryview)
    assert first.readonly
    kept = events_frame(head, RECORDS, 0, 50, True)
    assert first == FRAME
    second = events_frame(head, RECORDS, 50, 100, True)
    assert kept == events_frame(head, RECORDS, 0, 50)
    piece = first[4:]
    del first
    third = events_frame(head, RECORDS, 10, 20, True)
    assert piece == PAYLOAD  # a view of a view keeps it too
    assert (second, third) == (events_frame(head, RECORDS, 50, 100), events_frame(head, RECORDS, 10, 20))


def test_what_is_too_large_to_be_lent_is_bytes() -> None:
    event = an_event(1, size=2 << 20).encode()
    records = scan(encode_record(0, 0, None, event), 0, 0)
    frame = events_frame(b"", records, 0, 1, True)
    assert isinstance(frame, bytes)
    assert frame.endswith(event)
