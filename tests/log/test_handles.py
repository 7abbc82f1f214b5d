"""File handles: as many as the process may have, and no more."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from echomesh.log.handles import FEWEST, allowed
from tests.support.repository import ROOT

SCRIPT = """
import json, os, resource, sys
from echomesh.log import LogOptions, TopicLog
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[3])))
with TopicLog(sys.argv[1], LogOptions(duplicate_bytes=0)) as log:
    for round in range(2):
        for t in range(200):
            assert log.append(f"t{t}", b"%d" % t) == round
    reader = log.reader()
    assert all(reader.topic(f"t{t}").read(0).events() == [b"%d" % t] * 2 for t in range(200))
    limit, open_files = log.core.handles.limit, len(os.listdir("/proc/self/fd"))
print(json.dumps([limit, open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""


def run(directory: Path, soft: int, hard: int) -> tuple[int, int, int]:
    """A log of 200 topics in a process with these limits: its limit, what it had open, its soft limit then."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", SCRIPT, str(directory), str(soft), str(hard)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    limit, open_files, now = json.loads(found.stdout)
    return limit, open_files, now


def test_the_soft_limit_goes_up_as_far_as_it_must(tmp_path: Path) -> None:
    limit, open_files, soft = run(tmp_path, 256, 8192)
    assert (limit, soft) == (1024, 4096)
    assert open_files > 200, "all topics stay open"


def test_where_the_hard_limit_is_low_fewer_segments_are_open(tmp_path: Path) -> None:
    limit, open_files, soft = run(tmp_path, 200, 300)
    assert (limit, soft) == (75, 300)
    assert open_files <= 300


def test_a_limit_that_is_high_enough_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("not needed")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4096, 4096))
    assert allowed(1024) == 1024
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert allowed(100_000) == 100_000


def test_a_limit_that_can_not_be_raised_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1000, resource.RLIM_INFINITY))
    assert allowed(1024) == 250
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (20, 20))
    assert allowed(1024) == FEWEST
