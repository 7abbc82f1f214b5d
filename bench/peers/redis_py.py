"""Redis Streams as Python programs use them: `redis-py`, with pipelines, and groups that read in batches.

A pipeline is all that it has for many in flight: it sends them together, and waits for all answers.
"""

from __future__ import annotations

import time
from typing import Any

from bench.harness.load import Delivered, Published, Ready
from bench.harness.numbered import END, InOrder, encoded
from bench.harness.pairs import MeasurementFailed

READ_TOGETHER = 256
BLOCK_MS = 1000


def publish(ready: Ready, address: str, seconds: float, size: int, window: int) -> Published:
    """XADDs that were answered, in pipelines of `window`, and one more at the end."""
    make, clock = encoded(size), time.perf_counter
    with _connect(address) as client:
        client.ping()
        ready()
        begun = clock()
        end, number = begun + seconds, 0
        while clock() < end:
            pipeline = client.pipeline(transaction=False)
            for event in map(make, range(number, number + window)):
                pipeline.xadd("events", {"d": event})
            number += len(pipeline.execute())
        ended = clock()
        client.xadd("events", {"d": make(END)})
    return Published(number, begun, ended)


def subscribe(ready: Ready, address: str, name: str, size: int) -> Delivered:
    """Reads as a group of its own, many at a time, and acknowledges all of them."""
    order, over = InOrder(size), False
    with _connect(address) as client:
        client.xgroup_create("events", name, id="$", mkstream=True)
        ready()
        while not over:
            for _, entries in client.xreadgroup(name, name, {"events": ">"}, count=READ_TOGETHER, block=BLOCK_MS):
                for _, fields in entries:
                    over = order.check(fields[b"d"])
                client.xack("events", name, *[number for number, _ in entries])
    return Delivered(order.count, time.perf_counter())


def paced(ready: Ready, address: str, seconds: float, per_second: int, size: int) -> list[int]:
    """Adds one event after the other at an even pace, or as soon as the one before was answered; when each was."""
    make = encoded(size)
    sent: list[int] = []
    with _connect(address) as client:
        client.ping()
        ready()
        begun = time.perf_counter()
        for number in range(round(seconds * per_second)):
            if (pause := begun + number / per_second - time.perf_counter()) > 0:
                time.sleep(pause)
            event = make(number)
            sent.append(time.perf_counter_ns())
            client.xadd("events", {"d": event})
        client.xadd("events", {"d": make(END)})
    return sent


def stamped(ready: Ready, address: str, size: int) -> list[int]:
    """Reads as a group, and acknowledges; when each event came, in nanoseconds."""
    order = InOrder(size)
    came: list[int] = []
    with _connect(address) as client:
        client.xgroup_create("events", "stamped", id="$", mkstream=True)
        ready()
        while True:
            for _, entries in client.xreadgroup("stamped", "one", {"events": ">"}, count=READ_TOGETHER, block=BLOCK_MS):
                now = time.perf_counter_ns()
                for _, fields in entries:
                    if order.check(fields[b"d"]):
                        return came
                    came.append(now)
                client.xack("events", "stamped", *[number for number, _ in entries])


def _connect(address: str) -> Any:
    try:
        import redis
    except ImportError:
        raise MeasurementFailed("no redis-py here: pip install redis hiredis") from None
    host, _, port = address.rpartition(":")
    return redis.Redis(host, int(port), protocol=2)
