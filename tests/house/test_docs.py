"""The documentation is true: its links lead somewhere and its Python examples run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.markdown import blocks, broken_links
from tests.support.repository import ROOT, files

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(p for p in files(ROOT / "docs") if p.suffix == ".md")]


RUN = {page: "".join(block.code for block in blocks(page.read_text()) if block.runs) for page in PAGES}
SPARK = [page for page, code in RUN.items() if "echomesh.spark" in code]


def run(config: Path, *pages: Path, patience_s: float = 100.0) -> subprocess.CompletedProcess[str]:
    """Run the examples of these pages as a reader on a fresh machine would."""
    own = {"ECHOMESH_DIR": str(config / "mesh"), "ECHOMESH_PARTICIPANT_PORT": "0", "ECHOMESH_LINGER_SECONDS": "0"}
    environment = {**os.environ, **own, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-W", "error", "-m", "tests.support.markdown", *map(str, pages)]
    return subprocess.run(
        command, cwd=config, env=environment, capture_output=True, text=True, timeout=patience_s, check=False
    )


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", [page for page, code in RUN.items() if code and page not in SPARK], ids=name)
def test_examples_run(page: Path, shm_dir: Path) -> None:
    result = run(shm_dir, page)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_examples_of_spark_run(shm_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One Java for all, and without its slower compiler: it would not live long enough to gain by it.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    result = run(shm_dir, *SPARK, patience_s=590.0)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_blocks_of_a_page_share_names_and_may_await(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n```python\nimport asyncio\nx = 6\n```\n\ntext\n\n"
        "```python\nawait asyncio.sleep(0)\nprint(x * 7)\n```\n"
        "```python no-run\nraise SystemExit(3)\n```\n```sh\nexit 4\n```\n"
    )
    result = run(tmp_path, page)
    assert (result.returncode, result.stdout, result.stderr) == (0, "42\n", "")


def test_an_example_that_fails_is_found_out_with_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nsome text\n\n```python\nx = 1\nraise RuntimeError('wrong')\n```\n")
    result = run(tmp_path, page)
    assert result.returncode == 1
    assert "line 7" in result.stderr


def test_a_broken_link_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# One Thing\n\n## And `another`!\n")
    page.write_text(
        "[a](other.md) [b](other.md#one-thing) [c](other.md#and-another) [d](https://example.invalid/)\n"
        "[e](missing.md) [f](other.md#nothing) `[g](code.md)`\n\n```text\n[h](code.md)\n```\n"
    )
    assert broken_links(page) == ["missing.md", "other.md#nothing"]
