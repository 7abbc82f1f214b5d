"""Hostile files: a typed error or a normal result, never a crash or a hang."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from echomesh.native.mapping import Mapping
from tests.native.support.memory import get64
from tests.native.support.processes import ROOT, environment
from tests.support.counts import count


@pytest.mark.parametrize("what", ["ring", "broadcast", "counters", "opening"])
@pytest.mark.timeout(900)
def test_hostile_bytes_give_typed_errors_or_results(shm_dir: Path, what: str) -> None:
    seeds = count(1_000, 20_000)
    first = random.randrange(2**32)
    reached = Mapping.create(shm_dir / "seed", 8)
    limit_s = 60 + seeds // 50
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.native.support.fuzzers",
            what,
            str(first),
            str(seeds),
            str(limit_s),
            shm_dir / "seed",
        ],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{what}, seed {get64(reached, 0)}: exit code {done.returncode}\n{done.stderr}"
    assert get64(reached, 0) == first + seeds - 1
