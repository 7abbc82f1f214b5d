"""The client's pure core: hello, publishes, answers, and what a lost connection means for them."""

from __future__ import annotations

import pytest

from echomesh import errors
from echomesh.errors import ConnectionLost, FrameTooLarge, RequestFailed
from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Published, Server, Welcome
from echomesh.mesh.client_events import Answered, Broken, Refused, Stored
from echomesh.mesh.codes import Command, ErrorCode, Status
from echomesh.mesh.log_bodies import AskTopics, Topics
from tests.mesh.wire_support import EVENT, LOG, Wire


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
