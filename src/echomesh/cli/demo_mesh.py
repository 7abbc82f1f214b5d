"""The part of the demonstration with two bridged servers: the link is cut and healed, a server killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Group

from echomesh.cli.process import ServerProcess
from echomesh.cli.stage import Act, Sparkline, marks
from echomesh.cli.text import plural
from echomesh.errors import MeshTimeout
from echomesh.events import Event
from echomesh.mesh.client import Session, session

TOPIC = "turbines/speed"
RATE = 1000
_TICK_S = 0.02
_MOMENT_S = 0.1
_PATIENCE_S = 30.0

Check = Callable[[bool, str, str], None]


class Cable:
    """A line between two servers that can be cut: a tiny TCP proxy."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._port = 0
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._carried: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Where to connect instead of the target."""
        return f"127.0.0.1:{self._port}"

    async def heal(self) -> None:
        """Lets connections through."""
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Breaks those there are, and lets no others through."""
        if self._server is not None:
            self._server.close()
        for end in self._ends:
            end.transport.abort()

    async def close(self) -> None:
        """Cuts it for good."""
        self.cut()
        await asyncio.gather(*self._carried)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        self._ends |= ends
        try:
            there, back = await asyncio.open_connection(*self._target)
            ends.add(back)
            self._ends |= ends
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        except OSError:
            pass
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError


@dataclass
class Site:
    """A server, who publishes and subscribes there, and what came."""

    name: str
    process: ServerProcess
    published: int = 0
    got: list[Counter[str]] = field(default_factory=list)
    """For each subscriber: how many events of each site."""
    wrong: int = 0
    """Events that came twice, or not in order."""

    @property
    def complete(self) -> list[int]:
        """How many events each subscriber got."""
        return [counter.total() for counter in self.got]


