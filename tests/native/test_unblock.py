"""Places that a dead writer left: what `unblock` and `heal` pad, and what they leave alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import BusyError, UsageError
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from tests.native.support.memory import (
    RING_TRAILER,
    get32,
    get64,
    put32,
    put64,
    record,
    scratch,
    set_positions,
)

CAPACITY = 256
PADDING = -1
IDLE, CLAIMING, PUBLISHING = range(3)
SERIAL_INTENT = CAPACITY + 136


def crafted(head: int, tail: int, records: dict[int, bytes]) -> tuple[Mapping, Ring]:
    """A ring with these bytes at these indexes, between poisoned neighbours."""
    mapping = scratch(64 + CAPACITY + RING_TRAILER + 64)
    view = memoryview(mapping)
    view[:64] = view[-64:] = b"\xee" * 64
    # The bytes right behind are unused by a ring: whoever looks past the capacity finds a record there.
    view[64 + CAPACITY + 16 : 64 + CAPACITY + 128] = record(16, 9) * 14
    for at, data in records.items():
        view[64 + at : 64 + at + len(data)] = data
    put64(mapping, 64 + CAPACITY + 384, head)
    put64(mapping, 64 + CAPACITY + 256, head)
    put64(mapping, 64 + CAPACITY + 128, tail)
    return mapping, Ring(mapping, 64, CAPACITY)


def header_at(mapping: Mapping, at: int) -> tuple[int, int]:
    return get32(mapping, 64 + at), get32(mapping, 64 + at + 4)


def test_an_empty_ring_and_a_published_record_are_left_alone() -> None:
    for head, tail, records in ((0, 0, {}), (512, 512, {}), (0, 16, {0: record(16, 5)})):
        mapping, ring = crafted(head, tail, records)
        before = bytes(mapping)
        assert ring.unblock() is False
        assert ring.unblock(to_tail=True) is False
        assert bytes(mapping) == before


@pytest.mark.parametrize("to_tail", [False, True])
def test_a_negative_length_becomes_padding_of_that_length(to_tail: bool) -> None:
    mapping, ring = crafted(16, 64, {16: record(-21, 7), 40: record(24, 8)})
    assert ring.unblock(to_tail=to_tail) is True
    assert header_at(mapping, 16) == (21, PADDING)
    assert ring.drain() == [(8, bytes(16))]
    assert ring.head == ring.tail


def test_a_zero_length_is_padded_up_to_the_next_record() -> None:
    for behind in (record(16, 8), record(-16, 8)):
        mapping, ring = crafted(8, 80, {56: behind})
        assert ring.unblock() is True
        assert header_at(mapping, 8) == (48, PADDING)
        assert header_at(mapping, 56) == (get32(mapping, 64 + 56), 8)


def test_a_zero_length_is_padded_to_the_end_where_the_tail_has_wrapped() -> None:
    for tail in (CAPACITY, CAPACITY + 16, CAPACITY + 208):
        mapping, ring = crafted(208, tail, {})
        assert ring.unblock() is True
        assert header_at(mapping, 208) == (48, PADDING)
        assert ring.drain() == []
        assert ring.head == CAPACITY


@pytest.mark.parametrize("head", [0, 8, 128, 248, CAPACITY * 1000 + 40])
def test_a_full_ring_of_dead_claims_is_freed(head: int) -> None:
    mapping, ring = crafted(head, head + CAPACITY, {})
    assert ring.blocked()
    while ring.blocked():
        assert ring.unblock(to_tail=True) is True
        assert ring.drain() == []
    assert ring.head == ring.tail
    assert bytes(memoryview(mapping)[64 : 64 + CAPACITY]) == bytes(CAPACITY)


def test_a_full_ring_with_a_dead_claim_at_its_head_keeps_what_is_published() -> None:
    ring = Ring(scratch(CAPACITY + RING_TRAILER))
    claim = ring.claim(1, 8)
    while ring.write(2, b"published"):
        pass
    assert ring.size == CAPACITY
    dead = memoryview(claim)  # type: ignore[arg-type]  # kept: the claim's owner is dead and will not abort it
    assert ring.unblock() is True
    assert ring.drain() == [(2, b"published")] * 10
    dead.release()


def test_nothing_published_behind_is_left_alone_unless_to_tail() -> None:
    mapping, ring = crafted(32, 96, {})
    before = bytes(mapping)
    assert ring.unblock() is False
    assert bytes(mapping) == before
    assert ring.unblock(to_tail=True) is True
    assert header_at(mapping, 32) == (64, PADDING)
    assert ring.drain() == []
    assert ring.head == ring.tail == 96


def test_it_never_looks_past_the_capacity() -> None:
    # The neighbours behind are poison that looks like records; a scan that ran on would stop at one of them.
    mapping, ring = crafted(248, CAPACITY + 8, {})
    assert ring.unblock() is True
    assert header_at(mapping, 248) == (8, PADDING)
    assert bytes(memoryview(mapping)[:64]) == bytes(memoryview(mapping)[-64:]) == b"\xee" * 64


@pytest.mark.parametrize("length", [-1, -7, -49, -256, -(2**31), 2**31 - 1, 1])
def test_a_length_that_can_not_be_true_is_not_padded(length: int) -> None:
    mapping, ring = crafted(208, CAPACITY + 208, {208: record(length, 3)})
    before = bytes(mapping)
    assert ring.unblock(to_tail=True) is False
    assert bytes(mapping) == before


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (16, 8),
        (4, 64),
        (0, 20),
        (0, CAPACITY + 8),
        (-(2**63), 2**63 - 8),
        (2**63 - 8, -(2**63)),
        (2**63 - 8, 0),
        (-8, -16),
    ],
)
def test_impossible_positions_are_left_alone(head: int, tail: int) -> None:
    mapping, ring = crafted(head, tail, {})
    before = bytes(mapping)
    assert ring.unblock() is False
    assert ring.unblock(to_tail=True) is False
    assert bytes(mapping) == before


@given(
    head=st.integers(0, 511).map(lambda n: n * 8),
    used=st.integers(0, 40).map(lambda n: n * 8),
    words=st.lists(st.tuples(st.integers(0, 31), st.integers(-300, 300).filter(bool)), max_size=8),
    to_tail=st.booleans(),
)
def test_whatever_is_padded_lies_between_head_and_tail(
    head: int, used: int, words: list[tuple[int, int]], to_tail: bool
) -> None:
    mapping, ring = crafted(head, head + used, {at * 8: record(length, 5) for at, length in words})
    before = bytes(mapping)
    index = head % CAPACITY
    was = header_at(mapping, index)
    if not ring.unblock(to_tail=to_tail):
        assert bytes(mapping) == before
        return
    length, kind = header_at(mapping, index)
    assert was[0] <= 0
    assert kind == PADDING
    assert 8 <= length <= CAPACITY - index
    if was[0] == 0:  # nothing that stands there was padded over
        assert bytes(before[64 + index + 8 : 64 + index + length]).count(0) == length - 8
        assert length <= used
    after = bytearray(bytes(mapping))
    after[64 + index : 64 + index + 8] = before[64 + index : 64 + index + 8]
    assert bytes(after) == before


@dataclass
class Locked:
    """A ring whose writers take turns, and where their intent stands."""

    mapping: Mapping
    ring: Ring

    def set_intent(self, position: int, count: int, state: int) -> None:
        for n, value in enumerate((position, count, state)):
            put64(self.mapping, SERIAL_INTENT + 8 * n, value)

    @property
    def state(self) -> int:
        return get64(self.mapping, SERIAL_INTENT + 16)


@pytest.fixture
def locked() -> Locked:
    mapping = scratch(CAPACITY + RING_TRAILER)
    return Locked(mapping, Ring(mapping, serial=True))


START = 3 * CAPACITY + 40


def died(locked: Locked, state: int, *, claimed: bool, header: int = 0, head: int = START, count: int = 24) -> None:
    """Memory as a writer of `count` bytes at START leaves it when it is killed at that step."""
    set_positions(locked.mapping, CAPACITY, head, START + count if claimed else START)
    put32(locked.mapping, START % CAPACITY, header)
    put32(locked.mapping, START % CAPACITY + 4, 7 if header else 0)
    locked.set_intent(START, count, state)


def works_on(locked: Locked, expected: list[tuple[int, bytes]]) -> None:
    """After the healing: the next writer writes, the reader gets all of it, nothing is left."""
    assert locked.state == IDLE
    assert locked.ring.write(9, b"next")
    assert locked.ring.drain() == [*expected, (9, b"next")]
    assert locked.ring.head == locked.ring.tail
    assert bytes(memoryview(locked.mapping)[:CAPACITY]) == bytes(CAPACITY)


def test_death_before_the_claim_leaves_nothing(locked: Locked) -> None:
    died(locked, CLAIMING, claimed=False)
    assert locked.ring.heal() is False
    works_on(locked, [])


def test_death_after_the_claim_is_padded(locked: Locked) -> None:
    died(locked, CLAIMING, claimed=True)
    assert locked.ring.heal() is True
    works_on(locked, [])


def test_death_with_a_negative_header_is_padded(locked: Locked) -> None:
    for state in (CLAIMING, PUBLISHING):
        died(locked, state, claimed=True, header=-20)
        assert locked.ring.heal() is True
        works_on(locked, [])


def test_death_after_publishing_keeps_the_message(locked: Locked) -> None:
    died(locked, PUBLISHING, claimed=True, header=20)
    assert locked.ring.heal() is False
    works_on(locked, [(7, bytes(12))])


def test_death_after_the_reader_consumed_the_message_changes_nothing(locked: Locked) -> None:
    died(locked, PUBLISHING, claimed=True, header=0, head=START + 24)
    before = bytes(memoryview(locked.mapping)[:CAPACITY])
    assert locked.ring.heal() is False
    assert bytes(memoryview(locked.mapping)[:CAPACITY]) == before
    works_on(locked, [])


def test_death_before_the_reader_stored_its_head_changes_nothing(locked: Locked) -> None:
    # The reader has zeroed the record and not yet moved its head on: it looks unclaimed, and is not.
    died(locked, PUBLISHING, claimed=True, header=0, head=START)
    before = bytes(memoryview(locked.mapping)[:CAPACITY])
    assert locked.ring.heal() is False
    assert bytes(memoryview(locked.mapping)[:CAPACITY]) == before


def test_an_idle_intent_heals_nothing_even_over_a_claimed_place(locked: Locked) -> None:
    died(locked, IDLE, claimed=True, header=-20)
    assert locked.ring.heal() is False


def test_the_padding_before_a_wrap_is_a_claim_of_its_own(locked: Locked) -> None:
    start = 2 * CAPACITY - 16
    for claimed, header in ((True, 0), (True, -16)):
        set_positions(locked.mapping, CAPACITY, start, start + 16 if claimed else start)
        put32(locked.mapping, start % CAPACITY, header)
        locked.set_intent(start, 16, CLAIMING)
        assert locked.ring.heal() is True
        assert (locked.ring.drain(), locked.ring.head) == ([], 2 * CAPACITY)
    set_positions(locked.mapping, CAPACITY, start, start)
    assert locked.ring.write(1, bytes(17))
    assert locked.state == IDLE
    assert locked.ring.tail == 2 * CAPACITY + 32
    assert locked.ring.drain() == [(1, bytes(17))]


def test_a_writer_that_was_not_healed_is_not_written_over(locked: Locked) -> None:
    died(locked, CLAIMING, claimed=True)
    with pytest.raises(BusyError):
        locked.ring.write(1, b"")
    assert locked.ring.heal() is True
    works_on(locked, [])


@given(
    position=st.one_of(st.integers(-600, 1200), st.integers(-(2**63), 2**63 - 1)),
    count=st.one_of(st.integers(-64, 300), st.integers(-(2**63), 2**63 - 1)),
    state=st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)),
    positions=st.tuples(st.integers(0, 200), st.integers(0, 32)),
)
def test_an_intent_that_can_not_be_true_heals_nothing_outside_head_and_tail(
    position: int, count: int, state: int, positions: tuple[int, int]
) -> None:
    mapping = scratch(CAPACITY + RING_TRAILER)
    locked = Locked(mapping, Ring(mapping, serial=True))
    head, tail = positions[0] * 8, (positions[0] + positions[1]) * 8
    set_positions(mapping, CAPACITY, head, tail)
    locked.set_intent(position, count, state)
    before = bytes(mapping)[:CAPACITY]
    healed = locked.ring.heal()
    if healed:
        assert head <= position
        assert position + count <= tail
    else:
        assert bytes(mapping)[:CAPACITY] == before
    assert locked.state == IDLE


def test_only_a_ring_with_intents_can_be_healed() -> None:
    with pytest.raises(UsageError):
        Ring(scratch(CAPACITY + RING_TRAILER)).heal()
