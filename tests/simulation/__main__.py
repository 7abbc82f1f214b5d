"""Replays runs of the simulation: `python -m tests.simulation SEED` prints what happened, and what should not have."""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path

from tests.simulation import promises
from tests.simulation.world import World


def replay(seed: int) -> tuple[str, bool]:
    """The trace of a run, and whether every promise was kept."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        world = World(seed, Path(directory) / "mesh", tracing=True)
        try:
            world.run()
            promises.check(world)
            end = "Every promise was kept."
        except BaseException:
            end = traceback.format_exc()
        text = "\n".join([*world.clock.trace, end])
        return text.replace(directory, ""), end.endswith("kept.")


if __name__ == "__main__":
    told, kept = replay(int(sys.argv[1]))
    sys.stdout.write(f"{told}\n")
    sys.exit(not kept)