class MeshActs:
    """Two sites, a cable between them, and all that happens there."""

    SUBSCRIBERS = 2

    def __init__(self, root: Path, seconds: float, width: int, act: Callable[[str], Act], check: Check) -> None:
        self.root = root
        self.seconds = seconds
        self.width = width
        self.act = act
        self.check = check
        self.sites: list[Site] = []
        self._publishing = True
        self._publishers: list[asyncio.Task[None]] = []

    def play(self) -> None:
        """Plays all of it."""
        with contextlib.ExitStack() as held:
            with self.act("Two servers of the mesh, each with a log of its own") as act:
                for name in ("west", "east"):
                    process = held.enter_context(ServerProcess(self.root / name))
                    self.sites.append(Site(name, process))
                    act.say(f"[bold]{name}[/bold]: pid {process.pid}, {process.address}, log in {self.root / name}")
            asyncio.run(self._in_time(held))

    async def _in_time(self, held: contextlib.ExitStack) -> None:
        most_s = self.seconds + 4 * _PATIENCE_S
        try:
            async with asyncio.timeout(most_s):
                await self._play(held)
        except TimeoutError:
            raise MeshTimeout(f"the servers did not do what they should within {most_s:.0f} s") from None

    async def _play(self, held: contextlib.ExitStack) -> None:
        west, east = self.sites
        cable = Cable(east.process.address)
        await cable.heal()
        async with session(west.process.address, client_id="admin") as admin:
            await admin.add_bridge(cable.address)
            title = f"{RATE:,} events a second published at each, {2 * self.SUBSCRIBERS} subscribers who want all"
            with self.act(title) as act:
                async with self._traffic() as drawing:
                    drawing.act = act
                    await self._flow(0.2)
                    await self._cut(cable, act, drawing)
                    await self._kill(east, act, drawing, held)
                    await self._flow(0.15)
                    self._publishing = False
                    await asyncio.gather(*self._publishers)
                    await self._caught_up()
            await self._count(admin, east)
        await cable.close()

    # Traffic

    @contextlib.asynccontextmanager
    async def _traffic(self) -> AsyncIterator[_Drawing]:
        drawing = _Drawing(self.sites, self.width)
        async with contextlib.AsyncExitStack() as held:
            tasks = [asyncio.create_task(drawing.run())]
            for site in self.sites:
                for number in range(self.SUBSCRIBERS):
                    reader = await held.enter_async_context(
                        session(site.process.address, client_id=f"{site.name}-reader-{number}")
                    )
                    tasks.append(asyncio.create_task(_subscribe(site, reader)))
                writer = await held.enter_async_context(session(site.process.address, client_id=f"{site.name}-turbine"))
                self._publishers.append(asyncio.create_task(self._publish(site, writer)))
            try:
                yield drawing
            finally:
                for task in (*tasks, *self._publishers):
                    task.cancel()
                await asyncio.gather(*tasks, *self._publishers, return_exceptions=True)

    async def _publish(self, site: Site, writer: Session) -> None:
        due = time.monotonic()
        made = 0
        while self._publishing:
            events = [
                Event(type="speed", source=site.name, id=str(made + i), data={"rpm": 12})
                for i in range(round(RATE * _TICK_S))
            ]
            made += len(events)
            await writer.publish_many(TOPIC, events)
            site.published = made
            due = max(due + _TICK_S, time.monotonic() - 1.0)
            await asyncio.sleep(due - time.monotonic())

    async def _flow(self, part: float) -> None:
        await asyncio.sleep(part * self.seconds)

    @property
    def _published(self) -> int:
        return sum(site.published for site in self.sites)

    async def _caught_up(self) -> float:
        """Waits until every subscriber has all that is published by now; how long that took."""
        began, wanted = time.monotonic(), self._published
        while (took := time.monotonic() - began) < _PATIENCE_S:
            await asyncio.sleep(_TICK_S)
            if min(number for site in self.sites for number in site.complete) >= wanted:
                break
        return took

    # What happens to it

    async def _cut(self, cable: Cable, act: Act, drawing: _Drawing) -> None:
        cable.cut()
        drawing.mark("cut")
        before = self._published
        act.say("[bold red]the link is cut[/bold red]: each server goes on for its own", "kill")
        await self._flow(0.25)
        waiting = self._published - before
        await cable.heal()
        drawing.mark("healed")
        took = await self._caught_up()
        act.say(
            f"the link is healed: {plural(waiting, 'event')} that waited in the logs came within {took:.1f} s", "ok"
        )
        self.check(took < _PATIENCE_S, "after the cut both servers caught up", f"after {took:.1f} s")
        await self._flow(0.15)

    async def _kill(self, site: Site, act: Act, drawing: _Drawing, held: contextlib.ExitStack) -> None:
        process = site.process
        await asyncio.to_thread(process.kill)
        drawing.mark("kill -9")
        began = time.monotonic()
        act.say(f"[bold red]kill -9 {process.pid}[/bold red], the server {site.name}", "kill")
        site.process = await asyncio.to_thread(_started, held, self.root / site.name, process.address)
        took = time.monotonic() - began
        drawing.mark("back")
        await self._caught_up()
        act.say(f"started again: pid {site.process.pid}, after {took:.1f} s; its clients came back by themselves", "ok")

    async def _count(self, admin: Session, east: Site) -> None:
        wanted = self._published
        async with session(east.process.address, client_id="admin") as other:
            ends = [(await each.topics(TOPIC))[0].latest for each in (admin, other)]
        good = ends == [wanted] * 2
        self.check(good, "each log has each event once", f"2 × {plural(wanted, 'event')}" if good else f"{ends}")
        got = [number for site in self.sites for number in site.complete]
        good = got == [wanted] * len(got) and not any(site.wrong for site in self.sites)
        figure = (
            f"{len(got)} × {plural(wanted, 'event')}" if good else f"{got}, {sum(s.wrong for s in self.sites)} wrong"
        )
        self.check(good, "each subscriber got each event once, in order", figure)


def _started(held: contextlib.ExitStack, data: Path, address: str) -> ServerProcess:
    return held.enter_context(ServerProcess(data, address))


async def _subscribe(site: Site, reader: Session) -> None:
    counter: Counter[str] = Counter()
    site.got.append(counter)
    async for event in reader.subscribe(TOPIC, start="earliest"):
        # Each publisher numbers its events from 0.
        site.wrong += int(event.id) != counter[event.source]
        counter[event.source] += 1


class _Drawing:
    """Four rows of bars: what the subscribers at each site get from each, a bar each 0.1 s."""

    def __init__(self, sites: list[Site], width: int) -> None:
        self.act: Act | None = None
        self._pairs = [(to, origin) for to in sites for origin in sites]
        names = [f"at {to.name}, from {origin.name}" for to, origin in self._pairs]
        self._lines = [Sparkline(width, name.ljust(max(map(len, names)))) for name in names]
        self._before = [0] * len(names)
        self._marks: list[tuple[int, str]] = []

    def mark(self, name: str) -> None:
        """Something happens now."""
        self._marks.append((self._lines[0].moments, name))

    async def run(self) -> None:
        """Draws until it is cancelled."""
        while True:
            await asyncio.sleep(_MOMENT_S)
            for i, (to, origin) in enumerate(self._pairs):
                now = sum(counter[origin.name] for counter in to.got)
                self._lines[i].add(float(now - self._before[i]))
                self._before[i] = now
            if self.act is not None:
                self.act.draw(Group(*self._lines, marks(self._marks, self._lines[0].step)))
