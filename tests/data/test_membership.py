"""Membership: who connects to whom, who is dropped when, and that there is one connection in the end."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from echomesh.data import membership as rules
from echomesh.data.membership import Close, Dial, Effect, Left, Membership
from echomesh.data.messages import VERSION, Hello

EXPIRY_S = 3.5


def hello(id: bytes, started: int = 10) -> Hello:
    return Hello(4000, VERSION, "default", id * 16, started)


class Member:
    """A membership in the test's hands."""

    def __init__(self, id: bytes) -> None:
        self.hello = hello(id)
        self.counts: Counter[str] = Counter()
        self.core = Membership(self.hello, EXPIRY_S, itertools.count(100).__next__, self._count)

    def _count(self, label: str) -> None:
        self.counts[label] += 1

    def effects(self) -> list[Effect]:
        found, self.core.effects = self.core.effects, []
        return found

    def linked(self, other: Hello, connection: int, now: float = 0.0) -> bool:
        """Somebody connected and said who he is."""
        assert self.core.accepted(connection, "10.0.0.9", now)
        return self.core.introduced(connection, other, now)

    def link_of(self, other: Hello) -> int | None:
        return self.core.peers[other.id].link


def test_the_smaller_id_connects_at_the_first_beacon() -> None:
    me = Member(b"a")
    me.core.hear(hello(b"b"), "10.0.0.2", 0.0)
    assert me.effects() == [Dial(100, "10.0.0.2", 4000)]
    me.core.hear(hello(b"b"), "10.0.0.2", 1.0)
    assert me.effects() == []


def test_the_larger_id_connects_after_three_beacons_without_a_connection() -> None:
    me = Member(b"b")
    for now in (0.0, 1.0):
        me.core.hear(hello(b"a"), "10.0.0.1", now)
        assert me.effects() == []
    me.core.hear(hello(b"a"), "10.0.0.1", 2.0)
    assert me.effects() == [Dial(100, "10.0.0.1", 4000)]


def test_a_try_that_failed_is_made_again_at_the_next_beacon() -> None:
    me = Member(b"a")
    me.core.hear(hello(b"b"), "10.0.0.2", 0.0)
    me.core.lost(100)
    assert me.effects() == [Dial(100, "10.0.0.2", 4000)]
    me.core.hear(hello(b"b"), "10.0.0.3", 1.0)  # from where it was heard last
    assert me.effects() == [Dial(101, "10.0.0.3", 4000)]


@pytest.mark.parametrize(("mine", "theirs", "kept"), [(b"a", b"b", "dialed"), (b"b", b"a", "accepted")])
@pytest.mark.parametrize("first", ["dialed", "accepted"])
def test_of_two_connections_the_one_of_the_smaller_id_is_kept(
    mine: bytes, theirs: bytes, kept: str, first: str
) -> None:
    me, other = Member(mine), hello(theirs)
    for now in (0.0, 1.0, 2.0):
        me.core.hear(other, "10.0.0.2", now)
    (dial,) = me.effects()
    assert isinstance(dial, Dial)
    assert me.core.accepted(7, "10.0.0.2", 2.0)
    numbers = {"dialed": dial.connection, "accepted": 7}
    second = "accepted" if first == "dialed" else "dialed"
    assert me.core.introduced(numbers[first], other, 2.0)
    assert me.core.introduced(numbers[second], other, 2.0) == (kept == second)
    closed = numbers["accepted" if kept == "dialed" else "dialed"]
    assert me.effects() == [Close(closed)]  # and nobody has left
    assert me.link_of(other) == numbers[kept]


def test_a_second_connection_by_the_same_one_takes_the_place_of_the_first() -> None:
    me, other = Member(b"b"), hello(b"a")
    assert me.linked(other, 1)
    assert me.linked(other, 2)
    assert me.effects() == [Close(1)]
    assert me.link_of(other) == 2


