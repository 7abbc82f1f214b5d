"""A process to be killed: it puts numbers by name in turn, flushes at random, and says up to which number it did."""

from __future__ import annotations

import os
import random
import sys

from echomesh.mesh.state import StateFile
from tests.mesh.state_support import LOG_ID


def main(path: str, begun: int) -> None:
    chosen = random.Random(begun)
    state = StateFile(path, LOG_ID, threaded=True, compact_bytes=1 << 13)
    os.write(1, b"open\n")
    for i in range(begun, begun + 1_000_000):
        state.put(("k", str(i % 100)), i)
        if chosen.random() < 0.2:
            if chosen.random() < 0.05:
                state.sync()
            if state.flush():
                os.write(1, b"%d\n" % (i + 1))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
