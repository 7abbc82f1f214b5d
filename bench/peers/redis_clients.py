"""Redis Streams over TCP: a server, and clients that write and read the protocol's bytes themselves.

What they leave out of a client's work is what would make Redis look slow: replies are taken apart by one regular
expression that knows how large the events are, acknowledgements go out in one write with the next read.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness.load import Delivered, Published, Ready
from bench.harness.machine import free_port
from bench.harness.numbered import END, InOrder, halves
from bench.harness.pairs import MeasurementFailed
from bench.harness.servers import ServerProgram
from bench.peers.installed import installed

READ_TOGETHER = 256
RECEIVE_BYTES = 1 << 20

_STREAM = b"events"


def serve(directory: str, fsync: str) -> ServerProgram:
    """A server whose appendfsync is `fsync`; it never rewrites its file, which would be in the way."""
    port = free_port()
    options = {
        "port": str(port), "bind": "127.0.0.1", "dir": directory, "save": "", "appendonly": "yes",
        "appendfsync": fsync, "auto-aof-rewrite-percentage": "0", "daemonize": "no",
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return ServerProgram([installed("redis-server"), *words], port, Path(directory, "redis.log"))


def publish(ready: Ready, address: str, seconds: float, size: int, window: int) -> Published:
    """XADDs that were answered, with `window` of them in flight, and one more at the end."""
    adds = _adds(size)
    with _connect(address) as connection:
        answers = _Answers(connection)
        ready()
        begun = time.perf_counter()
        end = begun + seconds
        connection.sendall(adds(0, window))
        sent, answered = window, 0
        while answered < sent:
            done = answers.wait()
            answered += done
            if time.perf_counter() < end:
                connection.sendall(adds(sent, sent + done))
                sent += done
        ended = time.perf_counter()
        connection.sendall(adds(END, END + 1))
        answers.wait()
        return Published(sent, begun, ended)


def subscribe(ready: Ready, address: str, name: str, size: int) -> Delivered:
    """Reads as a group of its own, many at a time, and acknowledges all of them."""
    group = name.encode()
    order = InOrder(size)
    read = _command(
        b"XREADGROUP", b"GROUP", group, name.encode(), b"COUNT", b"%d" % READ_TOGETHER, b"BLOCK", b"0", b"STREAMS",
        _STREAM, b">",
    )  # fmt: skip
    with _connect(address) as connection:
        connection.sendall(_command(b"XGROUP", b"CREATE", _STREAM, group, b"$", b"MKSTREAM"))
        if not (found := connection.recv(RECEIVE_BYTES)).startswith(b"+OK"):
            raise MeasurementFailed(f"redis-server answered {found[:100]!r}")
        entries = _Entries(connection, size)
        ready()
        connection.sendall(read)
        while True:
            found_ids, events = entries.wait()
            over = [order.check(event) for event in events][-1]
            if over:
                return Delivered(order.count, time.perf_counter())
            connection.sendall(_command(b"XACK", _STREAM, group, *found_ids) + read)


def paced(ready: Ready, address: str, seconds: float, per_second: int, size: int) -> list[int]:
    """Adds at an even pace, whether or not earlier ones were answered; when each was sent, in nanoseconds."""
    adds = _adds(size)
    sent: list[int] = []
    with _connect(address) as connection:
        answers = _Answers(connection)
        ready()
        begun, count = time.perf_counter(), round(seconds * per_second)
        for number in range(count):
            if (pause := begun + number / per_second - time.perf_counter()) > 0:
                time.sleep(pause)
            add = adds(number, number + 1)
            sent.append(time.perf_counter_ns())
            connection.sendall(add)
            answers.look()
        connection.sendall(adds(END, END + 1))
        while answers.count <= count:
            answers.wait()
    return sent


def stamped(ready: Ready, address: str, size: int) -> list[int]:
    """Waits in XREAD for each; when each came, in nanoseconds."""
    order = InOrder(size)
    came: list[int] = []
    with _connect(address) as connection:
        entries = _Entries(connection, size)
        last = b"0"
        ready()
        while True:
            connection.sendall(_command(b"XREAD", b"BLOCK", b"0", b"STREAMS", _STREAM, last))
            ids, events = entries.wait()
            now = time.perf_counter_ns()
            for event in events:
                if order.check(event):
                    return came
                came.append(now)
            last = ids[-1]


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def _adds(size: int) -> Callable[[int, int], bytes]:
    """Makes the XADDs of the events from one number to before another."""
    head, tail = halves(size)
    before, _, _ = _command(b"XADD", _STREAM, b"*", b"d", b"x" * size).partition(b"x" * size)
    head, tail = before + head, tail + b"\r\n"
    return lambda first, end: b"".join([b"%b%016x%b" % (head, number, tail) for number in range(first, end)])


class _Answers:
    """Counts the answers to XADDs."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = 0
        self.count = 0

    def wait(self) -> int:
        """How many came; at least one."""
        done = 0
        while not done:
            done = self._take(self._connection.recv(RECEIVE_BYTES))
        return done

    def look(self) -> None:
        """Takes those that are there."""
        with contextlib.suppress(BlockingIOError):
            self._take(self._connection.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT))

    def _take(self, found: bytes) -> int:
        if not found or b"-ERR" in found:
            raise MeasurementFailed(f"redis-server answered {found[:100]!r}")
        # An answer is two lines: its length, and the id.
        self._lines += found.count(b"\n")
        done, self._lines = divmod(self._lines, 2)
        self.count += done
        return done


class _Entries:
    """Takes the replies to reads apart."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self._connection = connection
        self._begin = re.compile(rb"\*1\r\n\*2\r\n\$%d\r\n%b\r\n\*(\d+)\r\n" % (len(_STREAM), _STREAM))
        self._entry = re.compile(
            rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nd\r\n\$%d\r\n(.{%d})\r\n" % (size, size), re.DOTALL
        )
        self._shortest = size + len(b"*2\r\n$3\r\n0-0\r\n*2\r\n$1\r\nd\r\n$1\r\n\r\n")

    def wait(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """The ids and the events of the next reply; an answer to XACK before it is passed over."""
        reply = b""
        while (begin := self._begin.search(reply)) is None:
            reply += self._receive()
        count, at = int(begin[1]), begin.end()
        while True:
            if len(reply) - at >= count * self._shortest:
                found = self._entry.findall(reply, at)
                if len(found) == count:
                    ids, events = zip(*found, strict=True)
                    return ids, events
            reply += self._receive()

    def _receive(self) -> bytes:
        found = self._connection.recv(RECEIVE_BYTES)
        if not found or found.startswith(b"-"):
            raise MeasurementFailed(f"redis-server answered {found[:100]!r}")
        return found
