"""The client's pure core: subscriptions, deliveries and acknowledgements."""

from __future__ import annotations

from echomesh import errors
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Hello, Nacked, Notice, Server
from echomesh.mesh.client_core import ClientCore
from echomesh.mesh.client_events import Answered, Delivery, Told
from echomesh.mesh.codes import Command, ErrorCode, Status
from tests.mesh.support import an_event
from tests.mesh.wire_support import EVENT, Wire, subscribed


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
