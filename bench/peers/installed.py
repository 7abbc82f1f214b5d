"""Where a peer's server program is."""

from __future__ import annotations

import os
import shutil
import subprocess

from bench.harness.pairs import MeasurementFailed

INSTALL_SECONDS = 300.0
_PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"))


def installed(program: str) -> str:
    """The path of a server program; Debian's package of that name is installed where that is possible."""
    if (found := find(program)) is not None:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MeasurementFailed(f"no {program} here: apt-get install {program}")
    # RUNLEVEL=1: installed, not started.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", program]
    for step in (command, ["apt-get", "update", "-qq"], command):
        subprocess.run(step, env=environment, capture_output=True, timeout=INSTALL_SECONDS, check=False)
        if (found := find(program)) is not None:
            return found
    raise MeasurementFailed(f"no {program} here, and apt-get could not install it")


def find(program: str) -> str | None:
    """The path of a program that is installed; servers may be where only root looks for them."""
    return shutil.which(program, path=_PLACES)
