"""Counters: against a model, between processes, in damaged files."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echomesh.errors import CountersFull, MessageTooLarge, RingDamaged, UsageError
from echomesh.native.counters import Counter, Counters
from echomesh.native.mapping import Mapping
from tests.native.support.memory import get32, get64, put32, scratch
from tests.native.support.processes import running
from tests.support.counts import count

LABELS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda text: len(text.encode()) <= 124
)
LONGS = st.integers(-(2**63), 2**63 - 1)


class CountersAgainstModel(RuleBasedStateMachine):
    """Allocates, frees, sets and adds; the first free slot is taken, and a freed value waits there."""

    @initialize(slots=st.integers(1, 12))
    def begin(self, slots: int) -> None:
        self.labels, self.values = scratch(slots * 128 + 64), scratch(slots * 128)
        self.table = Counters(self.labels, self.values)
        self.model: list[tuple[str | None, int]] = []
        self.made: dict[int, Counter] = {}
        self.slots = slots
        assert self.table.slots == slots

    @rule(label=LABELS)
    def allocate(self, label: str) -> None:
        free = next((n for n, (name, _) in enumerate(self.model) if name is None), len(self.model))
        if free == self.slots:
            with pytest.raises(CountersFull) as caught:
                self.table.allocate(label)
            assert caught.value.slots == self.slots
            return
        counter = self.table.allocate(label)
        assert (counter.id, counter.value) == (free, 0)
        self.model[free : free + 1] = [(label, 0)]
        self.made[free] = counter

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 11))
    def free(self, which: int) -> None:
        number = sorted(self.made)[which % len(self.made)]
        self.table.free(self.made.pop(number))
        self.model[number] = (None, self.model[number][1])

    @precondition(lambda self: self.made)
    @rule(which=st.integers(0, 11), value=LONGS, add=st.booleans())
    def change(self, which: int, value: int, add: bool) -> None:
        number = sorted(self.made)[which % len(self.made)]
        label, before = self.model[number]
        if add:
            self.made[number].add(value)
            value = (before + value + 2**63) % 2**64 - 2**63
        else:
            self.made[number].value = value
        self.model[number] = (label, value)

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        expected = [(n, label, value) for n, (label, value) in enumerate(self.model) if label is not None]
        assert self.table.list() == expected
        assert Counters(self.labels, self.values).list() == expected
        for n in range(self.slots):
            label, value = self.model[n] if n < len(self.model) else ("", 0)
            assert get32(self.labels, n * 128) == (-1 if label is None else len(label.encode()))
            assert get64(self.values, n * 128) == value


TestCountersAgainstModel = CountersAgainstModel.TestCase


def test_a_label_has_1_to_124_bytes() -> None:
    table = Counters(scratch(1024), scratch(1024))
    table.allocate("é" * 62)
    with pytest.raises(MessageTooLarge):
        table.allocate("é" * 62 + "x")
    with pytest.raises(UsageError):
        table.allocate("")
    assert table.list() == [(0, "é" * 62, 0)]


def test_a_counter_of_another_table_is_not_freed_here() -> None:
    large, small = Counters(scratch(4096), scratch(4096)), Counters(scratch(128), scratch(128))
    counters = [large.allocate(str(n)) for n in range(20)]
    small.allocate("only one")
    for counter in counters:
        with pytest.raises(UsageError):
            small.free(counter)
    assert len(small.list()) == 1


def test_the_table_may_stand_in_the_middle_of_a_file() -> None:
    mapping = scratch(1024)
    view = memoryview(mapping)
    view[:64], view[64 + 512 :] = b"\xee" * 64, b"\xee" * (1024 - 576)
    table = Counters(mapping, mapping, 64, 64 + 256, 256, 256)
    assert table.slots == 2
    table.allocate("a" * 124).value = -1
    table.allocate("b" * 124).value = -1
    assert bytes(view[:64]) == b"\xee" * 64
    assert bytes(view[64 + 512 :]) == b"\xee" * (1024 - 576)


@pytest.mark.parametrize(
    "place",
    [
        (-8, 0, 128, 128),
        (0, 4, 128, 128),
        (0, 0, 1025, 128),
        (0, 904, 128, 128),
        (0, 0, -1, 128),
        (8, 8, 2**63 - 8, 2**63 - 8),
        (2**63 - 8, 0, 128, 128),
    ],
)
def test_a_table_beyond_its_file_is_damage(place: tuple[int, int, int, int]) -> None:
    with pytest.raises(RingDamaged):
        Counters(scratch(1024), scratch(1024), *place)


def test_an_impossible_label_is_damage_and_a_broken_one_is_shown_as_far_as_it_goes() -> None:
    labels = scratch(1024)
    table = Counters(labels, scratch(1024))
    table.allocate("abcd")
    memoryview(labels)[4:6] = b"\xff\xc3"
    assert table.list() == [(0, "��cd", 0)]
    for length in (125, 2**31 - 1):
        put32(labels, 0, length)
        with pytest.raises(RingDamaged):
            table.list()
    put32(labels, 0, -(2**31))
    assert table.list() == []


def test_a_table_that_is_mapped_for_reading_only_can_be_listed_and_no_more(shm_dir: Path) -> None:
    labels, values = (Mapping.create(shm_dir / name, 1024) for name in ("labels", "values"))
    counter = Counters(labels, values).allocate("seen")
    counter.value = 7
    labels, values = (Mapping.open(shm_dir / name, writable=False) for name in ("labels", "values"))
    table = Counters(labels, values)
    assert table.list() == [(0, "seen", 7)]
    with pytest.raises(UsageError):
        table.allocate("not this")
    with pytest.raises(UsageError):
        table.free(counter)


def test_a_counter_outlives_its_table(shm_dir: Path) -> None:
    counter = Counters(scratch(1024), scratch(1024)).allocate("alone")
    counter.add(5)
    counter.add()
    counter.add(-2)
    assert counter.value == 4


def test_no_addition_of_four_processes_is_lost(shm_dir: Path) -> None:
    times = count(50_000, 1_000_000)
    values = Mapping.create(shm_dir / "values", 128)
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(running("broadcasters", "add", shm_dir, number, times)) for number in range(4)]
        assert [other.line() for other in others] == ["ready"] * 4
        for other in others:
            other.say()
        assert [other.end() for other in others] == [0] * 4
    assert get64(values, 0) == 4 * 3 * times
