"""Part `discovery`: how soon a publisher knows a subscriber of a machine that has just come, and how soon the first
message comes on a machine where nothing ran before.

Two participants of this machine stand for two hosts: each has a directory of its own, and they know each other by
beacons over the loopback interface alone. One has a publisher; the other is started at some moment between two of its
beacons. For the first message two processes begin at once, and start their participant themselves.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.harness.apart import Apart
from bench.harness.machine import OtherLoad
from bench.harness.progress import progress
from bench.harness.rows import Row, compare
from echomesh import sync
from echomesh.data.config import BEACON_S, DataOptions
from echomesh.data.link import PublisherLink, SubscriberLink
from echomesh.data.messages import Process
from echomesh.data.participant import Participant

MOST_BEACONS = 1.2


def run(quick: bool) -> list[Row]:
    repetitions = 8 if quick else 40
    load = OtherLoad()
    directory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        with progress(repetitions) as say:
            found, first = [], []
            for number in range(repetitions):
                say(f"host {number + 1}")
                found.append(asyncio.run(_discovery(directory / str(number))) / BEACON_S)
                first.append(_first_message(str(directory / f"new-{number}")) / BEACON_S)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    cpus = round(load.cpus(), 2)
    return [
        _row("new host, publisher knows its subscriber", found, cpus),
        _row("the slowest", [max(found)], cpus),
        _row("new host, first message between two of its processes", first, cpus),
        _row("the slowest", [max(first)], cpus),
    ]


def _row(case: str, found: list[float], cpus: float) -> Row:
    return compare(
        case,
        found,
        "beacon interval",
        [1.0] * len(found),
        unit="intervals",
        target=round(1 / MOST_BEACONS, 3),
        less_is_better=True,
        other_cpus=cpus,
    )


async def _discovery(directory: Path) -> float:
    """Seconds from the start of a participant to the publisher's knowledge of its subscriber."""
    ports = [_free_port(), _free_port()]
    known = asyncio.Event()
    here, there = (
        DataOptions(
            directory=directory / str(ours),
            beacon_port=ports[ours],
            participant_port=0,
            peers=(f"127.0.0.1:{ports[1 - ours]}",),
            group="",
            broadcast=False,
        )
        for ours in (0, 1)
    )
    publisher = PublisherLink(
        here,
        "bench",
        Process(),
        on_subscriber=lambda told: known.set(),
        on_subscriber_lost=lambda id: None,
        on_failed=_failed,
    )
    subscriber = SubscriberLink(
        there,
        "bench",
        Process(),
        on_publisher=lambda told: None,
        on_publisher_lost=lambda id: None,
        on_failed=_failed,
    )
    async with asyncio.timeout(30), Participant(here, service=True):
        await publisher.open()
        await asyncio.sleep(BEACON_S * random.uniform(1, 2))
        started = time.perf_counter()
        async with Participant(there, service=True):
            await subscriber.open()
            await known.wait()
            took = time.perf_counter() - started
            await subscriber.close()
            await publisher.close()
    return took


def _first_message(directory: str) -> float:
    """Seconds from the moment in which two processes join a mesh that is not there yet to the first message."""
    port = _free_port()
    with Apart(_publish_one, directory, port) as publisher:
        publisher.wait_ready()
        started = time.perf_counter()
        publisher.go()
        with sync.connect(**_alone(directory, port)) as mesh, mesh.subscribe("bench") as subscriber:
            subscriber.receive(timeout=30)
            took = time.perf_counter() - started
        publisher.result(30)
    return took


def _publish_one(ready: Callable[[], None], directory: str, port: int) -> None:
    ready()
    with sync.connect(**_alone(directory, port)) as mesh, mesh.publisher("bench") as publisher:
        publisher.matched(timeout=30)
        publisher.send(b"first")
        publisher.flush(timeout=30)


def _alone(directory: str, port: int) -> dict[str, Any]:
    return {"directory": directory, "beacon_port": port, "participant_port": 0, "group": "", "broadcast": False}


def _failed(error: Exception) -> None:
    raise error


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])
