"""Acknowledgements of a client: no gap is ever jumped, nothing settled comes twice, all is told in the end."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from echomesh.mesh.client_acks import Range, Run, TopicAcks
from echomesh.mesh.ranges import RangeSet
from tests.support.counts import count


def told(acks: TopicAcks) -> list[tuple[int, int]]:
    return [(found.first, found.end) for found in acks.take()]


def test_what_is_settled_in_order_is_told_as_one_range_over_deliveries() -> None:
    acks = TopicAcks("t")
    assert acks.deliver(Run(10, 13, 300, "a")) == [(10, 13)]
    assert acks.deliver(Run(13, 15, 200, "b")) == [(13, 15)]
    assert [acks.settle(offset, offset + 1) for offset in (10, 11, 12, 13)] == [0, 0, 300, 0]
    assert acks.untold
    assert acks.take() == [Range(10, 14, "b")]
    assert not acks.untold
    assert acks.settle(14, 15) == 200
    assert acks.take() == [Range(14, 15, "b")]


def test_a_gap_holds_back_what_is_behind_it() -> None:
    acks = TopicAcks("t")
    acks.deliver(Run(0, 5, 50, "a"))
    for offset in (4, 2, 1):
        acks.settle(offset, offset + 1)
    assert told(acks) == []
    acks.settle(0, 1)
    assert told(acks) == [(0, 3)]
    acks.settle(3, 4)
    assert told(acks) == [(3, 5)]


def test_settling_twice_or_what_never_came_changes_nothing() -> None:
    acks = TopicAcks("t")
    acks.deliver(Run(5, 7, 20, "a"))
    for offset in (5, 5, 3, 7, 100, 6, 6, 5):
        acks.settle(offset, offset + 1)
    assert told(acks) == [(5, 7)]
    assert told(acks) == []


def test_a_lost_range_is_settled_by_its_first_offset() -> None:
    acks = TopicAcks("t")
    assert acks.deliver(Run(0, 1 << 40, 64, "a", whole=True)) == [(0, 1 << 40)]
    acks.deliver(Run(1 << 40, (1 << 40) + 1, 100, "b"))
    assert acks.settle(0, 1) == 64
    assert told(acks) == [(0, 1 << 40)]


def test_what_was_given_back_is_left_out() -> None:
    acks = TopicAcks("t")
    acks.deliver(Run(0, 6, 60, "a"))
    acks.settle(0, 1)
    acks.give_back(1)
    acks.settle(2, 3)
    acks.give_back(4)
    acks.settle(3, 4)
    acks.settle(5, 6)
    assert told(acks) == [(0, 1), (2, 4), (5, 6)]
    assert acks.deliver(Run(1, 2, 10, "again")) == [(1, 2)]
    acks.settle(1, 2)
    assert acks.take() == [Range(1, 2, "again")]


def test_a_delivery_out_of_order_is_acknowledged_alone() -> None:
    acks = TopicAcks("t")
    acks.deliver(Run(20, 30, 100, "a"))
    assert acks.deliver(Run(10, 12, 20, "b")) == [(10, 12)]
    acks.settle(11, 12)
    assert acks.take() == [Range(11, 12, "b")]
    acks.settle(20, 21)
    assert acks.take() == [Range(20, 21, "a")]


def test_after_a_lost_connection_only_what_was_not_settled_comes_again() -> None:
    acks = TopicAcks("t")
    acks.deliver(Run(0, 6, 60, "a"))
    for offset in (0, 1, 3):
        acks.settle(offset, offset + 1)
    assert told(acks) == [(0, 2)]  # and never got there
    acks.reset()
    acks.settle(5, 6)  # was still in the user's hands
    assert acks.deliver(Run(0, 8, 80, "b")) == [(2, 3), (4, 5), (6, 8)]
    assert told(acks) == [(0, 2)]
    acks.settle(2, 3)
    assert told(acks) == [(2, 4)]
    for offset in (7, 6, 4):
        acks.settle(offset, offset + 1)
    assert told(acks) == [(4, 8)]


def test_a_lost_range_that_was_settled_is_not_told_the_user_again() -> None:
    acks = TopicAcks("t")
    acks.deliver(Run(0, 9, 64, "a", whole=True))
    acks.settle(0, 1)
    acks.take()
    acks.reset()
    assert acks.deliver(Run(0, 9, 64, "b", whole=True)) == []
    assert told(acks) == [(0, 9)]


def test_memory_for_scattered_offsets_is_bounded() -> None:
    acks = TopicAcks("t")
    for number in range(count(2_000, 100_000)):
        acks.deliver(Run(number * 10, number * 10 + 1, 10, "a"))
        acks.settle(number * 10, number * 10 + 1)
        acks.take()
    assert len(acks._settled) <= 256


class FakeServer:
    """Delivers until everything was acknowledged, as a server does; and forgets what it had delivered at a reset."""

    def __init__(self, seed: int, end: int) -> None:
        self.random = random.Random(seed)
        self.end = end
        self.acked = RangeSet()
        self.back: list[int] = []
        self.given: set[int] = set()
        self.next = 0

    def delivery(self) -> Run | None:
        if self.back and (self.next >= self.end or self.random.random() < 0.3):
            offset = self.back.pop(self.random.randrange(len(self.back)))
            self.given.add(offset)
            return Run(offset, offset + 1, 10, f"back-{offset}")
        missing = self.acked.missing(self.next, self.end)
        missing = [(first, end) for first, end in missing if not self.given.issuperset(range(first, end))]
        if not missing:
            return None
        first, end = missing[0]
        end = min(end, first + self.random.randint(1, 6))
        self.next = end
        self.given.update(range(first, end))
        return Run(first, end, 10 * (end - first), f"run-{first}")

    def acknowledge(self, first: int, end: int) -> None:
        assert self.given.issuperset(range(first, end)), "acknowledged what it does not have"
        self.acked.add(first, end)

    def refuse(self, offset: int) -> None:
        self.back.append(offset)
        self.given.discard(offset)

    def lose(self) -> None:
        self.next = 0
        self.given.clear()
        self.back.clear()


@given(seed=st.integers(0, 1 << 32), end=st.integers(1, 40))
def test_in_any_order_with_refusals_and_lost_connections_all_is_told_once_settled(seed: int, end: int) -> None:
    server, acks, rng = FakeServer(seed, end), TopicAcks("t"), random.Random(seed + 1)
    hands: set[int] = set()
    settled: set[int] = set()

    def settle(offset: int) -> None:
        hands.discard(offset)
        settled.add(offset)
        acks.settle(offset, offset + 1)

    for _ in range(200):
        action = rng.random()
        if action < 0.4 and (run := server.delivery()) is not None:
            for first, behind in acks.deliver(run):
                assert settled.isdisjoint(range(first, behind)), "handed out what was settled"
                hands.update(range(first, behind))
        elif action < 0.8 and hands:
            settle(rng.choice(sorted(hands)))
        elif action < 0.85 and (here := sorted(hands & server.given)):
            offset = rng.choice(here)
            hands.discard(offset)
            acks.give_back(offset)
            server.refuse(offset)
        elif action < 0.95:
            for found in acks.take():
                assert settled.issuperset(range(found.first, found.end)), "told what is not settled"
                server.acknowledge(found.first, found.end)
        elif action < 0.98:
            if rng.random() < 0.5:
                acks.take()  # sent, and lost on the way
            acks.reset()
            server.lose()
    while (run := server.delivery()) is not None or hands:
        for first, behind in acks.deliver(run) if run is not None else []:
            hands.update(range(first, behind))
        for offset in sorted(hands):
            settle(offset)
        for found in acks.take():
            server.acknowledge(found.first, found.end)
    assert list(server.acked) == [(0, end)]
