"""Single measurements of part `mesh`: servers and clients, each in a process of its own, and a figure or more."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import echomesh
from bench import mesh_loads
from bench.harness.apart import Apart, apart
from bench.harness.load import Delivered, Published
from bench.harness.numbered import InOrder
from bench.harness.pairs import MeasurementFailed
from bench.harness.servers import cpu_seconds
from bench.peers import jetstream, redis_clients, redis_py
from echomesh.cli.process import ServerProcess
from echomesh.errors import UnknownTopic
from echomesh.events import Event
from echomesh.log import LogReader
from echomesh.mesh.passwords import PasswordHash

WARM_SHARE = 0.05  # of the latencies of a run, the first ones: not counted
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.002
PASSWORD = "correct horse battery staple"


class Server(Protocol):
    """A server that runs."""

    @property
    def address(self) -> str:
        """Where it listens."""

    @property
    def pid(self) -> int:
        """Its process."""


@dataclass(frozen=True)
class Publishing:
    """What is compared: how a server of it is started in a directory, and what its clients do, as in `mesh_loads`."""

    serve: Callable[[str], AbstractContextManager[Server]]
    publish: Callable[..., Published]


@dataclass(frozen=True)
class Subscribing(Publishing):
    """The same with clients that subscribe."""

    subscribe: Callable[..., Delivered]


@dataclass(frozen=True)
class System(Subscribing):
    """The same with clients that know when each event left and came."""

    paced: Callable[..., list[int]]
    stamped: Callable[..., list[int]]


def serve(directory: str) -> AbstractContextManager[Server]:
    """`echomesh up`, as anybody would start it."""
    return ServerProcess(Path(directory, "data"))


def _redis(fsync: str) -> tuple[System, System]:
    """With bare clients, and with redis-py."""
    serve = partial(redis_clients.serve, fsync=fsync)
    bare, python = redis_clients, redis_py
    return (
        System(serve, bare.publish, bare.subscribe, bare.paced, bare.stamped),
        System(serve, python.publish, python.subscribe, python.paced, python.stamped),
    )


OURS = System(serve, mesh_loads.publish, mesh_loads.subscribe, mesh_loads.paced, mesh_loads.stamped)
REDIS_ALWAYS, REDIS_PY_ALWAYS = _redis("always")
REDIS_EVERYSEC, REDIS_PY_EVERYSEC = _redis("everysec")
JETSTREAM = Publishing(jetstream.serve, jetstream.publish_bytes)
JETSTREAM_PY = Publishing(jetstream.serve, jetstream.publish)


def acknowledged(directory: str, system: Publishing, seconds: float, size: int, window: int) -> float:
    """Publishes a second that one client got answered."""
    with system.serve(directory) as server:
        published: Published = apart(system.publish, server.address, seconds, size, window, seconds=seconds)
        return published.rate


def delivered(directory: str, system: Subscribing, seconds: float, size: int, window: int, subscribers: int) -> float:
    """Events a second that one client published and each of the subscribers got and acknowledged, all of them."""
    with system.serve(directory) as server, contextlib.ExitStack() as held:
        taking = [
            held.enter_context(Apart(system.subscribe, server.address, f"subscriber-{number}", size))
            for number in range(subscribers)
        ]
        publishing = held.enter_context(Apart(system.publish, server.address, seconds, size, window))
        _begin(*taking, publishing)
        published: Published = publishing.result(seconds)
        results: list[Delivered] = [subscriber.result(PATIENCE_SECONDS) for subscriber in taking]
        for result in results:
            if result.count != published.count:
                raise MeasurementFailed(f"{published.count} events were published, and {result.count} delivered")
        return published.count / (max(result.ended for result in results) - published.begun)


def latency(directory: str, system: System, seconds: float, size: int, per_second: int) -> tuple[float, float]:
    """Milliseconds from publish to delivery: half are quicker than the first figure, 99 % than the second."""
    with system.serve(directory) as server, contextlib.ExitStack() as held:
        taking = held.enter_context(Apart(system.stamped, server.address, size))
        publishing = held.enter_context(Apart(system.paced, server.address, seconds, per_second, size))
        _begin(taking, publishing)
        sent: list[int] = publishing.result(seconds)
        came: list[int] = taking.result(PATIENCE_SECONDS)
    if len(came) != len(sent):
        raise MeasurementFailed(f"{len(sent)} events were published, and {len(came)} delivered")
    delays = [(there - here) / 1e6 for here, there in zip(sent, came, strict=True)]
    delays = sorted(delays[math.ceil(len(delays) * WARM_SHARE) :])
    return delays[len(delays) // 2], delays[len(delays) * 99 // 100]


def alone(directory: str, seconds: float, size: int, window: int) -> tuple[float, float]:
    """Events a second into one server, and the microseconds of processor time that it took for each."""
    with serve(directory) as server:
        return _measured([server], Path(directory, "data"), seconds, size, window)


def bridged(directory: str, seconds: float, size: int, window: int) -> tuple[float, float]:
    """Events a second into a server behind another one, and the microseconds that both took for each."""
    here, there = Path(directory, "here"), Path(directory, "there")
    here.mkdir()
    there.mkdir()
    with serve(str(here)) as first, serve(str(there)) as second:
        asyncio.run(_bridge(first.address, second.address))
        return _measured([first, second], there / "data", seconds, size, window)


def _measured(servers: list[Server], data: Path, seconds: float, size: int, window: int) -> tuple[float, float]:
    """What comes into the log at `data`, and what the servers take for it. All of it is checked afterwards."""
    with Apart(mesh_loads.publish, servers[0].address, seconds, size, window) as publishing:
        publishing.wait_ready()
        before = sum(cpu_seconds(server.pid) for server in servers)
        publishing.go()
        published: Published = publishing.result(seconds)
    with LogReader(data) as log:
        ended = _until(log, published.count + 1)
        used = sum(cpu_seconds(server.pid) for server in servers) - before
        _check(log, published.count, size)
    return published.count / (max(ended, published.ended) - published.begun), used / published.count * 1e6


def _until(log: LogReader, count: int) -> float:
    """When the topic had so many events."""
    deadline = time.perf_counter() + PATIENCE_SECONDS
    while (now := time.perf_counter()) < deadline:
        with contextlib.suppress(UnknownTopic):
            if log.topic(mesh_loads.TOPIC).end >= count:
                return now
        time.sleep(LOOK_SECONDS)
    raise MeasurementFailed("not all events came over the bridge")


def _check(log: LogReader, count: int, size: int) -> None:
    order = InOrder(size)
    batches = log.topic(mesh_loads.TOPIC).follow(0, timeout=0)
    over = [order.check(event) for records in batches for event in records.events()]
    if order.count != count or len(over) != count + 1:
        raise MeasurementFailed(f"{count} events were published, and {len(over) - 1} are in the log")


async def _bridge(here: str, there: str) -> None:
    async with echomesh.session(here, client_id="admin") as session:
        await session.add_bridge(there)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(bridge.active for bridge in await session.bridges()):  # noqa: ASYNC110 - it is asked
                await asyncio.sleep(LOOK_SECONDS)


def reconnected(directory: str, clients: int, names: int, processes: int) -> float:
    """Seconds until clients whose connections broke all at once have each got an event that was published meanwhile.

    They log in by `names` client ids whose passwords the server has seen before, and each is a group of its own.
    """
    data = Path(directory, "data")
    data.mkdir()
    ids = [f"device-{number}" for number in range(names)]
    _allow(data / "access.toml", [*ids, "admin"])
    groups = [(ids[number % names], f"group-{number}") for number in range(clients)]
    with serve(directory) as server, contextlib.ExitStack() as held:
        fleet = [
            held.enter_context(Apart(mesh_loads.reconnect, server.address, groups[first::processes], PASSWORD))
            for first in range(processes)
        ]
        _begin(*fleet)
        for process in fleet:
            process.wait_ready()
        asyncio.run(_tell(server.address))
        for process in fleet:
            process.go()
        results: list[tuple[float, float]] = [process.result(PATIENCE_SECONDS) for process in fleet]
    return max(ended for _, ended in results) - min(begun for begun, _ in results)


def _allow(path: Path, names: list[str]) -> None:
    stored = PasswordHash.of(PASSWORD).text  # one for all: to make each takes its time
    entry = f'password = "{stored}"\nenvironments = ["TST"]\npublish = ["**"]\nsubscribe = ["**"]\n'
    path.touch(0o600)
    path.write_text("\n".join(f"[clients.{name}]\n{entry}" for name in names))


async def _tell(address: str) -> None:
    async with echomesh.session(address, client_id="admin", password=PASSWORD) as session:
        await session.publish(mesh_loads.NEWS, Event(type="news", source="/fleet"))


def _begin(*processes: Apart) -> None:
    """Lets all of them go once all are ready, in order."""
    for process in processes:
        process.wait_ready()
    for process in processes:
        process.go()
