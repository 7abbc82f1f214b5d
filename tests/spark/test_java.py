"""Spark gets a Java from the machine, or the one that was installed with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from echomesh.spark.java import OLDEST, find_java, version
from tests.support.counts import full_only
from tests.support.repository import ROOT


def java(directory: Path, found: int, *, release: bool = True) -> Path:
    """A directory that looks like a Java of this version."""
    (directory / "bin").mkdir(parents=True)
    command = directory / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{found}.0.1\"' >&2\n")
    command.chmod(0o755)
    if release:
        (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{found}.0.1"\n')
    return directory


def test_the_java_of_the_environment_comes_first(tmp_path: Path) -> None:
    home, other = java(tmp_path / "home", 21), java(tmp_path / "other", 17, release=False)
    both = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(both) == str(home)
    assert find_java({"PATH": str(other / "bin")}) == str(other)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = java(tmp_path / "old", 11)
    new = java(tmp_path / "new", OLDEST)
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == str(new)
    (tmp_path / "8").mkdir()
    assert version(tmp_path / "8") == 0


def test_without_one_the_installed_package_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = Path(find_java({"PATH": ""}))
    assert home.is_relative_to(tmp_path)
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert version(home) >= OLDEST
    assert "version" in told
    assert find_java({"PATH": "", "JAVA_HOME": str(tmp_path / "nothing")}) == str(home)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # nothing can be written there
    assert version(Path(find_java({"PATH": ""}))) >= OLDEST


def test_without_a_home_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "temporary")}
    program = "from echomesh.spark.java import find_java; print(find_java({'PATH': ''}))"
    command = [sys.executable, "-c", program]
    found = subprocess.run(
        command, env=environment | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True
    ).stdout
    assert found.startswith(str(tmp_path / "temporary"))
    assert not list((tmp_path / "temporary").iterdir())


@full_only
@pytest.mark.spark
def test_spark_runs_on_a_machine_without_java(data: Path, tmp_path: Path) -> None:
    from tests.spark.support import made, opened, without_java

    with opened(data) as log:
        log.append_many("a", made(10))
    program = (
        "from echomesh.spark import read_topic, session\n"
        "spark = session(config={'spark.driver.extraJavaOptions': '-XX:TieredStopAtLevel=1'})\n"
        f"print(read_topic(spark, 'a', path={str(data)!r}).count(), 'events')\n"
    )
    environment = {**without_java(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert "10 events" in result.stdout, result.stderr[-3000:]
