"""A run says which counts are in force, what it looped over and what it skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

INNER = """
import pytest
from tests.support.counts import count

def test_loops():
    for _ in range(count(20, 200)):
        pass

@pytest.mark.parametrize("n", [1, 2])
def test_skipped(n):
    pytest.skip("no such tool here")
"""


@pytest.mark.parametrize(("full", "given"), [("", "20"), ("0", "20"), ("1", "200")])
def test_a_run_reports_its_counts_and_its_skips(tmp_path: Path, full: str, given: str) -> None:
    (tmp_path / "test_inner.py").write_text(INNER)
    environment = {**os.environ, "ECHOMESH_TEST_FULL": full, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_CURRENT_TEST", None)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(tmp_path)]
    output = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"counts: {'full' if given == '200' else 'quick'}" in output
    assert f"test_inner.py::test_loops: {given} of 200" in output
    assert "    2 no such tool here" in output
