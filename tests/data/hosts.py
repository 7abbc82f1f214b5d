"""Hosts as network namespaces, joined by a switch that is one too."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.data.machines import Machine


def ip(*arguments: str) -> None:
    """Runs `ip`."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


class HostMachine(Machine):
    """A machine with a network of its own: usual ports, one interface."""

    def __init__(self, namespace: str, address: str, root: Path, **environment: str) -> None:
        super().__init__(root, **environment)
        self.namespace = namespace
        self.address_of_host = address

    def command(self, *arguments: str) -> list[str]:
        """In the namespace."""
        return ["ip", "netns", "exec", self.namespace, *super().command(*arguments)]

    def inside(self, *command: str) -> None:
        """Runs something there."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.namespace, *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def unplug(self) -> None:
        """Takes the cable out: nobody is told anything."""
        self.inside("ip", "link", "set", "eth0", "down")

    def plug(self) -> None:
        """Puts it in again."""
        self.inside("ip", "link", "set", "eth0", "up")


@contextlib.contextmanager
def hosts(number: int, root: Path, **environment: str) -> Iterator[list[HostMachine]]:
    """Hosts 10.77.0.1, 10.77.0.2 ... that see each other, and their processes; all is removed in the end."""
    prefix = f"em{os.getpid()}"
    with contextlib.ExitStack() as held:
        switch = f"{prefix}-s"
        _namespace(held, switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        made = []
        for index in range(1, number + 1):
            name, address = f"{prefix}-{index}", f"10.77.0.{index}"
            _namespace(held, name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{index}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{index}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"{address}/24", "broadcast", "10.77.0.255", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
            made.append(HostMachine(name, address, root / f"host{index}", **environment))
            held.callback(made[-1].close)
        yield made


def _namespace(held: contextlib.ExitStack, name: str) -> None:
    ip("netns", "add", name)
    held.callback(ip, "netns", "del", name)
