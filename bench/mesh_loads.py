"""What our clients do in part `mesh`: each function runs in a process of its own, through `echomesh.session`."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import uvloop

import echomesh
from bench.harness.load import Delivered, Published, Ready
from bench.harness.numbered import END, InOrder, encoded
from echomesh.mesh.client import Subscription

TOPIC = "orders/created"
NEWS = "fleet/news"
TOGETHER = 100


def publish(ready: Ready, address: str, seconds: float, size: int, window: int) -> Published:
    """Publishes that were answered, with `window` of them in flight, and one more at the end."""
    return uvloop.run(_publish(ready, address, seconds, size, window))


async def _publish(ready: Ready, address: str, seconds: float, size: int, window: int) -> Published:
    make, clock = encoded(size), time.perf_counter
    flying: deque[asyncio.Future[int]] = deque()
    async with echomesh.session(address, client_id="publisher", window_events=window) as session:
        await session.topics()  # it is connected then
        publish_soon = session.publish_soon
        ready()
        begun = clock()
        end, number = begun + seconds, 0
        while clock() < end:
            if len(flying) == window:
                await flying.popleft()
            flying.append(publish_soon(TOPIC, make(number)))
            number += 1
        while flying:
            await flying.popleft()
        ended = clock()
        await session.publish(TOPIC, make(END))
    return Published(number, begun, ended)


def subscribe(ready: Ready, address: str, name: str, size: int) -> Delivered:
    """Takes and acknowledges events up to the last one."""
    return uvloop.run(_subscribe(ready, address, name, size))


async def _subscribe(ready: Ready, address: str, name: str, size: int) -> Delivered:
    order = InOrder(size)
    check = order.check
    async with echomesh.session(address, client_id=name) as session:
        subscription = await session.subscribe(TOPIC)
        ready()
        async for event in subscription:
            if check(event.encoded):
                break
        return Delivered(order.count, time.perf_counter())


def paced(ready: Ready, address: str, seconds: float, per_second: int, size: int) -> list[int]:
    """Publishes at an even pace, whether or not earlier ones were answered; when each was, in nanoseconds."""
    return uvloop.run(_paced(ready, address, seconds, per_second, size))


async def _paced(ready: Ready, address: str, seconds: float, per_second: int, size: int) -> list[int]:
    make = encoded(size)
    sent: list[int] = []
    async with echomesh.session(address, client_id="publisher") as session:
        await session.topics()
        ready()
        flying = []
        ticks: asyncio.Queue[int] = asyncio.Queue()
        ticking = asyncio.create_task(
            asyncio.to_thread(_tick, asyncio.get_running_loop(), ticks, round(seconds * per_second), per_second)
        )
        while (number := await ticks.get()) >= 0:
            event = make(number)
            sent.append(time.perf_counter_ns())
            flying.append(session.publish_soon(TOPIC, event))
        await asyncio.gather(ticking, *flying)
        await session.publish(TOPIC, make(END))
    return sent


def _tick(loop: asyncio.AbstractEventLoop, ticks: asyncio.Queue[int], count: int, per_second: int) -> None:
    """Numbers at an even pace, from a thread: timers of event loops know milliseconds only, and what a publisher does
    to wait for the next one should not be in the way of the one that it has just sent.
    """
    begun = time.perf_counter()
    for number in range(count):
        if (pause := begun + number / per_second - time.perf_counter()) > 0:
            time.sleep(pause)
        loop.call_soon_threadsafe(ticks.put_nowait, number)
    loop.call_soon_threadsafe(ticks.put_nowait, -1)


def stamped(ready: Ready, address: str, size: int) -> list[int]:
    """Takes and acknowledges events; when each came, in nanoseconds."""
    return uvloop.run(_stamped(ready, address, size))


async def _stamped(ready: Ready, address: str, size: int) -> list[int]:
    order = InOrder(size)
    came: list[int] = []
    async with echomesh.session(address, client_id="subscriber") as session:
        subscription = await session.subscribe(TOPIC)
        ready()
        async for event in subscription:
            now = time.perf_counter_ns()
            if order.check(event.encoded):
                break
            came.append(now)
    return came


def reconnect(ready: Ready, address: str, names: list[tuple[str, str]], password: str) -> tuple[float, float]:
    """Subscribes for each client id and group, breaks all connections at once, and waits until each has got an event
    that was published meanwhile: when that began, and when the last one had it.
    """
    return uvloop.run(_reconnect(ready, address, names, password))


async def _reconnect(ready: Ready, address: str, names: list[tuple[str, str]], password: str) -> tuple[float, float]:
    sessions = {name: echomesh.session(address, client_id=name, password=password) for name, _ in names}
    subscriptions: list[Subscription] = []
    for first in range(0, len(names), TOGETHER):
        some = [sessions[name].subscribe(NEWS, group=group) for name, group in names[first : first + TOGETHER]]
        subscriptions += await asyncio.gather(*some)
    ready()
    for connection in _connections():
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
    ready()
    begun = time.perf_counter()
    for event in await asyncio.gather(*[anext(subscription) for subscription in subscriptions]):
        if event.topic != NEWS:
            raise RuntimeError(f"{event} is no news")
    ended = time.perf_counter()
    await asyncio.gather(*[session.close() for session in sessions.values()])
    return begun, ended


def _connections() -> Iterator[socket.socket]:
    """The TCP connections of this process, by handles of their own."""
    for path in Path("/proc/self/fd").iterdir():
        number = int(path.name)
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                handle = socket.socket(fileno=os.dup(number))
                if handle.family == socket.AF_INET:
                    yield handle
                else:
                    handle.close()
        except OSError:
            continue  # the listing's own, closed by now
