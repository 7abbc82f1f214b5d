"""What all tests share: the counts in force, a directory in shared memory, a summary that hides no skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import counts

SPARK = Path(__file__).parent / "spark"
OWN_SPARK = ("_city_kills.py", "_cluster.py", "_connect.py", "_java.py")  # these start others than the session of all
DOCS = "tests/house/test_docs.py"  # and so do its examples
FULL_S = 1200

settings.register_profile("quick", max_examples=50, deadline=None, derandomize=False, print_blob=True)
settings.register_profile("full", settings.get_profile("quick"), max_examples=1000)
settings.load_profile("full" if counts.FULL else "quick")


def pytest_report_header() -> str:
    if counts.FULL:
        return "counts: full"
    return "counts: quick (make test-full, or ECHOMESH_TEST_FULL=1, for the full ones)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of Spark take longest, so they come first. With the full counts a test has more time."""
    items.sort(key=lambda item: SPARK not in item.path.parents and not item.nodeid.startswith(DOCS))
    for item in items if counts.FULL else ():
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(FULL_S))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where several processes share the tests, those of a file stay together, and so do those of Spark: more than three
    Sparks at once take longer to start than Spark waits for them.
    """
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Files(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            if file == DOCS or file.endswith(OWN_SPARK):
                return f"{SPARK.name}/own"
            if file.startswith("tests/spark/"):
                # One session for source and sink, one for what stands on them.
                return SPARK.name if file.count("/") == 2 else f"{SPARK.name}/pipelines"
            return file

    return Files(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skips = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if skips:
        terminalreporter.section("skipped, by reason")
        for reason, number in skips.most_common():
            terminalreporter.write_line(f"{number:5} {reason}")
    if counts.recorded:
        terminalreporter.section(f"counted loops ({'full' if counts.FULL else 'quick'})")
        for line in dict.fromkeys(map(str, counts.recorded)):
            terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["counted"] = [(each.test, each.given, each.full) for each in counts.recorded]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    # Where several processes share the tests, each has counted its own.
    for each in getattr(node, "workeroutput", {}).get("counted", ()):
        counts.recorded.append(counts.Counted(*each))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


@pytest.fixture
def shm_dir() -> Iterator[Path]:
    """A fresh directory in shared memory that only this user can read; gone after the test."""
    path = Path(tempfile.mkdtemp(prefix=f"echomesh-test-{os.getpid()}-", dir="/dev/shm"))
    yield path
    while path.exists():
        with suppress(FileNotFoundError):  # a process that is about to end removes its own files
            shutil.rmtree(path)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    place = tmp_path / "tmpfs"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
