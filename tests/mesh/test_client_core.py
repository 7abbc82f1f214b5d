"""The client's core, as pure code: bytes in, events out, a clock that the test turns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh import errors
from echomesh.errors import BadMessage, ConnectionLost, FrameTooLarge, MeshError, RequestFailed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import AskTopics, Body, Hello, Nacked, Notice, Published, Server, Topics, Welcome
from echomesh.mesh.client_core import ClientCore
from echomesh.mesh.client_events import Answered, Broken, Delivery, Ended, Refused, Stored, Told, Up
from echomesh.mesh.client_outbox import State
from echomesh.mesh.codes import Command, ErrorCode, Status
from echomesh.mesh.frames import Splitter, framed
from echomesh.mesh.protocol import Message
from tests.mesh.support import an_event

EVENT = an_event(1).encode()
LOG = b"L" * 16


class Wire:
    """The other end of a core: reads what it sends, and answers by hand."""

    def __init__(self, core: ClientCore | None = None) -> None:
        self.core = core or ClientCore(Hello("shop", password="secret"))
        self.now = 100.0
        self.sessions = 0
        self._splitter = Splitter(64 << 20)

    def sent(self) -> list[Message]:
        """What the core has to send."""
        data = self.core.take_output(self.now)
        return [protocol.decode(payload) for payload in self._splitter.feed(data)]

    def bodies(self) -> list[Any]:
        return [protocol.body_of(message) for message in self.sent()]

    def up(self, log_id: bytes | None = LOG, **welcome: Any) -> Up:
        """Connects, and welcomes."""
        self._splitter = Splitter(64 << 20)
        self.core.connected(self.now)
        (hello,) = self.sent()
        assert hello.command == Command.HELLO_REQUEST
        self.sessions += 1
        body = Welcome(f"session-{self.sessions}", log_id, **welcome)
        happened = self.answer(Command.HELLO_RESPONSE, hello.seq, body)
        assert isinstance(happened[0], Up)
        return happened[0]

    def answer(self, command: Command, seq: str, body: Body | None = None, **more: Any) -> list[Any]:
        return self.core.receive(framed(protocol.encode(command, seq, body, **more)), self.now)

    def deliver(self, topic: str, offset: int, *events: bytes, **more: Any) -> list[Any]:
        return self.core.receive(delivery(topic, offset, *events, **more), self.now)


def delivery(topic: str, offset: int, *events: bytes, **more: Any) -> bytes:
    body = {"Environment": "TST", "Topic": topic, "Offset": offset, "CloudEvents": [msgspec.Raw(e) for e in events]}
    fields = ("EventMesh", "0000", 6, 0, "", "", f"{topic}@{offset}", {**body, **more})
    return framed(protocol.encode_value(fields))


def test_hello_comes_first_and_carries_who_we_are() -> None:
    wire = Wire()
    assert wire.sent() == []
    wire.core.connected(1.0)
    (message,) = wire.sent()
    hello = protocol.body_of(message)
    assert (hello.client_id, hello.environment, hello.password) == ("shop", "TST", "secret")


def test_what_is_asked_before_the_welcome_waits_for_it_and_keeps_its_order() -> None:
    wire = Wire()
    for number in range(3):
        wire.core.publish("orders", EVENT, number)
    wire.core.request(Command.TOPICS_REQUEST, AskTopics("", ""), "topics")
    assert wire.core.waiting == 4
    up = wire.up()
    assert (up.session_id, up.log_id, up.anew) == ("session-1", LOG, False)
    sent = wire.sent()
    assert [message.command for message in sent] == [Command.PUBLISH_MESSAGE_REQUEST] * 3 + [Command.TOPICS_REQUEST]
    for body in map(protocol.body_of, sent):
        assert (body.client_id, body.session_id) == ("shop", "session-1")


def test_a_publish_is_a_message_that_any_decoder_reads() -> None:
    wire = Wire()
    wire.up()
    wire.core.publish("orders/created", EVENT, "token")
    wire.core.publish("orders/created", EVENT, "token", Server("far", 5))
    first, second = wire.sent()
    assert (first.command, first.status, first.error) == (Command.PUBLISH_MESSAGE_REQUEST, 0, "")
    body = protocol.body_of(first)
    assert (body.topic, bytes(body.cloud_event), body.urn, body.port) == ("orders/created", EVENT, None, None)
    body = protocol.body_of(second)
    assert (body.topic, bytes(body.cloud_event), body.urn, body.port) == ("orders/created", EVENT, "far", 5)
    assert first.seq != second.seq


def test_answers_come_with_their_tokens_in_one_event() -> None:
    wire = Wire()
    wire.up()
    for number in range(5):
        wire.core.publish("orders", EVENT, f"t{number}")
    assert wire.core.flight.in_flight_bytes == 5 * len(EVENT)
    seqs = [message.seq for message in wire.sent()]
    data = b"".join(
        framed(protocol.encode(Command.PUBLISH_MESSAGE_RESPONSE, seq, Published(10 + at)))
        for at, seq in enumerate(seqs)
    )
    (stored,) = wire.core.receive(data, wire.now)
    assert isinstance(stored, Stored)
    assert (stored.tokens, stored.offsets) == (["t0", "t1", "t2", "t3", "t4"], [10, 11, 12, 13, 14])
    assert (wire.core.waiting, wire.core.flight.publishing, wire.core.flight.in_flight_bytes) == (0, 0, 0)
    assert wire.core.receive(data, wire.now) == []  # an answer that nobody waits for


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (Status.FAIL, ErrorCode.NO_ACTIVE_SESSION, errors.NoActiveSession),
        (Status.ACL_FAIL, ErrorCode.NOT_AUTHORIZED, errors.NotAuthorized),
        (Status.FAIL, ErrorCode.NO_BRIDGE_SERVER, errors.NoBridgeServer),
        (Status.FAIL, ErrorCode.INVALID_URL, errors.InvalidUrl),
        (Status.FAIL, ErrorCode.INVALID_CLIENT, errors.InvalidClient),
        (Status.FAIL, ErrorCode.INVALID_SEQ, errors.InvalidSeq),
        (Status.FAIL, ErrorCode.INVALID_BRIDGE, errors.InvalidBridge),
        (Status.FAIL, ErrorCode.BRIDGE_NOT_ACTIVE, errors.BridgeNotActive),
        (Status.FAIL, ErrorCode.BRIDGE_EXISTS, errors.BridgeExists),
        (Status.FAIL, ErrorCode.UNKNOWN_BRIDGE, errors.UnknownBridge),
        (Status.ACL_FAIL, ErrorCode.UNAUTHORIZED_PUBLISH, errors.UnauthorizedPublish),
        (Status.ACL_FAIL, ErrorCode.UNAUTHORIZED_SUBSCRIBE, errors.UnauthorizedSubscribe),
        (Status.TPS_OVERLOAD, ErrorCode.NONE, errors.RateLimited),
        (Status.FAIL, ErrorCode.NONE, errors.RequestFailed),
    ],
)
def test_every_error_of_the_protocol_is_an_exception_of_its_own(
    status: Status, code: ErrorCode, kind: type[RequestFailed]
) -> None:
    wire = Wire()
    wire.up()
    wire.core.publish("orders", EVENT, "token")
    (message,) = wire.sent()
    (refused,) = wire.answer(
        Command.PUBLISH_MESSAGE_RESPONSE, message.seq, status=status, error=code, description="because"
    )
    assert isinstance(refused, Refused)
    assert refused.token == "token"
    assert type(refused.error) is kind
    assert str(refused.error) == "because"
    assert wire.core.flight.in_flight_bytes == 0


def test_other_requests_are_answered_with_their_bodies() -> None:
    wire = Wire()
    wire.up()
    wire.core.request(Command.TOPICS_REQUEST, AskTopics("", "", "a/*"), "token")
    (message,) = wire.sent()
    assert protocol.body_of(message).filter == "a/*"
    (answered,) = wire.answer(Command.TOPICS_RESPONSE, message.seq, Topics([]))
    assert answered == Answered("token", Topics([]))


def test_a_refused_hello_is_final_when_another_would_not_change_it() -> None:
    for code, description, final in (
        (ErrorCode.NOT_AUTHORIZED, "who are you", True),
        (ErrorCode.NONE, "the server is stopping", False),
    ):
        wire = Wire()
        wire.core.connected(wire.now)
        (hello,) = wire.sent()
        (broken,) = wire.answer(
            Command.HELLO_RESPONSE, hello.seq, status=Status.FAIL, error=code, description=description
        )
        assert isinstance(broken, Broken)
        assert (str(broken.error), broken.final) == (description, final)


def test_after_a_lost_connection_unanswered_publishes_are_sent_again_in_order_under_the_new_session() -> None:
    wire = Wire()
    wire.up()
    for number in range(4):
        wire.core.publish(f"orders/{number % 2}", EVENT, number)
    before = wire.sent()
    wire.answer(Command.PUBLISH_MESSAGE_RESPONSE, before[1].seq, Published(0))
    assert wire.core.disconnected() == []
    wire.core.publish("orders/0", EVENT, 4)
    assert wire.sent() == []
    wire.up()
    again = wire.sent()
    assert [message.seq for message in again[:3]] == [before[0].seq, before[2].seq, before[3].seq]
    assert [protocol.body_of(message).topic for message in again] == ["orders/0", "orders/0", "orders/1", "orders/0"]
    assert {protocol.body_of(message).session_id for message in again} == {"session-2"}


def test_what_must_not_be_done_twice_fails_with_the_connection() -> None:
    wire = Wire()
    wire.up()
    wire.core.request(Command.ADD_BRIDGE_REQUEST, AskTopics("", ""), "once", again=False)
    wire.core.request(Command.TOPICS_REQUEST, AskTopics("", ""), "twice")
    (refused,) = wire.core.disconnected()
    assert isinstance(refused, Refused)
    assert (refused.token, type(refused.error)) == ("once", ConnectionLost)
    wire.up()
    assert [message.command for message in wire.sent()] == [Command.TOPICS_REQUEST]


def test_requests_that_nobody_wants_any_more_are_not_sent_again() -> None:
    wire = Wire()
    wire.up()
    for number in range(4):
        wire.core.publish("orders", EVENT, number)
    wire.core.disconnected()
    wire.core.withdraw(lambda token: token % 2 == 0)
    wire.up()
    assert len(wire.sent()) == 2
    assert wire.core.flight.publishing == 2


def test_giving_up_fails_all_that_waits() -> None:
    wire = Wire()
    wire.core.publish("orders", EVENT, "a")
    wire.core.request(Command.TOPICS_REQUEST, AskTopics("", ""), "b")
    error = ConnectionLost("gone")
    assert wire.core.give_up(error) == [Refused("a", error), Refused("b", error)]
    assert (wire.core.waiting, wire.core.flight.in_flight_bytes) == (0, 0)


def test_an_event_over_the_servers_limit_never_leaves() -> None:
    wire = Wire()
    wire.up(frame_bytes=4096)
    with pytest.raises(FrameTooLarge) as raised:
        wire.core.publish("orders", b"x" * 4096, "token")
    assert raised.value.size == 4096
    assert wire.core.waiting == 0


def test_an_event_over_the_limit_of_the_next_server_is_refused_alone() -> None:
    wire = Wire()
    wire.up()
    wire.core.publish("orders", b"x" * 10_000, "large")
    wire.core.publish("orders", EVENT, "small")
    wire.core.disconnected()
    wire.core.connected(wire.now)
    (hello,) = (message for message in wire.sent() if message.command == Command.HELLO_REQUEST)
    _, refused = wire.answer(Command.HELLO_RESPONSE, hello.seq, Welcome("s", LOG, 10.0, 4096))
    assert (refused.token, type(refused.error)) == ("large", FrameTooLarge)
    assert len(wire.sent()) == 1


# Subscriptions


def subscribed(wire: Wire, *topics: str, **options: Any) -> None:
    wire.core.subscribe(list(topics), "subscription", **options)
    (message,) = wire.sent()
    assert wire.answer(Command.SUBSCRIBE_RESPONSE, message.seq) == [Answered("subscription", None)]


def test_a_subscription_is_made_again_where_it_was_and_not_where_it_began() -> None:
    wire = Wire()
    wire.up()
    wire.core.subscribe(["orders/**"], "token", start="earliest", group="g")
    assert wire.bodies()[0].start == "earliest"
    wire.core.disconnected()
    wire.up()
    (message,) = wire.sent()
    assert protocol.body_of(message).start == "earliest"  # it was never answered
    wire.answer(Command.SUBSCRIBE_RESPONSE, message.seq)
    wire.core.disconnected()
    wire.up()
    (message,) = wire.sent()
    body = protocol.body_of(message)
    assert (body.topics, body.start, body.group, body.session_id) == (["orders/**"], None, "g", "session-3")
    assert wire.answer(Command.SUBSCRIBE_RESPONSE, message.seq) == []


def test_a_subscription_that_is_refused_when_it_is_made_again_is_told() -> None:
    wire = Wire()
    wire.up()
    subscribed(wire, "orders")
    wire.core.disconnected()
    wire.up()
    (message,) = wire.sent()
    (refused,) = wire.answer(
        Command.SUBSCRIBE_RESPONSE, message.seq, status=Status.ACL_FAIL, error=ErrorCode.UNAUTHORIZED_SUBSCRIBE
    )
    assert (refused.token, refused.resumed, type(refused.error)) == ("subscription", True, errors.UnauthorizedSubscribe)


def test_what_was_unsubscribed_is_not_made_again() -> None:
    wire = Wire()
    wire.up()
    subscribed(wire, "orders", "alerts")
    wire.core.unsubscribe(["orders"], "token")
    (message,) = wire.sent()
    assert message.command == Command.UNSUBSCRIBE_REQUEST
    wire.answer(Command.UNSUBSCRIBE_RESPONSE, message.seq)
    wire.core.disconnected()
    wire.up()
    assert wire.bodies()[0].topics == ["alerts"]


def test_a_delivery_brings_its_events_and_their_place() -> None:
    wire = Wire()
    wire.up()
    way = [{"Urn": "far", "Port": 5}, {"Urn": "near", "Port": 6}]
    (found,) = wire.deliver("orders", 7, EVENT, EVENT, Tries=3, BridgeServers=way)
    assert isinstance(found, Delivery)
    assert (found.topic, found.first, found.lost, found.tries) == ("orders", 7, None, 3)
    assert found.via == (Server("far", 5), Server("near", 6))
    assert [bytes(raw) for raw in found.events] == [EVENT, EVENT]


def test_acknowledgements_are_gathered_until_they_are_flushed() -> None:
    wire = Wire()
    wire.up()
    (a,) = wire.deliver("a", 10, *[EVENT] * 5)
    (b,) = wire.deliver("b", 0, EVENT)
    for offset in (12, 10, 11, 14):
        wire.core.settle(a, offset, offset + 1)
    wire.core.settle(b, 0, 1)
    assert wire.sent() == []
    wire.core.flush()
    sent = wire.sent()
    acks = {protocol.body_of(message).topic: (message.seq, protocol.body_of(message)) for message in sent}
    seq, ack = acks["a"]
    assert (seq, ack.first, ack.offset, ack.environment, ack.is_client) == ("a@10", 10, 13, "TST", True)
    assert (acks["b"][1].first, acks["b"][1].offset) == (0, 1)
    wire.core.flush()
    assert wire.sent() == []


def test_half_of_the_credit_sends_the_acknowledgements_by_itself() -> None:
    wire = Wire(ClientCore(Hello("shop"), credit_bytes=4096))
    wire.up()
    (first,) = wire.deliver("a", 0, an_event(0, 1500).encode())
    (second,) = wire.deliver("a", 1, an_event(1, 1500).encode())
    wire.core.settle(first, 0, 1)
    assert wire.sent() == []
    wire.core.settle(second, 1, 2)
    assert [(body.first, body.offset) for body in wire.bodies()] == [(0, 2)]


def test_what_was_settled_does_not_come_twice_to_the_user_and_is_acknowledged_again() -> None:
    wire = Wire()
    wire.up()
    subscribed(wire, "a")
    (found,) = wire.deliver("a", 0, *[EVENT] * 4)
    wire.core.settle(found, 0, 1)
    wire.core.settle(found, 2, 3)
    wire.core.disconnected()
    wire.core.settle(found, 3, 4)
    wire.up()
    wire.sent()
    (again,) = wire.deliver("a", 0, *[EVENT] * 4)
    assert (again.first, len(again.events)) == (1, 1)
    wire.core.flush()
    assert [(body.first, body.offset) for body in wire.bodies()] == [(0, 1)]
    wire.core.settle(again, 1, 2)
    wire.core.flush()
    assert [(body.first, body.offset) for body in wire.bodies()] == [(1, 4)]


def test_a_server_with_another_log_begins_anew() -> None:
    wire = Wire()
    wire.up()
    (found,) = wire.deliver("a", 0, EVENT)
    wire.core.settle(found, 0, 1)
    wire.core.disconnected()
    assert wire.up(b"M" * 16).anew
    (again,) = wire.deliver("a", 0, EVENT)
    assert again.first == 0
    wire.core.settle(found, 0, 1)  # of the log before
    wire.core.flush()
    assert wire.sent() == []


def test_lost_offsets_are_told_and_acknowledged_as_a_whole() -> None:
    wire = Wire()
    wire.up()
    (found,) = wire.deliver("a", 5, Lost=[5, 1000])
    assert (found.first, found.lost, found.events) == (5, (5, 1000), [])
    wire.core.settle(found, 5, 6)
    wire.core.flush()
    assert [(body.first, body.offset) for body in wire.bodies()] == [(5, 1000)]


def test_a_nack_leaves_its_event_out_of_the_acknowledgements() -> None:
    wire = Wire()
    wire.up()
    (found,) = wire.deliver("a", 0, *[EVENT] * 3)
    wire.core.settle(found, 0, 1)
    assert wire.core.nack(found, 1, "token", 2.5, "no")
    wire.core.settle(found, 2, 3)
    (message,) = wire.sent()
    body = protocol.body_of(message)
    assert (body.topic, body.offset, body.delay, body.reason) == ("a", 1, 2.5, "no")
    assert wire.answer(Command.NACK_RESPONSE, message.seq, Nacked(1)) == [Answered("token", Nacked(1))]
    wire.core.flush()
    assert [(body.first, body.offset) for body in wire.bodies()] == [(0, 1), (2, 3)]
    (again,) = wire.deliver("a", 1, EVENT, Tries=2)
    wire.core.settle(again, 1, 2)
    wire.core.flush()
    assert [(body.first, body.offset) for body in wire.bodies()] == [(1, 2)]


def test_a_nack_over_a_connection_that_is_gone_needs_not_be_sent() -> None:
    wire = Wire()
    wire.up()
    (found,) = wire.deliver("a", 0, EVENT)
    wire.core.disconnected()
    assert not wire.core.nack(found, 0, "token", None, None)
    wire.up()
    assert not wire.core.nack(found, 0, "token", None, None)
    assert wire.sent() == []


def test_a_notice_is_told() -> None:
    wire = Wire()
    wire.up()
    told = wire.answer(Command.NOTICE, "notice", Notice("taken-over", ["orders"]))
    assert told == [Told("taken-over", ["orders"])]


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
