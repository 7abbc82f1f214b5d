"""The main demonstration, on a machine without Java and with an empty home."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.support import without_java
from tests.support.counts import count
from tests.support.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]

CLAIMS = [
    "the killed Spark driver went on from its checkpoints",
    "publishers and pipelines outlived the killed node",
    "published = stored + quarantined + duplicates",
    "no event is missing, and none there twice",
    "every window counts right",
    "alerts fired and were resolved once each",
]


@pytest.mark.timeout(500)
def test_the_city_loses_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "city"
    environment = {**without_java(tmp_path), "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
    options = ["--city-seconds", str(count(30, 60)), "--keep", str(kept)]
    command = [sys.executable, "-m", "echomesh", "demo", "city", *options]
    result = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=480, check=False
    )
    log = kept / "spark.log"
    told = f"{result.stdout}{result.stderr}{log.read_text()[-3000:] if log.exists() else ''}"
    assert [claim for claim in CLAIMS if f"\u2713  {claim}" not in result.stdout] == [], told
    assert result.returncode == 0, told
    assert (kept / "city.svg").read_text().startswith("<svg")
    assert not [path.name for path in Path("/proc").glob("[0-9]*/cmdline") if str(kept) in _read(path)], "left behind"


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
