"""How often a counted test loops: a few times in `make test`, as often as promised in `make test-full`."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

FULL = os.environ.get("ECHOMESH_TEST_FULL", "") not in ("", "0")

full_only = pytest.mark.skipif(
    not FULL, reason="takes Spark long, and another test shows the most of it: in make test-full"
)
"""For a cluster, Spark Connect, what the city shows in `make test` (a killed driver and node, no Java) and the like."""


@dataclass(frozen=True)
class Counted:
    """One call of `count`: which test asked, what it got and what a full run gives."""

    test: str
    given: int
    full: int

    def __str__(self) -> str:
        return f"{self.test}: {self.given:,} of {self.full:,}"


recorded: list[Counted] = []


def count(quick: int, full: int) -> int:
    """The number of rounds for this run; the summary at the end says it beside the full number."""
    given = full if FULL else quick
    # pytest sets "tests/test_x.py::test_y (call)" while a test runs, and nothing while it collects.
    current = os.environ.get("PYTEST_CURRENT_TEST", "(while collecting)").rpartition(" (")
    recorded.append(Counted(current[0] or current[2].strip("()"), given, full))
    return given
