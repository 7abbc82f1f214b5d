"""`echomesh demo`: an echo, two bridged servers and a city with Spark at work, killed, cut off, and back again."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from echomesh._version import __version__
from echomesh.cli.common import FAILED, is_terminal, out
from echomesh.cli.demo_mesh import MeshActs
from echomesh.cli.ping import trouble
from echomesh.cli.process import EchoProcess
from echomesh.cli.stage import Act, Sparkline, commands
from echomesh.cli.text import amount_text, plural, rate_text, size_text, time_text
from echomesh.errors import RingDamaged
from echomesh.native.mapping import Mapping
from echomesh.native.ring import TRAILER_LENGTH, Ring
from echomesh.nukleus.directory import Directory
from echomesh.nukleus.histogram import Histogram
from echomesh.nukleus.ping import PingSession, Trips, payloads

_SIZES = (64, 1 << 10, 16 << 10, 64 << 10)
_FRAME_S = 0.15
_MOMENT_S = 0.1
_RING_CAPACITY = 4 << 20
_RING_BATCH = 256
# From here on to copy a message out of a ring costs more than to look at it there.
_LARGE = 4 << 10
_NOTICED_S = 5.0


@dataclass
class Row:
    """What was measured with one size of payload."""

    size: int
    times: Histogram = field(default_factory=Histogram)
    elapsed_s: float = 0.0
    ring_messages: int = 0
    ring_s: float = 0.0

    @property
    def per_second(self) -> float:
        """Round trips a second."""
        return self.times.count / self.elapsed_s if self.elapsed_s else 0.0


class Demo:
    """The acts, and what they found out."""

    def __init__(self, console: Console, seconds: float, root: Path, disk: Path) -> None:
        self.console = console
        self.seconds = 0.4 * seconds
        self.directory = Directory(root / "mesh")
        self.scratch = root
        self.disk = disk
        self.live = is_terminal()
        self.trips = 0
        self.checks: list[tuple[bool, str, str]] = []

    def act(self, title: str) -> Act:
        """A new act of this demonstration."""
        return Act(self.console, self.live, title)

    def check(self, good: bool, claim: str, figure: str) -> None:
        """Notes for the summary whether something was as it should be."""
        self.checks.append((good, claim, figure))

    def play_local(self) -> None:
        """Shared memory, and servers with a bridge between them."""
        with contextlib.ExitStack() as held:
            first = held.enter_context(EchoProcess("echo", self.directory))
            with self.act("An echo nukleus in a process of its own") as act:
                act.say(f"pid {first.pid}, streams in [bold]{self.directory.root}[/bold]")
                act.say("anyone may send it commands: CAPTURE, ROUTE, BIND, then streams flow")
            session = held.enter_context(PingSession("echo", directory=self.directory, timeout=_NOTICED_S))
            self._measure(session)
            self._kill(session, first, held)
        MeshActs(self.disk, 1.5 * self.seconds, min(100, self.console.width - 4), self.act, self.check).play()
        self._leave()

    def play_city(self, kept: Path, seconds: float) -> None:
        """Traffic, and pipelines on Spark; what they made stays in `kept`."""
        from echomesh.cli.city.play import CityAct

        CityAct(kept, seconds, min(100, self.console.width - 4), self.act, self.check).play()

    def _measure(self, session: PingSession) -> None:
        rows = [Row(size) for size in _SIZES]
        wrong = []
        each_s = 0.55 * self.seconds / len(rows)
        with self.act("Round trips through it, every byte checked; beside them a bare ring") as act:
            for i, row in enumerate(rows):
                for trips in _frames(session, row.size, 0.8 * each_s):
                    row.times.add(trips.times)
                    row.elapsed_s += trips.elapsed_s
                    if not trips.ok:
                        wrong.append(trouble(trips))
                    act.draw(_table(rows[: i + 1]))
                row.ring_messages, row.ring_s = bare_ring(self.scratch / "ring", row.size, 0.2 * each_s)
                act.draw(_table(rows[: i + 1]))
        count = sum(row.times.count for row in rows)
        self.trips += count
        self.check(
            not wrong,
            "every byte came back as it was sent",
            wrong[0] if wrong else plural(count, "round trip"),
        )

    def _kill(self, session: PingSession, first: EchoProcess, held: contextlib.ExitStack) -> None:
        place = self.directory.place("echo")
        line = Sparkline(min(100, self.console.width - 4), "round trips, a bar each 0.1 s")
        with self.act("kill -9 of the echo, with traffic on it") as act:
            self._traffic(session, act, line)
            killed = _KillSoon(first)
            trips = session.measure(seconds=_NOTICED_S + _MOMENT_S)
            told_ns = time.perf_counter_ns() - killed.at_ns
            line.add(0.0, max(1, round(told_ns / 1e9 / _MOMENT_S)))
            act.say(f"[bold red]kill -9 {first.pid}[/bold red] with a payload on its way", "kill")
            hung = not trips.reset or trips.wrong > 0
            self.trips += trips.times.count
            verdict = f"told after {time_text(told_ns)}" if not hung else trouble(trips)
            act.say(
                f"the stream was reset, not left hanging: {verdict}" if not hung else verdict,
                "bad" if hung else "ok",
            )
            self.check(not hung, "streams of the dead echo were reset", verdict)
            left = sum(path.is_file() for path in place.path.rglob("*"))
            act.say(f"{plural(left, 'file')} of the dead echo left in [bold]{place.path}[/bold]")
            began = time.monotonic()
            second = held.enter_context(EchoProcess("echo", self.directory))
            session.connect()
            back_s = time.monotonic() - began
            line.add(0.0, round(back_s / _MOMENT_S))
            act.say(f"a new echo, pid {second.pid}, removed them; streams are set up again", "ok")
            count = self._traffic(session, act, line)
            act.say(f"traffic goes on: {plural(count, 'round trip')} since", "ok" if count else "bad")
            self.check(count > 0, "traffic went on with a new echo", f"after {back_s:.2f} s")

    def _traffic(self, session: PingSession, act: Act, line: Sparkline) -> int:
        count = 0
        good = True
        until = time.monotonic() + 0.12 * self.seconds
        while time.monotonic() < until:
            trips = session.measure(seconds=_MOMENT_S)
            good = good and trips.ok
            count += trips.times.count
            line.add(trips.per_second)
            act.draw(line)
        self.trips += count
        return count if good else 0

    def _leave(self) -> None:
        left = list(self.directory.root.rglob("*")) if self.directory.root.exists() else []
        self.check(not left, "no file was left behind", plural(len(left), "file"))

    def sum_up(self) -> bool:
        """The summary; True when everything was as it should be."""
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column()
        table.add_column(justify="right", style="bold")
        for good, claim, figure in self.checks:
            sign = Text("✓", style="bold green") if good else Text("✗", style="bold red")
            table.add_row(sign, claim if good else Text(f"not so: {claim}", style="bold red"), figure)
        good = all(check[0] for check in self.checks)
        with Act(self.console, False, "Summary" if good else "Summary: something went wrong") as act:
            act.draw(table)
        return good


class _KillSoon:
    """Kills an echo in a moment, from another thread, so that it happens in the middle of traffic."""

    def __init__(self, echo: EchoProcess) -> None:
        self._echo = echo
        self.at_ns = time.perf_counter_ns()
        threading.Timer(_MOMENT_S, self._kill).start()

    def _kill(self) -> None:
        self.at_ns = time.perf_counter_ns()
        self._echo.kill()


def _frames(session: PingSession, size: int, seconds: float) -> Iterator[Trips]:
    # In pieces, so that drawing falls between measurements and not into them.
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        yield session.measure(size=size, seconds=min(left, _FRAME_S))


def bare_ring(path: Path, size: int, seconds: float) -> tuple[int, float]:
    """Writes and drains a ring in this process: how many messages in how many seconds, each checked."""
    ring = Ring(Mapping.create(path, _RING_CAPACITY + TRAILER_LENGTH))
    made = payloads(size)
    batch = [next(made) for _ in range(min(_RING_BATCH, _RING_CAPACITY // (2 * (size + 16))))]
    read = _drained(ring, batch) if size < _LARGE else _read_in_place(ring, batch)
    count = 0
    began = time.perf_counter()
    try:
        while (passed := time.perf_counter() - began) < seconds:
            if ring.write_many(1, batch) != len(batch) or not read():
                raise RingDamaged("a ring gave back other messages than were written")
            count += len(batch)
    finally:
        ring.close()
        path.unlink()
    return count, passed


def _drained(ring: Ring, batch: list[bytes]) -> Callable[[], bool]:
    expected = [(1, message) for message in batch]
    return lambda: ring.drain() == expected


def _read_in_place(ring: Ring, batch: list[bytes]) -> Callable[[], bool]:
    def read() -> bool:
        right = 0

        def check(kind: int, view: memoryview) -> None:
            nonlocal right
            right += len(view) == len(batch[right]) and batch[right].startswith(view)

        while ring.readable():
            ring.read(check)
        return right == len(batch)

    return read


def _table(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("payload", "round trips", "p50", "p99", "there and back", "bare ring", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        ring_rate = row.ring_messages / row.ring_s if row.ring_s else 0.0
        table.add_row(
            size_text(row.size),
            rate_text(row.per_second),
            Text(time_text(row.times.percentile(50)), style="bold green"),
            time_text(row.times.percentile(99)),
            f"{amount_text(2 * row.size * row.per_second)}/s",
            rate_text(ring_rate) if ring_rate else "…",
            f"{amount_text(ring_rate * row.size)}/s" if ring_rate else "",
        )
    return table


def program() -> str:
    """How to call this command line from here."""
    script = Path(sys.executable).parent / "echomesh"
    found = shutil.which("echomesh")
    if found is not None and (Path(found) == script or not script.exists()):
        return "echomesh"
    if not script.exists():
        return f"{sys.executable} -m echomesh"
    return os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)


@contextlib.contextmanager
def _scratch(place: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="echomesh-demo-", dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name)


class Part(StrEnum):
    """What to see."""

    ALL = "all"
    LOCAL = "local"
    CITY = "city"


def demo(
    part: Annotated[
        Part, typer.Argument(help="local: shared memory and bridged servers; city: events, a log and Spark.")
    ] = Part.ALL,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the city's log, tables and chart stay; a new one by default."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, hidden=True)] = 20.0,
    city_seconds: Annotated[float, typer.Option(min=10.0, hidden=True)] = 60.0,
    place: Annotated[Path | None, typer.Option("--in", hidden=True)] = None,
) -> None:
    """See it work: processes are killed, links are cut, and nothing is lost, from shared memory to tables of Spark."""
    console = out()
    title = ": an event mesh that loses nothing\n"
    console.print(Text.assemble(("echomesh", "bold cyan"), f" {__version__}", title))
    kept = None if part == Part.LOCAL else keep or Path(tempfile.mkdtemp(prefix="echomesh-city-", dir=place))
    with contextlib.ExitStack() as held:
        memory = place or Path("/dev/shm")
        root = held.enter_context(_scratch(memory if os.access(memory, os.W_OK) else None))
        disk = held.enter_context(_scratch(place))
        play = Demo(console, seconds, root, disk)
        if part != Part.CITY:
            play.play_local()
        if kept is not None:
            play.play_city(kept, city_seconds)
        good = play.sum_up()
    console.print(Text.assemble(("▌ ", "cyan"), ("Go on from here", "bold")))
    console.print(commands(_next(program(), kept)), soft_wrap=True)
    if not good:
        raise typer.Exit(FAILED)


def _next(call: str, kept: Path | None) -> list[tuple[str, str]]:
    if kept is None:
        return [
            (f"{call} up", "a server of your own"),
            (f"{call} sub 'orders/**'", "print events, in another terminal"),
            (f"{call} pub orders/new hello", "publish one, in a third"),
            (f"{call} ping --start", "round trips through shared memory"),
        ]
    data = kept / "data"
    return [
        (f"{call} log cat alerts/hot --data {data}", "the alerts, as JSON"),
        (f"{call} pipeline ls --data {data}", "the pipelines, and how they fared"),
        (f"{call} up --data {data}", "the city's node, for traffic of your own"),
    ]
