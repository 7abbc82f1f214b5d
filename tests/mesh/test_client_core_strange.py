"""The client's pure core: silence, and servers that speak something else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import BadMessage, MeshError
from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Published, Welcome
from echomesh.mesh.client_events import Answered, Broken, Delivery, Ended, Refused, Stored, Told
from echomesh.mesh.client_outbox import State
from echomesh.mesh.codes import Command, Status
from tests.mesh.wire_support import EVENT, Wire, delivery


def test_leaving_acknowledges_first_and_ends_with_the_answer() -> None:
    wire = Wire()
    wire.up()
    (found,) = wire.deliver("a", 0, EVENT)
    wire.core.settle(found, 0, 1)
    wire.core.disconnect()
    ack, leave = wire.sent()
    assert (ack.command, leave.command) == (Command.ASYNC_MESSAGE_TO_CLIENT_ACK, Command.DISCONNECT_REQUEST)
    assert wire.answer(Command.DISCONNECT_RESPONSE, leave.seq) == [Ended()]


# Time


def test_a_silent_connection_gets_a_heartbeat_each_interval_and_is_lost_after_three() -> None:
    wire = Wire()
    wire.up(heartbeat_seconds=2.0)
    wire.now += 1.9
    assert wire.core.tick(wire.now) == []
    assert wire.sent() == []
    due = wire.core.timer()
    assert due == pytest.approx(102.0)
    wire.now = due
    wire.core.tick(wire.now)
    (beat,) = wire.sent()
    assert (beat.command, bool(beat.seq)) == (Command.HEARTBEAT_REQUEST, True)
    assert wire.answer(Command.HEARTBEAT_RESPONSE, beat.seq) == []
    heard = wire.now
    while (due := wire.core.timer()) < heard + 6.0:
        wire.now = due
        assert wire.core.tick(due) == []
        assert [message.command for message in wire.sent()] == [Command.HEARTBEAT_REQUEST]
    (broken,) = wire.core.tick(heard + 6.0)
    assert isinstance(broken, Broken)
    assert not broken.final


def test_a_client_that_only_talks_asks_whether_anybody_listens() -> None:
    wire = Wire()
    wire.up(heartbeat_seconds=2.0)
    for _ in range(3):
        wire.now += 1.0
        wire.core.publish("orders", EVENT, "token")
        wire.core.tick(wire.now)
    assert Command.HEARTBEAT_REQUEST in [message.command for message in wire.sent()]


# What does not belong


@pytest.mark.parametrize(
    "data",
    [
        framed(b"\xc1"),
        framed(protocol.encode_value(("Other", "0000", 15, 0, "", "", "1", None))),
        framed(protocol.encode_value(("EventMesh", "0001", 15, 0, "", "", "1", None))),
        framed(protocol.encode_value(("EventMesh", "0000", 9999, 0, "", "", "1", None))),
        (1 << 31).to_bytes(4, "big"),
        delivery("a", 0),
        delivery("a", -5, EVENT),
        delivery("", 0, EVENT),
        delivery("a", (1 << 63) - 1, EVENT),
        delivery("a", 3, Lost=[5, 5]),
        framed(protocol.encode(Command.HELLO_RESPONSE, "x", Welcome("second"))),
    ],
)
def test_a_server_that_speaks_something_else_is_left(data: bytes) -> None:
    wire = Wire()
    wire.up()
    (broken,) = wire.core.receive(data, wire.now)
    assert isinstance(broken, Broken)
    assert isinstance(broken.error, MeshError)


def test_an_answer_to_a_publish_without_an_offset_is_no_answer() -> None:
    wire = Wire()
    wire.up()
    wire.core.publish("orders", EVENT, "token")
    (message,) = wire.sent()
    (broken,) = wire.answer(Command.PUBLISH_MESSAGE_RESPONSE, message.seq)
    assert isinstance(broken, Broken)


def test_properties_from_the_future_are_ignored() -> None:
    wire = Wire()
    wire.up()
    wire.core.publish("orders", EVENT, "token")
    (message,) = wire.sent()
    fields = ("EventMesh", "0000", 15, 0, "", "", message.seq, {"Offset": 3, "Shiny": [1, {"a": None}]}, "more")
    (stored,) = wire.core.receive(framed(protocol.encode_value(fields)), wire.now)
    assert stored == Stored(["token"], [3])


def test_a_refusal_of_nothing_that_was_asked_is_remembered_as_the_reason() -> None:
    wire = Wire()
    wire.up()
    status = Status.FAIL
    assert wire.answer(Command.HEARTBEAT_RESPONSE, "?", status=status, description="go away") == []
    assert str(wire.core.complaint) == "go away"


@given(data=st.binary(max_size=200), framing=st.booleans())
def test_no_bytes_of_a_server_raise(data: bytes, framing: bool) -> None:
    wire = Wire()
    wire.up()
    wire.core.publish("orders", EVENT, "token")
    happened = wire.core.receive(framed(data) if framing else data, wire.now)
    assert all(isinstance(what, Broken | Stored | Answered | Refused | Delivery | Told | Ended) for what in happened)


@given(
    body=st.dictionaries(
        st.sampled_from(["Offset", "Topic", "CloudEvents", "Lost", "Tries", "BridgeServers", "Kind", "SessionId"]),
        st.none() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=5) | st.lists(st.integers(), max_size=3),
    ),
    command=st.sampled_from(sorted(Command)),
    status=st.integers(-1, 5) | st.none(),
)
def test_no_message_of_a_server_raises(body: dict[str, Any], command: int, status: int | None) -> None:
    wire = Wire()
    wire.up()
    wire.core.publish("orders", EVENT, "token")
    (message,) = wire.sent()
    try:
        payload = protocol.encode_value(("EventMesh", "0000", command, status, None, None, message.seq, body))
    except (OverflowError, BadMessage):
        return
    wire.core.receive(framed(payload), wire.now)
    assert wire.core.state is State.UP


@given(cuts=st.lists(st.integers(1, 400), max_size=12))
def test_pieces_of_any_size_mean_the_same(cuts: list[int]) -> None:
    wire = Wire()
    wire.up()
    seqs = []
    for number in range(3):
        wire.core.publish("orders", EVENT, number)
        seqs += [message.seq for message in wire.sent()]
    data = b"".join(
        framed(protocol.encode(Command.PUBLISH_MESSAGE_RESPONSE, seq, Published(at))) for at, seq in enumerate(seqs)
    )
    data += delivery("a", 0, EVENT, EVENT)
    happened: list[Any] = []
    for cut in [*cuts, len(data)]:
        happened += wire.core.receive(data[:cut], wire.now)
        data = data[cut:]
    stored = [
        pair for what in happened if isinstance(what, Stored) for pair in zip(what.tokens, what.offsets, strict=True)
    ]
    assert stored == [(0, 0), (1, 1), (2, 2)]
    assert [what.first for what in happened if isinstance(what, Delivery)] == [0]
