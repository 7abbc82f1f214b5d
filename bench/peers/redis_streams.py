"""Redis Streams at its best: a server of its own on a unix socket, a client that writes the protocol's bytes itself.

Of the client's work only what any client must do is left, so the figure is the server's.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness.pairs import MeasurementFailed
from bench.peers.installed import installed

READY_SECONDS = 15.0


def appends(ready: Callable[[], None], directory: str, seconds: float, fsync: str, size: int, in_flight: int) -> float:
    """XADDs a second that were answered, with so many in flight; `fsync` is the server's appendfsync."""
    path = Path(directory, "redis.sock")
    options = {
        "port": "0", "unixsocket": str(path), "dir": directory, "save": "", "appendonly": "yes", "appendfsync": fsync,
        "daemonize": "no", "logfile": str(Path(directory, "redis.log")),
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    process = subprocess.Popen([installed("redis-server"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            _connect(connection, process, path)
            ready()
            return _add(connection, seconds, size, in_flight)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _connect(connection: socket.socket, process: subprocess.Popen[bytes], path: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            connection.connect(str(path))
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise MeasurementFailed("redis-server did not start") from None
            time.sleep(0.02)


def _add(connection: socket.socket, seconds: float, size: int, in_flight: int) -> float:
    words = (b"XADD", b"events", b"*", b"d", b"x" * size)
    command = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    commands = [command * count for count in range(in_flight + 1)]
    answered = lines = 0
    start = time.perf_counter()
    end = start + seconds
    connection.sendall(commands[in_flight])
    waiting = in_flight
    while waiting:
        found = connection.recv(1 << 16)
        if not found or b"-ERR" in found:
            raise MeasurementFailed(f"redis-server answered {found[:100]!r}")
        # An answer is two lines: its length, and the id.
        lines += found.count(b"\n")
        done, lines = divmod(lines, 2)
        answered += done
        waiting -= done
        if time.perf_counter() < end:
            connection.sendall(commands[done])
            waiting += done
    return answered / (time.perf_counter() - start)