def test_a_lost_connection_means_that_all_it_had_is_gone() -> None:
    me, other = Member(b"b"), hello(b"a")
    me.linked(other, 1)
    me.core.lost(1)
    assert me.effects() == [Left(other.id)]
    assert me.link_of(other) is None


def test_one_that_is_not_heard_any_more_is_dropped_with_its_connection() -> None:
    me, other = Member(b"b"), hello(b"a")
    me.linked(other, 1)
    me.core.alive(1, 1.0)
    me.core.expire(1.0 + EXPIRY_S - 0.01)
    assert me.effects() == []
    assert me.core.deadline == 1.0 + EXPIRY_S
    me.core.expire(1.0 + EXPIRY_S)
    assert me.effects() == [Close(1), Left(other.id)]
    assert me.core.peers == {}


def test_one_whose_beacons_are_lost_lives_by_its_connection() -> None:
    me, other = Member(b"b"), hello(b"a")
    me.core.hear(other, "10.0.0.1", 0.0)
    me.linked(other, 1)
    for now in range(1, 20):
        me.core.alive(1, float(now))
        me.core.expire(float(now))
    assert me.effects() == []


def test_a_silent_connection_is_dropped_though_beacons_are_heard() -> None:
    me, other = Member(b"b"), hello(b"a")
    me.linked(other, 1)
    for now in (1.0, 2.0, 3.0, 4.0):
        me.core.hear(other, "10.0.0.1", now)
        me.core.expire(now)
    assert me.effects() == [Close(1), Left(other.id)]
    assert other.id in me.core.peers


def test_a_restart_with_the_same_id_takes_the_place_of_the_old_run() -> None:
    me, other = Member(b"b"), hello(b"a", started=10)
    me.linked(other, 1)
    again = hello(b"a", started=11)
    assert me.linked(again, 2)
    assert me.effects() == [Close(1), Left(other.id)]
    assert me.core.peers[other.id].hello == again


def test_what_an_earlier_run_said_is_ignored() -> None:
    me, other = Member(b"b"), hello(b"a", started=10)
    me.linked(other, 1)
    me.core.hear(hello(b"a", started=9), "10.0.0.1", 1.0)
    assert not me.linked(hello(b"a", started=9), 2)
    assert me.effects() == [Close(2)]
    assert me.link_of(other) == 1
    assert me.counts["beacons of the dead"] == 2


def test_whoever_sleeps_does_not_take_the_others_for_silent() -> None:
    me, other = Member(b"b"), hello(b"a")
    me.linked(other, 1)
    me.core.slept(60.0, 60.5)
    me.core.expire(60.5)
    assert me.effects() == []
    me.core.expire(60.5 + EXPIRY_S)
    assert me.effects() == [Close(1), Left(other.id)]


def test_who_does_not_say_who_he_is_is_put_out() -> None:
    me = Member(b"b")
    assert me.core.accepted(1, "10.0.0.1", 0.0)
    me.core.alive(1, 4.0)  # noise is no introduction
    me.core.expire(rules.STRANGER_S)
    assert me.effects() == [Close(1)]


def test_there_is_room_for_so_many_strangers_and_no_more() -> None:
    me = Member(b"b")
    taken = [me.core.accepted(number, "10.0.0.1", 0.0) for number in range(rules.MAX_STRANGERS + 1)]
    assert taken == [True] * rules.MAX_STRANGERS + [False]
    assert me.counts["strangers too many"] == 1


def test_a_flood_of_made_up_participants_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_PEERS", 50)
    monkeypatch.setattr(rules, "MAX_DIALS", 8)
    me = Member(b"\0")
    for number in range(1000):
        me.core.hear(Hello(4000, VERSION, "default", number.to_bytes(16, "big"), 1), "10.0.0.1", 0.0)
    assert len(me.core.peers) == 50
    assert len(me.effects()) == me.core.size == 8
    me.core.expire(EXPIRY_S)
    assert (me.core.peers, me.core.size) == ({}, 0)
