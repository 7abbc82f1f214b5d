"""Counters by label, and no room for them."""

from __future__ import annotations

from pathlib import Path

from echomesh.native.counters import Counters
from echomesh.native.mapping import Mapping
from echomesh.nukleus.tally import Tally


def tally_of(directory: Path, slots: int) -> Tally:
    labels = Mapping.create(directory / "labels", 128 * slots)
    values = Mapping.create(directory / "values", 128 * slots)
    return Tally(Counters(labels, values))


def test_a_counter_is_made_once_and_counts(shm_dir: Path) -> None:
    tally = tally_of(shm_dir, 4)
    assert tally.all() == {}
    for _ in range(3):
        tally.count("apples")
    tally.count("pears")
    assert tally.all() == {"apples": 3, "pears": 1}
    assert tally.counter("apples") is tally.counter("apples")


def test_without_room_it_goes_on_uncounted(shm_dir: Path) -> None:
    tally = tally_of(shm_dir, 1)
    for label in ("apples", "pears", "apples", "pears"):
        tally.count(label)
    assert tally.all() == {"apples": 2}
    assert tally.counter("pears") is None
