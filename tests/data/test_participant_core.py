"""A participant's core: what it tells whom when somebody comes and goes on this machine."""

from __future__ import annotations

import pytest

from echomesh.data import participant_core as rules
from echomesh.data.membership import Close
from echomesh.data.messages import (
    VERSION,
    Credentials,
    Endpoint,
    Gone,
    InitLook,
    InitPub,
    InitSub,
    LookInit,
    Lost,
    Message,
    PartInit,
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
from echomesh.data.outputs import Streamed, Unwire, Wire
from tests.data.participant_support import FAR, HERE, ME, OTHER, PUB, SHOWN, SUB, Driven, publish, subscribe, wired


def test_a_match_is_told_to_the_subscriber_then_wired_then_told_to_the_publisher() -> None:
    core = Driven()
    subscriber = core.local(subscribe())
    assert core.said() == {subscriber: [SubInit()]}
    publisher = core.local(publish())
    told = SubInsertPublisher(Endpoint(PUB, "a/b"), HERE, Path.SHARED_MEMORY, "pn", 70)
    assert core.said() == {publisher: [PubInit([], [SUB])], subscriber: [told]}
    core.hears(subscriber, Ready(70))
    assert core.others() == [Wire(70, "pn", "sn")]
    core.core.wired(70, Streamed(stream=1, prepared=3, bound=2))
    there = PubInsertSubscriber(Reachable(SUB, HERE, 5000), Path.SHARED_MEMORY, "sn", 1, 3, 2, 70)
    assert core.said() == {publisher: [there]}


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


def test_one_that_leaves_while_its_stream_is_made_does_not_come_to_the_publisher() -> None:
    core = Driven()
    subscriber, publisher = core.local(subscribe()), core.local(publish())
    core.hears(subscriber, Ready(70))
    core.others()
    core.core.lost(subscriber, 1.0)
    core.core.wired(70, Streamed(1, 3, 2))
    assert core.said() == {publisher: [PubRemoveSubscriber(Gone(SUB))]}
    assert core.done == [Unwire(70)]


def test_a_publisher_that_has_not_heard_of_a_subscriber_is_not_told_that_it_left() -> None:
    core = Driven()
    publisher, subscriber = core.local(publish()), core.local(subscribe())
    assert core.said()[publisher] == [PubInit([], [])]
    core.hears(subscriber, Ready(70))
    assert core.others() == [Wire(70, "pn", "sn")]
    core.core.lost(subscriber, 1.0)
    assert core.said() == {}
    assert core.done == [Unwire(70)]


def test_a_publisher_that_asked_for_another_stream_is_told_that_its_subscriber_left() -> None:
    core, publisher, subscriber = wired()
    core.hears(publisher, Lost(70))
    core.said()
    core.core.lost(subscriber, 1.0)
    assert core.said() == {publisher: [PubRemoveSubscriber(Gone(SUB))]}


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
            PubInit([], [SUB]),
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
