"""A participant's core: what it tells whom when somebody comes and goes, on this machine and on others."""

from __future__ import annotations

from typing import Any

import pytest

from echomesh.data import local, wire
from echomesh.data import participant_core as rules
from echomesh.data.membership import Close, Dial
from echomesh.data.messages import (
    VERSION,
    Credentials,
    Endpoint,
    Gone,
    Hello,
    InitLook,
    InitPub,
    InitSub,
    LookInit,
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
    SubInit,
    SubInitFailed,
    SubInsertPublisher,
    SubRemovePublisher,
    Wired,
)
from echomesh.data.outputs import Broadcast, Send, Streamed, Unwire, Wire
from echomesh.data.participant_core import Identity, ParticipantCore

ME = Hello(4000, VERSION, "default", b"m" * 16, 10)
OTHER = Hello(4001, VERSION, "default", b"z" * 16, 20)
PUB, SUB, FAR = b"p" * 16, b"s" * 16, b"f" * 16
SHOWN = Credentials(b"cookie", "default")
HERE = "127.0.0.1"


class Driven:
    """A core, and what it asked for."""

    def __init__(self, linger_s: float = 2.0) -> None:
        identity = Identity(hello=ME, cookie=b"cookie", beacon_s=1.0, linger_s=linger_s, first_reference=70)
        self.core = ParticipantCore(identity, 0.0, lambda process: process.proof == b"right")
        self.now = 0.0
        self.done: list[Any] = []
        """Outputs that are not messages."""

    def said(self) -> dict[int, list[Message]]:
        """The messages since the last time, by connection."""
        said: dict[int, list[Message]] = {}
        for output in self.core.take():
            if isinstance(output, Send):
                taken: wire.Messages[Any] = wire.Messages(Message, wire.LOOK_BYTES)
                said.setdefault(output.connection, []).extend(taken.feed(output.data))
            else:
                self.done.append(output)
        return said

    def others(self) -> list[Any]:
        """The other outputs since the last time."""
        self.said()
        done, self.done = self.done, []
        return done

    def local(self, *messages: Message) -> int:
        """A process of this machine connects and says something."""
        connection = self.core.local(self.now)
        assert connection is not None
        self.hears(connection, *messages)
        return connection

    def hears(self, connection: int, *messages: Message) -> None:
        self.core.received(connection, b"".join(map(wire.encode, messages)), self.now)

    def participant(self, *messages: Message, hello: Hello = OTHER) -> int:
        """Another participant connects and says who it is, and what it has."""
        connection = self.core.accepted("10.0.0.2", self.now)
        assert connection is not None
        self.hears(connection, *(messages or (PartInit([], [], hello),)))
        return connection


def publish(topic: str = "a/b", *, id: bytes = PUB, proof: bytes = b"right", **more: Any) -> InitPub:
    return InitPub(topic, id, SHOWN, Process("pn", "/d", proof, 1), **more)


def subscribe(topic: str = "a/*", *, id: bytes = SUB, proof: bytes = b"right") -> InitSub:
    return InitSub(Endpoint(id, topic, 5000), SHOWN, Process("sn", "/d", proof, 2))


# Processes of this machine


def test_a_match_is_told_to_the_subscriber_then_wired_then_told_to_the_publisher() -> None:
    core = Driven()
    subscriber = core.local(subscribe())
    assert core.said() == {subscriber: [SubInit()]}
    publisher = core.local(publish())
    told = SubInsertPublisher(Endpoint(PUB, "a/b"), HERE, Path.SHARED_MEMORY, "pn", 70)
    assert core.said() == {publisher: [PubInit([])], subscriber: [told]}
    core.hears(subscriber, Ready(70))
    assert core.others() == [Wire(70, "pn", "sn")]
    core.core.wired(70, Streamed(stream=1, prepared=3, bound=2))
    there = PubInsertSubscriber(Reachable(SUB, HERE, 5000), Path.SHARED_MEMORY, "sn", 1, 3, 2, 70)
    assert core.said() == {publisher: [there]}


