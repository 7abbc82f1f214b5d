"""The oldest PySpark that is supported reads and writes as the newest does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.counts import FULL
from tests.support.repository import ROOT

OLDEST = "4.2"
FILES = (
    "source",
    "stream",
    "loss",
    "overtaken",
    "batch",
    "jvm",
    "jvm_fetch",
    "jars",
    "sink",
    "tls",
    "connect",
    "checkpoints",
    "checkpoint_files",
)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not FULL, reason=f"PySpark {OLDEST} is fetched and tried with the full counts only")
def test_the_oldest_pyspark_reads_and_writes_as_the_newest_does(tmp_path: Path) -> None:
    wanted = [f"pyspark=={OLDEST}.*"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    fetched = subprocess.run(
        [*pip, "--target", str(tmp_path / "older"), *wanted], capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        pytest.skip(f"PySpark {OLDEST} can't be fetched here: {fetched.stderr.strip().splitlines()[-1]}")
    path = os.pathsep.join([str(tmp_path / "older"), str(ROOT / "src"), str(ROOT)])
    environment = {key: value for key, value in os.environ.items() if key not in ("ECHOMESH_TEST_FULL", "SPARK_HOME")}
    version = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"],
        env=environment | {"PYTHONPATH": path}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert version.startswith(OLDEST)
    files = [f"tests/spark/test_{name}.py" for name in FILES]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env=environment | {"PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-5000:]
