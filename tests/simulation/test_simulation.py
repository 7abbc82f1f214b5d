"""Whole meshes in one process, with everything going wrong that can; each run is made from its seed alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import promises
from tests.simulation.world import World
from tests.support.counts import count
from tests.support.repository import ROOT


@pytest.mark.timeout(3600)
def test_every_promise_is_kept_whatever_goes_wrong(shm_dir: Path) -> None:
    for seed in range(count(200, 2000)):
        world = World(seed, shm_dir / str(seed))
        try:
            world.run()
            promises.check(world)
        except Exception as error:
            error.add_note(f"python -m tests.simulation {seed}   # tells what happened")
            raise


@pytest.mark.parametrize("seed", [6, 39])
def test_a_run_is_made_from_its_seed_alone(seed: int) -> None:
    assert_repeats("tests.simulation", seed)


def assert_repeats(module: str, seed: int) -> None:
    """Has the same run made by two processes, and compares what they tell."""
    traces = []
    for hash_seed in ("1", "2"):
        # Processes in which no set is in the order of the other's.
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", module, str(seed)]
        done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        traces.append(done.stdout.splitlines())
    assert len(traces[0]) > 100
    assert traces[0] == traces[1]