def wired() -> tuple[Driven, int, int]:
    core = Driven()
    subscriber, publisher = core.local(subscribe()), core.local(publish())
    core.hears(subscriber, Ready(70))
    core.core.wired(70, Streamed(1, 3, 2))
    core.others()
    return core, publisher, subscriber


def test_a_subscriber_that_leaves_is_told_and_its_stream_let_go() -> None:
    core, publisher, subscriber = wired()
    core.core.lost(subscriber, 1.0)
    assert core.said() == {publisher: [PubRemoveSubscriber(Gone(SUB))]}
    assert core.others() == [Unwire(70)]


def test_a_publisher_that_leaves_is_told_and_its_stream_let_go() -> None:
    core, publisher, subscriber = wired()
    core.core.lost(publisher, 1.0)
    assert core.said() == {subscriber: [SubRemovePublisher(Gone(PUB))]}
    assert core.others() == [Unwire(70)]


def test_one_that_leaves_while_its_stream_is_made_is_never_told_to_the_publisher() -> None:
    core = Driven()
    subscriber, publisher = core.local(subscribe()), core.local(publish())
    core.hears(subscriber, Ready(70))
    core.others()
    core.core.lost(subscriber, 1.0)
    core.core.wired(70, Streamed(1, 3, 2))
    assert core.said() == {}
    assert core.done == [Unwire(70)]
    assert publisher


def test_a_stream_that_was_reset_is_made_again() -> None:
    core, publisher, subscriber = wired()
    core.hears(publisher, Lost(70))
    told = SubInsertPublisher(Endpoint(PUB, "a/b"), HERE, Path.SHARED_MEMORY, "pn", 71)
    assert core.said() == {subscriber: [SubRemovePublisher(Gone(PUB)), told]}
    assert core.others() == [Unwire(70)]
    core.hears(publisher, Lost(70))  # which it says late, or twice
    core.hears(subscriber, Ready(71))
    assert core.others() == [Wire(71, "pn", "sn")]
    core.hears(subscriber, Lost(71))
    assert core.others() == [Close(subscriber), Unwire(71)]


def test_those_without_proof_are_listed_and_get_no_stream() -> None:
    core = Driven()
    subscriber = core.local(subscribe(proof=b"wrong"))
    publisher = core.local(publish())
    said = core.said()
    assert said[publisher] == [PubInit([Reachable(SUB, HERE, 5000)])]
    assert said[subscriber] == [SubInit(), SubInsertPublisher(Endpoint(PUB, "a/b"), HERE)]
    core.core.lost(subscriber, 1.0)
    assert core.said() == {publisher: [PubRemoveSubscriber(Gone(SUB))]}
    assert core.done == []


def test_a_stream_that_outlived_a_participant_is_taken_over() -> None:
    core = Driven()
    subscriber = core.local(subscribe())
    publisher = core.local(publish(wired=[Wired(SUB, "sn", 1, 3, 2, 5)]))
    made = Streamed(1, 3, 2)
    assert core.said() == {
        subscriber: [SubInit(), SubInsertPublisher(Endpoint(PUB, "a/b"), HERE, Path.SHARED_MEMORY, "pn", 5)],
        publisher: [
            PubInit([]),
            PubInsertSubscriber(Reachable(SUB, HERE, 5000), Path.SHARED_MEMORY, "sn", 1, 3, 2, 5),
        ],
    }
    assert core.done == [Wire(5, "pn", "sn", made)]


def test_a_stream_of_a_subscriber_that_has_another_process_now_is_not_taken_over() -> None:
    core = Driven()
    core.local(subscribe())
    core.local(publish(wired=[Wired(SUB, "gone", 1, 3, 2, 5)]))
    assert core.others() == []  # before it is made anew, the subscriber has to be ready


def test_one_that_comes_back_before_it_was_missed_takes_its_own_place() -> None:
    core, publisher, subscriber = wired()
    again = core.local(publish(wired=[Wired(SUB, "sn", 1, 3, 2, 70)]))
    said = core.said()
    assert core.done == [Close(publisher), Unwire(70), Wire(70, "pn", "sn", Streamed(1, 3, 2))]
    assert [type(message) for message in said[subscriber]] == [SubRemovePublisher, SubInsertPublisher]
    assert [type(message) for message in said[again]] == [PubInit, PubInsertSubscriber]
    core.core.lost(publisher, 1.0)  # of whom nothing is left
    assert core.said() == {}


