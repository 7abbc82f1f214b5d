"""The city on the stage: a node, its traffic, Spark beside it; both are killed, and the ledger is made."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from echomesh.cli.city import driver, ledger
from echomesh.cli.city.chart import chart
from echomesh.cli.city.events import write_settings
from echomesh.cli.city.traffic import Traffic
from echomesh.cli.process import ServerProcess
from echomesh.cli.stage import Act, Sparkline, marks
from echomesh.cli.text import plural, rate_text
from echomesh.errors import EchomeshError, PipelineFailed
from echomesh.spark.pipelines.registry import Entry, Registry

RATE: Final = 300.0
KILL_DRIVER: Final = 25 / 60
KILL_NODE: Final = 40 / 60
_LOOK_S: Final = 0.25
_PATIENCE_S: Final = 180.0
_STATES: Final = {"running": "green", "waiting": "yellow", "starting": "cyan", "died": "red", "failed": "red"}

Check = Callable[[bool, str, str], None]


class Spark:
    """The driver in a process of its own, with all that it starts."""

    def __init__(self, data: Path, address: str, settings: Path, log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", driver.__name__, str(data), address, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """kill -9, for Python and the JVM alike."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Lets it end what it is at."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30.0)
        self.kill()


class CityAct:
    """Plays it, and notes what was as it should be."""

    def __init__(
        self, root: Path, seconds: float, width: int, act: Callable[[str], Act], check: Check, rate: float = RATE
    ) -> None:
        self.root = root
        self.data = root / "data"
        self.seconds = seconds
        self.rate = rate
        self.act = act
        self.check = check
        self.registry = Registry(driver.place_of(str(self.data), "").homes)
        self.rates = Sparkline(width, "acknowledged, a bar each 0.25 s")
        self.marks: list[tuple[int, str]] = []
        self.kills: list[tuple[float, str]] = []
        self.acknowledged = 0

    def play(self) -> None:
        """All of it."""
        self.root.mkdir(parents=True, exist_ok=True)
        write_settings(self.root)
        with contextlib.ExitStack() as held:
            node = held.enter_context(ServerProcess(self.data))
            title = f"A city: {self.rate:,.0f} events a second, some late, twice or nonsense, into Spark"
            with self.act(title) as act:
                act.say(f"node: pid {node.pid}, {node.address}, log in [bold]{self.data}[/bold]")
                spark = self._spark(node.address)
                held.callback(lambda: self.spark.kill())
                act.say(f"Spark driver: pid {spark.pid}, with [bold]{', '.join(driver.NAMES)}[/bold]")
                self.traffic = Traffic(node.address, self.seconds, self.rate)
                self.wall = time.time()
                asyncio.run(self._play(act, node, held))
                self.spark.stop()
            self._sum_up()

    def _spark(self, address: str) -> Spark:
        self.spark = Spark(self.data, address, self.root, self.root / "spark.log")
        return self.spark

    async def _play(self, act: Act, node: ServerProcess, held: contextlib.ExitStack) -> None:
        running = asyncio.create_task(self.traffic.run())
        acts = asyncio.create_task(self._trouble(act, node, held))
        try:
            while not running.done() or not acts.done():
                await self._draw(act)
                for task in (running, acts):
                    if task.done():
                        task.result()
            act.say(f"the city sleeps after {self.traffic.elapsed:.0f} s; the pipelines catch up")
            await self._caught_up(act)
        finally:
            for task in (running, acts):
                task.cancel()
            await asyncio.gather(running, acts, return_exceptions=True)

    async def _trouble(self, act: Act, node: ServerProcess, held: contextlib.ExitStack) -> None:
        # Each at its time, whether or not the other is back.
        await asyncio.gather(self._kill_driver(act, node.address), self._kill_node(act, node, held))

    async def _until(self, part: float) -> None:
        await asyncio.sleep(max(0.0, part * self.seconds - self.traffic.elapsed))

    async def _kill_driver(self, act: Act, address: str) -> None:
        await self._until(KILL_DRIVER)
        before = self.spark
        await asyncio.to_thread(before.kill)
        self._mark("kill -9 of Spark")
        act.say(f"[bold red]kill -9 {before.pid}[/bold red], the Spark driver", "kill")
        began, batches = time.monotonic(), self._batches()
        self._spark(address)
        await self._when(lambda: self._batches() > batches and all(each.state == "running" for each in self._entries()))
        took = time.monotonic() - began
        act.say(f"started again: pid {self.spark.pid}; from their checkpoints they went on after {took:.1f} s", "ok")
        self.check(True, "the killed Spark driver went on from its checkpoints", f"after {took:.1f} s")

    async def _kill_node(self, act: Act, node: ServerProcess, held: contextlib.ExitStack) -> None:
        await self._until(KILL_NODE)
        await asyncio.to_thread(node.kill)
        self._mark("kill -9 of the node")
        act.say(f"[bold red]kill -9 {node.pid}[/bold red], the node", "kill")
        began, before = time.monotonic(), self.traffic.account.acknowledged
        again = await asyncio.to_thread(_started, held, self.data, node.address)
        await self._when(lambda: self.traffic.account.acknowledged > before)
        took = time.monotonic() - began
        act.say(f"started again: pid {again.pid}; publishers and pipelines came back after {took:.1f} s", "ok")
        self.check(True, "publishers and pipelines outlived the killed node", f"back after {took:.1f} s")

    async def _when(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not reached():
            if self.spark.ended:
                raise PipelineFailed("city", "the Spark driver ended by itself", str(self.root / "spark.log"))
            if time.monotonic() > deadline:
                raise PipelineFailed("city", f"nothing happened for {_PATIENCE_S:.0f} s", str(self.root / "spark.log"))
            await asyncio.sleep(_LOOK_S)

    async def _caught_up(self, act: Act) -> None:
        wanted = len(self.traffic.account.events)
        began = time.monotonic()
        # A window ends behind the watermark, which is as long; and one more, to be sure.
        finished = self.wall + max(self.traffic.account.by_second, default=0) - 4 * driver.WINDOW_S

        async def drawing() -> None:
            while True:
                await self._draw(act)

        task = asyncio.create_task(drawing())
        try:
            await self._when(lambda: ledger.stored_in(self.data / "tables") >= wanted)
            # The other two have a pace of their own.
            if finished > self.wall:
                await self._when(lambda: ledger.newest_window(self.data / "tables") >= finished)
            await self._when(lambda: any(ledger.alerts_in(self.data)))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        act.say(f"all events are in tables {time.monotonic() - began:.1f} s later", "ok")

    # What is shown

    def _mark(self, name: str) -> None:
        self.marks.append((self.rates.moments, name))
        self.kills.append((self.traffic.elapsed, name))

    def _entries(self) -> list[Entry]:
        found = []
        for name in driver.NAMES:
            with contextlib.suppress(EchomeshError):
                found.append(self.registry.entry(name))
        return found

    def _batches(self) -> int:
        return sum(query.batch for each in self._entries() for query in each.queries)

    async def _draw(self, act: Act) -> None:
        await asyncio.sleep(_LOOK_S)
        now = self.traffic.account.acknowledged
        self.rates.add((now - self.acknowledged) / _LOOK_S)
        self.acknowledged = now
        entries = await asyncio.to_thread(self._entries)
        act.draw(Group(self.rates, marks(self.marks, self.rates.step), _table(entries)))

    def _sum_up(self) -> None:
        account = self.traffic.account
        done = ledger.count(account, self.data, self.data / "tables", driver.WINDOW_S)
        passed = int(self.traffic.seconds)
        published = {second: number for second, number in account.by_second.items() if second <= passed + 30}
        stored = {int(second - self.wall): number for second, number in done.by_second.items()}
        last = max([passed, *published, *stored])
        picture = self.root / "city.svg"
        picture.write_text(chart(published, stored, last, self.kills, "A minute in the city"))
        with self.act("The ledger, by deltalake and pyarrow") as act:
            act.draw(_ledger(done))
            act.say(f"{rate_text(done.published / self.traffic.seconds)} published; {_delays(account.delays_ms)}")
            half, most = _quantile(done.delays_s, 50), _quantile(done.delays_s, 99)
            act.say(f"in a table {half:.1f} s after the append (p50), {most:.1f} s (p99)")
            for line in done.alerts[:6]:
                act.say(f"alert {line}")
            act.say(f"chart: [bold]{picture}[/bold]")
        self._judge(done)

    def _judge(self, done: ledger.Ledger) -> None:
        refused = self.traffic.account.refused
        self.check(done.adds_up, "published = stored + quarantined + duplicates", _sum(done))
        lost = f"missing {done.missing}, twice {done.twice}"
        good = not (done.missing or done.twice or done.strange or refused)
        self.check(good, "no event is missing, and none there twice", refused[0] if refused else lost)
        wrong = done.windows_wrong
        figure = f"{plural(done.windows, 'window')}, {done.late:,} late"
        self.check(done.windows > 0 and not wrong, "every window counts right", wrong[0] if wrong else figure)
        figure = f"{done.fired} fired, {done.resolved} resolved"
        self.check(done.fired > 0 and not done.alerts_wrong, "alerts fired and were resolved once each", figure)


def _started(held: contextlib.ExitStack, data: Path, address: str) -> ServerProcess:
    return held.enter_context(ServerProcess(data, address))


def _table(entries: list[Entry]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("pipeline", "state", "rows", "rate", "lag", "batch", "state rows"):
        table.add_column(title, justify="left" if title in ("pipeline", "state") else "right", no_wrap=True)
    for entry in entries:
        queries = entry.queries
        table.add_row(
            entry.name,
            Text(entry.state, style=_STATES.get(entry.state, "dim")),
            f"{sum(each.rows for each in queries):,}",
            rate_text(sum(each.rows_per_s for each in queries)),
            f"{sum(each.lag for each in queries):,}",
            f"{max((each.batch_ms for each in queries), default=0):,} ms",
            f"{sum(each.state_rows for each in queries):,}",
        )
    return table


def _ledger(done: ledger.Ledger) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    table.add_column(justify="right", style="bold")
    rows = (
        ("published and acknowledged", done.published),
        ("= stored", done.stored),
        ("+ quarantined", done.quarantined),
        ("+ duplicates", done.duplicates),
        ("missing", done.missing),
        ("twice", done.twice),
    )
    for name, value in rows:
        table.add_row(name, f"{value:,}")
    return table


def _sum(done: ledger.Ledger) -> str:
    return f"{done.published:,} = {done.stored:,} + {done.quarantined:,} + {done.duplicates:,}"


def _delays(delays_ms: list[float]) -> str:
    return f"acknowledged after {_quantile(delays_ms, 50):.1f} ms (p50), {_quantile(delays_ms, 99):.0f} ms (p99)"


def _quantile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)] if values else 0.0
