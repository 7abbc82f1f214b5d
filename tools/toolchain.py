"""Says in one sentence what this machine lacks to compile the core, or nothing.

Run by `make` and by `setup.py`, before either of them would fail with a page of compiler output.
"""

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path


def missing() -> str | None:
    """The sentence to show, or None when a compiler and the headers of this Python are there."""
    lacks = []
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if not shutil.which(compiler):
        lacks.append((f"a C compiler ({compiler})", "gcc"))
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        lacks.append((f"the header files of Python {version}", f"python{version}-dev"))
    if not lacks:
        return None
    what = " and ".join(name for name, _ in lacks)
    packages = " ".join(package for _, package in lacks)
    return f"echomesh compiles its core and this machine lacks {what}: apt-get install {packages}"


if __name__ == "__main__":
    sys.exit(missing())