def test_one_whose_nukleus_is_dead_is_gone_though_its_connection_is_open() -> None:
    core, publisher, subscriber = wired()
    core.core.dead({"sn"}, 1.0)
    assert core.said() == {publisher: [PubRemoveSubscriber(Gone(SUB))]}
    assert core.done == [Close(subscriber), Unwire(70)]


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (Credentials(b"cookie", "default", VERSION + 1), Reason.VERSION),
        (Credentials(b"cookie", "lab"), Reason.DOMAIN),
        (Credentials(b"other", "default"), Reason.COOKIE),
        (Credentials(b"", "default"), Reason.COOKIE),
    ],
)
def test_who_may_not_is_told_why_and_put_out(shown: Credentials, reason: Reason) -> None:
    core = Driven()
    process = Process("n", "/d", b"right", 1)
    for message, failed in (
        (InitPub("a", PUB, shown, process), PubInitFailed),
        (InitSub(Endpoint(SUB, "a"), shown, process), SubInitFailed),
    ):
        connection = core.local(message)
        ((answer,),) = core.said().values()
        assert isinstance(answer, failed)
        assert answer.reason is reason
        assert core.others() == [Close(connection)]
    assert len(core.core.locals) == 0


@pytest.mark.parametrize(
    "message", [publish(""), publish("a/*"), publish("x" * 300), subscribe("a//b"), subscribe("a*")]
)
def test_what_is_no_topic_is_refused(message: Message) -> None:
    core = Driven()
    connection = core.local(message)
    ((answer,),) = core.said().values()
    assert isinstance(answer, PubInitFailed | SubInitFailed)
    assert answer.reason is Reason.TOPIC
    assert core.others() == [Close(connection)]


@pytest.mark.parametrize(
    "messages",
    [
        [Ready(70)],
        [publish(), publish()],
        [publish(), Ready(1 << 40), subscribe()],
        [subscribe(), InitLook(SHOWN)],
    ],
)
def test_who_says_what_makes_no_sense_is_put_out_and_missed(messages: list[Message]) -> None:
    core = Driven()
    connection = core.local(*messages)
    assert Close(connection) in core.others()
    assert len(core.core.locals) == 0
    assert core.core.counters["bad messages"] == 1


def test_nobody_is_ready_for_the_stream_of_another_one() -> None:
    core = Driven()
    core.local(subscribe())
    core.local(publish())
    thief = core.local(subscribe("x", id=FAR))
    core.others()
    core.hears(thief, Ready(70))
    assert core.others() == [Close(thief)]


def test_who_says_nothing_is_put_out() -> None:
    core = Driven()
    connection = core.local()
    assert core.core.deadline == 0.0  # the first beacon
    core.core.advance(0.0)
    core.core.advance(rules.STRANGER_S)
    assert Close(connection) in core.others()


# Other participants


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


def test_it_is_over_when_the_last_one_has_left_for_long_enough() -> None:
    core = Driven(linger_s=2.0)
    assert not core.core.over(rules.FIRST_S - 0.1)  # the process that it was started for may yet come
    assert core.core.over(rules.FIRST_S)
    one, two = core.local(publish()), core.local(subscribe())
    core.core.lost(one, 50.0)
    assert not core.core.over(60.0)
    core.core.lost(two, 60.0)
    assert not core.core.over(61.9)
    assert core.core.over(62.0)


def test_an_onlooker_sees_everybody() -> None:
    core = Driven()
    core.local(publish())
    core.participant(PartInit([], [Endpoint(FAR, "a/b")], OTHER))
    core.said()
    looking = core.local(InitLook(SHOWN))
    (answer,) = core.said()[looking]
    assert isinstance(answer, LookInit)
    assert [(seen.hello, seen.ip, seen.linked) for seen in answer.participants] == [
        (ME, HERE, True),
        (OTHER, "10.0.0.2", True),
    ]
    assert answer.participants[1].subscribers == [Endpoint(FAR, "a/b")]
    core.core.lost(looking, 1.0)
    assert core.said() == {}
