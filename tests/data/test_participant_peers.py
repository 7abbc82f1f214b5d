"""A participant's core: what it tells whom when participants of other hosts come, change and go."""

from __future__ import annotations

import pytest

from echomesh.data import local, wire
from echomesh.data.membership import Close, Dial
from echomesh.data.messages import (
    VERSION,
    Endpoint,
    Gone,
    Hello,
    Message,
    PartInit,
    PartInsertPublisher,
    PartInsertSubscriber,
    PartRemovePublisher,
    PartRemoveSubscriber,
    PubInit,
    PubInsertSubscriber,
    PubRemoveSubscriber,
    Reachable,
    SubInsertPublisher,
    SubRemovePublisher,
)
from echomesh.data.outputs import Broadcast
from tests.data.participant_support import FAR, ME, OTHER, PUB, SUB, Driven, publish, subscribe, wired


def test_a_participant_that_comes_is_told_all_and_tells_all() -> None:
    core = Driven()
    publisher = core.local(publish())
    core.said()
    link = core.participant(PartInit([], [Endpoint(FAR, "a/b", 6000)], OTHER))
    assert core.said() == {
        link: [PartInit([Endpoint(PUB, "a/b")], [], ME)],
        publisher: [PubInsertSubscriber(Reachable(FAR, "10.0.0.2", 6000))],
    }


def test_a_long_list_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MAX_LISTED", 2)
    core = Driven()
    ends = [Endpoint(bytes([number]) * 16, "a/b") for number in range(5)]
    core.participant(PartInit([], ends, OTHER))
    core.said()
    publisher = core.local(publish())
    first, *rest = core.said()[publisher]
    assert isinstance(first, PubInit)
    told = [subscriber.id for subscriber in first.subscribers]
    told += [message.subscriber.id for message in rest if isinstance(message, PubInsertSubscriber)]
    assert len(first.subscribers) == 2
    assert told == [end.id for end in ends]


def test_participants_are_told_of_every_change_here() -> None:
    core = Driven()
    link = core.participant()
    core.said()
    publisher, subscriber = core.local(publish()), core.local(subscribe())
    core.core.lost(publisher, 1.0)
    core.core.lost(subscriber, 1.0)
    assert core.said()[link] == [
        PartInsertPublisher(Endpoint(PUB, "a/b")),
        PartInsertSubscriber(Endpoint(SUB, "a/*", 5000)),
        PartRemovePublisher(Endpoint(PUB, "a/b")),
        PartRemoveSubscriber(Gone(SUB)),
    ]


def test_changes_there_are_told_to_those_here_whom_they_concern() -> None:
    core = Driven()
    publisher, subscriber, deaf = core.local(publish()), core.local(subscribe()), core.local(subscribe("x", id=FAR))
    link = core.participant()
    core.said()
    there, feed = Endpoint(b"1" * 16, "a/b", 6000), Endpoint(b"2" * 16, "a/c")
    core.hears(link, PartInsertSubscriber(there), PartInsertPublisher(feed))
    assert core.said() == {
        publisher: [PubInsertSubscriber(Reachable(there.id, "10.0.0.2", 6000))],
        subscriber: [SubInsertPublisher(feed, "10.0.0.2")],
    }
    core.hears(link, PartRemoveSubscriber(Gone(there.id)), PartRemovePublisher(feed))
    assert core.said() == {
        publisher: [PubRemoveSubscriber(Gone(there.id))],
        subscriber: [SubRemovePublisher(Gone(feed.id))],
    }
    assert deaf


def test_a_participant_that_is_lost_takes_all_it_had_with_it() -> None:
    core = Driven()
    publisher = core.local(publish())
    link = core.participant(PartInit([], [Endpoint(FAR, "a/b")], OTHER))
    core.said()
    core.core.lost(link, 1.0)
    assert core.said() == {publisher: [PubRemoveSubscriber(Gone(FAR))]}
    assert core.core.matching.owners() == {ME.id}


def test_a_new_connection_with_the_same_participant_changes_only_what_has_changed() -> None:
    core = Driven()
    publisher = core.local(publish())
    stays, goes, comes = (Endpoint(bytes([n]) * 16, "a/b") for n in range(3))
    core.participant(PartInit([], [stays, goes], OTHER))
    core.said()
    core.participant(PartInit([], [stays, comes], OTHER))
    assert core.said()[publisher] == [
        PubRemoveSubscriber(Gone(goes.id)),
        PubInsertSubscriber(Reachable(comes.id, "10.0.0.2")),
    ]


def test_a_subscriber_whose_participant_was_restarted_is_not_lost_with_the_old_one() -> None:
    core = Driven()
    publisher = core.local(publish())
    old = core.participant(PartInit([], [Endpoint(FAR, "a/b", 1)], OTHER))
    new = Hello(4002, VERSION, "default", b"y" * 16, 30)
    core.said()
    core.participant(PartInit([], [Endpoint(FAR, "a/b", 2)], new))
    assert publisher not in core.said()
    core.core.lost(old, 1.0)
    assert core.said()[publisher] == [
        PubRemoveSubscriber(Gone(FAR)),
        PubInsertSubscriber(Reachable(FAR, "10.0.0.2", 2)),
    ]


def test_nobody_elsewhere_can_take_the_place_of_one_here() -> None:
    core, publisher, _ = wired()
    core.participant(PartInit([Endpoint(PUB, "a/b")], [Endpoint(SUB, "a/b")], OTHER))
    assert publisher not in core.said()
    assert core.core.counters["ids of others"] == 2


@pytest.mark.parametrize(
    "messages",
    [
        [PartInsertPublisher(Endpoint(FAR, "a"))],
        [PartInit([Endpoint(FAR, "a//b")], [], OTHER)],
        [PartInit([], [Endpoint(FAR, "")], OTHER)],
        [PartInit([], [], Hello(1, VERSION, "lab", b"z" * 16, 5))],
        [PartInit([], [], ME)],
        [PartInit([Endpoint(FAR, "a")], [], OTHER), PartInit([], [], Hello(1, VERSION, "default", b"y" * 16, 5))],
    ],
)
def test_a_participant_that_breaks_the_rules_is_put_out(messages: list[Message]) -> None:
    core = Driven()
    link = core.participant(*messages)
    assert core.others() == [Close(link)]
    assert core.core.matching.owners() == set()


# Time


def test_beacons_go_out_and_connections_hear_that_it_is_alive() -> None:
    core = Driven()
    link = core.participant()
    core.said()
    core.core.advance(0.0)
    assert core.said() == {link: [ME]}
    assert core.done == [Broadcast(wire.encode_beacon(ME))]


def test_a_beacon_is_answered_with_a_connection_and_nothing_else() -> None:
    core = Driven()
    core.core.datagram(wire.encode_beacon(OTHER), "10.0.0.2", 0.0)
    assert core.said() == {}
    (dial,) = core.done
    assert isinstance(dial, Dial)
    assert core.core.connected(dial.connection)
    assert core.said() == {dial.connection: [PartInit([], [], ME)]}


def test_a_participant_that_fell_silent_is_gone_after_three_and_a_half_beacons() -> None:
    core = Driven()
    publisher = core.local(publish())
    link = core.participant(PartInit([], [Endpoint(FAR, "a/b")], OTHER))
    for now in (0.0, 1.0, 2.0, 3.0):
        core.core.advance(now)
    core.others()
    assert core.core.deadline == 3.5
    core.core.advance(3.5)
    assert core.said() == {publisher: [PubRemoveSubscriber(Gone(FAR))]}
    assert core.done == [Close(link)]
