"""Without PySpark there is a sentence that says what to install, not a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Gone())
"""


def told(program: str) -> subprocess.CompletedProcess[str]:
    """What this program says where PySpark is not installed."""
    return subprocess.run([sys.executable, "-c", WITHOUT + program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["session", "jar", "read_topic", "stream_topic"])
def test_what_is_imported_says_what_to_install(name: str) -> None:
    program = f"""
import echomesh.spark
from echomesh.errors import UsageError
try:
    echomesh.spark.{name}
except UsageError as error:
    print(error)
"""
    assert 'pip install "echomesh[spark]"' in told(program).stdout


def test_the_command_says_what_to_install() -> None:
    said = told("from echomesh.cli.app import run; sys.exit(run(['pipeline', 'run', 'archive', '--data', 'nowhere']))")
    assert said.returncode == 2
    assert 'pip install "echomesh[spark]"' in " ".join(said.stderr.split())
    assert "Traceback" not in said.stderr


def test_other_packages_that_are_missing_are_named_as_ever() -> None:
    said = told("""
from echomesh.spark.needs import pyspark_needed
with pyspark_needed():
    import surely_not_there
""")
    assert "ModuleNotFoundError: No module named 'surely_not_there'" in said.stderr
