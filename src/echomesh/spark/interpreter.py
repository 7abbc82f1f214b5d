"""The Python that Spark starts for its workers."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from echomesh.spark.cache import kept

# Spark puts archives of its own before all other packages. Those of its sources have no compiled files, so that each
# worker would compile PySpark anew: half a second for every query, and the same code is installed.
# Spark tells workers of tasks how many threads libraries may start, but not those of sources: NumPy's would wait for
# work in a loop, on all cores.
# It closes the connection of a worker that had nothing to do for a minute, and what starts workers would print where
# each of them noticed that.
_SHIM: Final = """\
#!/bin/sh
set -f
left=
IFS=:
for path in $PYTHONPATH; do
    case $path in
        {home}/*) ;;
        *) left=$left${{left:+:}}$path ;;
    esac
done
case "$1 $2" in
    "-m pyspark.daemon") shift 2; set -- -c {daemon} "$@" ;;
esac
export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"
PYTHONPATH=$left exec {python} "$@"
"""

_DAEMON: Final = """\
import pyspark.daemon as daemon

worker = daemon.worker


def until_closed(*arguments):
    try:
        return worker(*arguments)
    except BrokenPipeError:
        return 1


daemon.worker = until_closed
daemon.manager()
"""


def find_python(environment: Mapping[str, str] | None = None) -> str:
    """What PYSPARK_PYTHON should be for workers on this machine: this Python, by a shim that starts it sooner."""
    found = os.environ if environment is None else environment
    home = Path(pyspark.__file__).parent
    if "SPARK_HOME" in found and Path(found["SPARK_HOME"]).resolve() != home.resolve():
        return sys.executable  # that Spark may have another version than what is installed here
    named = found.get("SPARK_HOME", str(home.resolve()))
    text = _SHIM.format(home=shlex.quote(named), python=shlex.quote(sys.executable), daemon=shlex.quote(_DAEMON))

    def write(shim: Path) -> None:
        shim.write_text(text)
        shim.chmod(0o755)

    shim = kept(f"python-{hashlib.sha256(text.encode()).hexdigest()[:12]}", write)
    return str(shim) if os.access(shim, os.X_OK) else sys.executable  # a home may be mounted so that nothing there runs
