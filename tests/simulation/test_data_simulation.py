"""Participants of whole meshes in one process, with everything going wrong that can; each run is made from its seed."""

from __future__ import annotations

import pytest

from tests.simulation.data_world import DataWorld
from tests.simulation.test_simulation import assert_repeats
from tests.support.counts import count

FOUND = [1146]  # broke a promise once: a publisher was told that somebody left of whom it had not heard


@pytest.mark.timeout(3600)
def test_memberships_and_matches_agree_in_the_end_whatever_goes_wrong() -> None:
    for seed in (*FOUND, *range(count(100, 5000))):
        run(seed)


@pytest.mark.timeout(3600)
def test_fifty_participants_agree_too() -> None:
    for seed in range(count(1, 20)):
        run(seed, size=50)


@pytest.mark.parametrize("seed", [0, 5])
def test_a_run_is_made_from_its_seed_alone(seed: int) -> None:
    assert_repeats("tests.simulation.data", seed)


def run(seed: int, size: int | None = None) -> None:
    world = DataWorld(seed, size=size)
    try:
        world.run()
    except Exception as error:
        error.add_note(f"python -m tests.simulation.data {seed} {size or ''}   # tells what happened")
        raise
