"""What the figures were measured on, and who else used it meanwhile."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NOISY_CPUS = 0.2
LOOK_SECONDS = 0.1
PACKAGES = ("echomesh", "pyzmq", "eclipse-zenoh", "iceoryx2", "nats-py")


def machine(packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """Cores, processor, kernel, Python and package versions."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def wait_until_quiet(patience: float) -> float:
    """Waits while others use the machine, `patience` seconds at the most; returns how long that was."""
    start = time.monotonic()
    while time.monotonic() - start < patience:
        load = OtherLoad()
        time.sleep(LOOK_SECONDS)
        if load.cpus() <= NOISY_CPUS:
            break
    return time.monotonic() - start


class OtherLoad:
    """How many CPUs everybody else used since it was made: all but this process and those that it began."""

    def __init__(self) -> None:
        self.start = _busy_seconds() - _own_seconds(), time.monotonic()

    def cpus(self) -> float:
        busy, since = self.start
        elapsed = time.monotonic() - since
        return max(0.0, _busy_seconds() - _own_seconds() - busy) / elapsed if elapsed > 0 else 0.0


def _busy_seconds() -> float:
    # user nice system idle iowait irq softirq steal: all but idle and iowait. Stolen time is noise too.
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total + _descendants_seconds()


def _descendants_seconds() -> float:
    # Of those that run still, with the children that each has waited for.
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(words[1])
                ticks[int(entry.name)] = sum(map(int, words[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks[pid] for pid in own - {os.getpid()}) / float(os.sysconf("SC_CLK_TCK"))


def free_port() -> int:
    """A TCP port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
