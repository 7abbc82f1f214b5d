"""Compiles the checker, once for each version of its source and of Python."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("checker.pyx")
CACHE = Path(__file__).resolve().parents[2] / "build" / "bench"


def built() -> Path:
    """The directory with the extension; compiles it when it is not there."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    version = hashlib.sha256(SOURCE.read_bytes() + sys.version.encode()).hexdigest()[:16]
    directory = CACHE / version
    target = directory / f"checker{suffix}"
    if not target.exists():
        directory.mkdir(parents=True, exist_ok=True)
        # Two processes may come here at once: each compiles for itself, and the last rename wins.
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            made = _compiled(Path(work), f"checker{suffix}")
            made.replace(target)
    return directory


def _compiled(work: Path, name: str) -> Path:
    source, target = work / "checker.c", work / name
    compiler = shlex.split(os.environ.get("CC") or "cc")
    include = sysconfig.get_path("include")
    name_it = ["--module-name", "bench.native.checker"]
    for command in (
        [sys.executable, "-m", "cython", "-3", *name_it, str(SOURCE), "-o", str(source)],
        [*compiler, "-O3", "-std=gnu11", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(target)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ImportError(f"the checker did not compile: {shlex.join(command)}\n{done.stdout}{done.stderr}")
    return target
