"""NATS JetStream with file storage: a server, and two clients that publish.

The server answers before its disk has the event; this version has no setting for that. One client is `nats-py`, the
usual one for Python; the other writes the protocol's bytes itself, and shows what the server can do.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.harness.load import Published, Ready
from bench.harness.machine import free_port
from bench.harness.numbered import encoded, halves
from bench.harness.pairs import MeasurementFailed
from bench.harness.servers import ServerProgram
from bench.peers.installed import installed

RECEIVE_BYTES = 1 << 20
PATIENCE_SECONDS = 60.0

_STREAM = {"name": "EVENTS", "subjects": ["events"], "storage": "file", "num_replicas": 1}


def serve(directory: str) -> ServerProgram:
    """A server with JetStream."""
    port, config = free_port(), Path(directory, "nats.conf")
    config.write_text(f'listen: 127.0.0.1:{port}\njetstream {{ store_dir: "{directory}/jetstream" }}\n')
    return ServerProgram([installed("nats-server"), "-c", str(config)], port, Path(directory, "nats.log"))


def publish(ready: Ready, address: str, seconds: float, size: int, window: int) -> Published:
    """Publishes of nats-py that were answered, with `window` of them in flight."""
    return uvloop.run(_publish(ready, address, seconds, size, window))


async def _publish(ready: Ready, address: str, seconds: float, size: int, window: int) -> Published:
    try:
        import nats
    except ImportError:
        raise MeasurementFailed("no nats-py here: pip install nats-py") from None
    make, clock = encoded(size), time.perf_counter
    flying: deque[asyncio.Future[Any]] = deque()
    connection = await nats.connect(f"nats://{address}")
    jetstream = connection.jetstream(publish_async_max_pending=window)
    await jetstream.add_stream(name="EVENTS", subjects=["events"], storage="file")
    ready()
    begun = clock()
    end, number = begun + seconds, 0
    while clock() < end:
        if len(flying) == window:
            await flying.popleft()
        flying.append(await jetstream.publish_async("events", make(number), wait_stall=PATIENCE_SECONDS))
        number += 1
    while flying:
        await flying.popleft()
    ended = clock()
    await connection.close()
    return Published(number, begun, ended)


def publish_bytes(ready: Ready, address: str, seconds: float, size: int, window: int) -> Published:
    """The same by a client that writes the protocol's bytes itself."""
    publishes = _publishes(size)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = _Answers(connection)
        answers.make_stream()
        ready()
        begun = time.perf_counter()
        end = begun + seconds
        connection.sendall(publishes(0, window))
        sent, answered = window, 0
        while answered < sent:
            done = answers.wait()
            answered += done
            if done and time.perf_counter() < end:
                connection.sendall(publishes(sent, sent + done))
                sent += done
        return Published(sent, begun, time.perf_counter())


def _publishes(size: int) -> Callable[[int, int], bytes]:
    head, tail = halves(size)
    head, tail = b"PUB events answers.here %d\r\n%b" % (size, head), tail + b"\r\n"
    return lambda first, end: b"".join([b"%b%016x%b" % (head, number, tail) for number in range(first, end)])


class _Answers:
    """Counts the answers to publishes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = 0

    def make_stream(self) -> None:
        """Makes the stream, and listens to answers."""
        wanted = json.dumps({**_STREAM, "retention": "limits", "max_consumers": -1}).encode()
        self._connection.sendall(
            b'CONNECT {"verbose":false,"pedantic":false,"lang":"python","version":"0","protocol":1}\r\n'
            b"SUB answers.* 1\r\n"
            b"PUB $JS.API.STREAM.CREATE.EVENTS answers.made %d\r\n%b\r\n" % (len(wanted), wanted)
        )
        found = b""
        while not (b"MSG answers.made" in found and found.endswith(b"}\r\n")):
            found += self._receive()

    def wait(self) -> int:
        """How many came."""
        found = self._receive()
        # An answer is two lines: where it goes, and a JSON object.
        self._lines += found.count(b"\n") - found.count(b"PING\r\n")
        done, self._lines = divmod(self._lines, 2)
        return done

    def _receive(self) -> bytes:
        found = self._connection.recv(RECEIVE_BYTES)
        if not found or b'"error"' in found or b"-ERR" in found:
            raise MeasurementFailed(f"nats-server answered {found[:200]!r}")
        if b"PING\r\n" in found:
            self._connection.sendall(b"PONG\r\n")
        return found
