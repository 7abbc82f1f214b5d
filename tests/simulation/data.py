"""Replays runs of the data plane's simulation: `python -m tests.simulation.data SEED [SIZE]` prints what happened."""

from __future__ import annotations

import sys
import traceback

from tests.simulation.data_world import DataWorld


def replay(seed: int, size: int | None) -> tuple[str, bool]:
    """The trace of a run, and whether all agreed in the end."""
    world = DataWorld(seed, size=size, tracing=True)
    try:
        world.run()
        end = "All agreed."
    except BaseException:
        end = traceback.format_exc()
    return "\n".join([*world.clock.trace, end]), end == "All agreed."


if __name__ == "__main__":
    told, agreed = replay(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
    sys.stdout.write(f"{told}\n")
    sys.exit(not agreed)
