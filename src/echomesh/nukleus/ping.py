"""The other side of Echo: sends payloads through it, checks what comes back, and takes the time."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

from echomesh.errors import (
    BusyError,
    CommandError,
    CommandRefused,
    CommandTimeout,
    EchomeshError,
    MessageTooLarge,
    StreamReset,
)
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.nukleus import sync
from echomesh.nukleus.commands import Connect, Message, Prepare, Referring, Uncapture, Unroute
from echomesh.nukleus.control import SMALL
from echomesh.nukleus.directory import Directory
from echomesh.nukleus.histogram import Histogram
from echomesh.nukleus.nukleus import DEFAULT_SPIN_S, Nukleus
from echomesh.nukleus.streams import Stream

_STREAM_ID_LENGTH = 8
_NAMES = 1000
_TEARDOWN_S = 1.0
_LOOK_S = 0.25
_PROGRESS_S = 0.2
# A sleep ends some 60 microseconds late: the last stretch before a send that is due is spun away.
_AIM_NS = 200_000
_FEWEST, _MOST, _POOL = 4, 256, 1 << 19

Progress = Callable[["Trips"], object]


@dataclass
class Trips:
    """What a measurement found out. `times` holds the round trips whose answers were right."""

    size: int
    sent: int = 0
    wrong: int = 0
    """Answers with other bytes than were sent, or that nobody asked for."""
    lost: int = 0
    """Payloads that were never answered."""
    reset: bool = False
    """The echo gave the stream up, or died."""
    interrupted: bool = False
    """`PingSession.stop` ended it before its time."""
    elapsed_s: float = 0.0
    times: Histogram = field(default_factory=Histogram)

    @property
    def received(self) -> int:
        """How many answers came, right or wrong."""
        return self.times.count + self.wrong

    @property
    def per_second(self) -> float:
        """Right answers a second."""
        return self.times.count / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def ok(self) -> bool:
        """Whether every payload came back as it was sent."""
        return not (self.wrong or self.lost or self.reset)


class Ping:
    """The handler: keeps what was sent, compares what comes back byte for byte, and takes the time."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.open = False
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.trips = Trips(0)

    def on_begin(self, stream: Stream) -> None:
        """The echo accepted our stream."""
        self.stream = stream
        self.open = True

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        """An answer: streams keep their order, so it must be that to the oldest payload."""
        now = time.perf_counter_ns()
        if not self.waiting:
            self.trips.wrong += 1
            return
        sent_ns, expected = self.waiting.popleft()
        # In place: a copy of a large payload would cost more than its trip.
        if len(payload) == len(expected) and expected.startswith(payload):
            self.trips.times.record(now - sent_ns)
        else:
            self.trips.wrong += 1

    def on_end(self, stream: Stream) -> None:
        """The echo ended its side, as it does when we end ours."""
        self.open = False

    def on_reset(self, stream: Stream) -> None:
        """The echo gave up, or died."""
        if stream is self.stream:
            self.open = False


def payloads(size: int) -> Iterator[bytes]:
    """Endless payloads: a few of noise, over and over, so that one can't be taken for its neighbour."""
    source = random.Random(size)
    # Made before the clock runs; few enough for a cache.
    return itertools.cycle([source.randbytes(size) for _ in range(max(_FEWEST, min(_MOST, _POOL // (size + 1))))])


class PingSession:
    """A client nukleus with a stream to an echo.

    with PingSession("echo") as session:
        print(session.measure(count=1000).times.percentile(50))
    """

    def __init__(
        self,
        echo: str = "echo",
        *,
        directory: str | os.PathLike[str] | Directory | None = None,
        timeout: float = 5.0,
        spin: float = DEFAULT_SPIN_S,
    ) -> None:
        self.echo = echo
        self.directory = directory if isinstance(directory, Directory) else Directory(directory)
        self.timeout = timeout
        self.spin = spin
        self._stopping = False
        self._reference = 0
        self.largest = 0
        """The largest payload that the rings take both ways, in bytes."""
        self._handler = Ping()
        self._controller().close()  # no files are made where there is no echo
        self.nukleus = self._settle()
        try:
            self.connect()
        except BaseException:
            self.close()
            raise

    def _controller(self, timeout: float | None = None) -> sync.Controller:
        return sync.Controller(self.echo, directory=self.directory, timeout=timeout or self.timeout)

    def _settle(self) -> Nukleus:
        # The first free name, and not a random one: what a killed ping left in the echo is found by the next.
        for name in ("ping", *(f"ping-{n}" for n in range(2, _NAMES))):
            with contextlib.suppress(BusyError):
                return Nukleus(name, self._handler, directory=self.directory, capacities=SMALL)
        raise BusyError(f"all of the {_NAMES - 1} names ping, ping-2 ... are taken in {self.directory.root}")

    def connect(self) -> None:
        """Sets the streams up; called again after the echo died and came back, it sets them up anew."""
        me, nukleus = self.nukleus.name, self.nukleus
        self._handler.stream = None
        self._handler.waiting.clear()
        for undo in (Unroute(0, self.echo), Uncapture(0, self.echo)):
            nukleus.do(undo)
        with self._controller() as echo:
            self._forget(echo)
            nukleus.capture(self.echo)
            while nukleus.work():
                pass  # frames of a dead echo go before there is a way to answer them
            echo.capture(me)
            echo.route(me)
            nukleus.route(self.echo)
            self._reference = echo.bind(me)
        self.largest = self._limit()
        prepared = self._done(Prepare(0, self.echo, self._reference))
        self._done(Connect(0, prepared.reference))
        if not self._work_until(lambda: self._handler.open, self.timeout):
            raise CommandTimeout(self.echo, "the stream", self.timeout, "is it an echo, and is it running?")

    def _done(self, command: Message) -> Referring:
        answer = self.nukleus.do(command)
        if not isinstance(answer, Referring):
            raise CommandRefused(self.nukleus.name, command, f"has {self.echo} just gone?")
        return answer

    def _forget(self, echo: sync.Controller) -> None:
        # Makes the echo forget this name, so that nothing of a killed predecessor is taken for ours.
        for command in (echo.unroute, echo.uncapture):
            with contextlib.suppress(CommandRefused):
                command(self.nukleus.name)
        place = self.directory.place(self.echo)
        if not place.foreign():
            place.stream(self.nukleus.name).unlink(missing_ok=True)

    def _work_until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not reached():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.nukleus.step(min(left, _LOOK_S), spin=self.spin)
        return True

    @property
    def open(self) -> bool:
        """Whether the stream is there; when not, `connect` makes a new one."""
        return self._handler.open

    def _limit(self) -> int:
        there = self.directory.place(self.echo).stream(self.nukleus.name)
        back = self.nukleus.place.stream(self.echo)
        limits = [Ring(Mapping.open(path, writable=False)).max_message for path in (there, back)]
        return min(limits) - _STREAM_ID_LENGTH

    def measure(
        self,
        *,
        count: int | None = None,
        seconds: float = math.inf,
        size: int = 64,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> Trips:
        """Sends `count` payloads, or for some seconds, or both; without either until `stop`.

        Without a `rate` one is on its way at a time. With one they are sent at their times, whether or not
        earlier ones have come back, and each is measured from when it was due: so a slow echo can't hide by
        slowing the client down.
        """
        if size > self.largest:
            raise MessageTooLarge(size, self.largest, f"a stream with {self.echo}")
        trips = self._handler.trips = Trips(size)
        self._handler.waiting.clear()
        self._stopping = False
        started = time.perf_counter_ns()
        run = _Run(self, trips, math.inf if count is None else count, started, seconds, progress)
        try:
            if rate is None:
                run.one_at_a_time()
            else:
                run.paced(1e9 / rate)
        except StreamReset:
            pass
        # Answers that nobody waits for any more are lost, and must not be taken for the next measurement's.
        trips.reset = not self.open
        trips.lost = len(self._handler.waiting)
        trips.interrupted = self._stopping
        trips.elapsed_s = (time.perf_counter_ns() - started) / 1e9
        if trips.lost and self.open and self._handler.stream is not None:
            self._handler.stream.reset()
            self._handler.open = False
        return trips

    def stop(self) -> None:
        """Ends `measure`; from any thread, or a signal handler."""
        self._stopping = True
        self.nukleus.bell.ring()

    def close(self) -> None:
        """Ends the stream, makes the echo forget this client, and removes all files."""
        with contextlib.suppress(EchomeshError):
            stream = self._handler.stream
            if self.open and stream is not None and stream.end():
                self._work_until(lambda: not self._handler.open, _TEARDOWN_S)
        with contextlib.suppress(CommandError), self._controller(_TEARDOWN_S) as echo:
            with contextlib.suppress(CommandRefused):
                echo.unbind(self._reference)
            self._forget(echo)
        self.nukleus.close()

    def __enter__(self) -> PingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Run:
    """One measurement, while it runs."""

    def __init__(
        self,
        session: PingSession,
        trips: Trips,
        count: float,
        started: int,
        seconds: float,
        progress: Progress | None,
    ) -> None:
        self._session = session
        self._handler = session._handler
        self._nukleus = session.nukleus
        self._trips = trips
        self._payloads = payloads(trips.size)
        self._count = count
        self._until = started + seconds * 1e9
        self._progress = progress
        self._next_progress = started + _PROGRESS_S * 1e9
        self._patience_ns = session.timeout * 1e9

    def _more(self, now: int) -> bool:
        return self._trips.sent < self._count and now < self._until and not self._session._stopping

    def _send(self, payload: bytes, due: int) -> None:
        stream = self._handler.stream
        if stream is None or not self._handler.open:
            raise StreamReset(f"there is no stream to {self._session.echo}")
        self._handler.waiting.append((due, payload))
        self._trips.sent += 1
        while not stream.send(payload):
            if self._too_late():
                return
            self._step()

    def _too_late(self) -> bool:
        # After `stop` there is less patience: somebody waits for the summary.
        if not self._handler.waiting:
            return False
        patience = min(self._patience_ns, _TEARDOWN_S * 1e9) if self._session._stopping else self._patience_ns
        return time.perf_counter_ns() - self._handler.waiting[0][0] > patience

    def _step(self, limit_s: float = _LOOK_S) -> None:
        self._nukleus.step(min(limit_s, _LOOK_S), spin=self._session.spin)

    def _report(self, now: int) -> None:
        if self._progress is not None and now >= self._next_progress:
            self._next_progress = now + _PROGRESS_S * 1e9
            self._progress(self._trips)

    def one_at_a_time(self) -> None:
        """Sends the next one when the last one is back."""
        waiting, step, spin = self._handler.waiting, self._nukleus.step, self._session.spin
        while self._more(now := time.perf_counter_ns()):
            self._report(now)
            payload = next(self._payloads)
            self._send(payload, time.perf_counter_ns())
            while waiting:
                step(_LOOK_S, spin=spin)
                if waiting and (not self._handler.open or self._too_late()):
                    return

    def paced(self, interval_ns: float) -> None:
        """Sends each one when it is due."""
        first = time.perf_counter_ns()
        while self._handler.open and not self._too_late():
            now = time.perf_counter_ns()
            more = self._more(now)
            if not more and not self._handler.waiting:
                return
            due = first + int(self._trips.sent * interval_ns)
            if not more:
                self._step()
            elif now >= due:
                self._send(next(self._payloads), due)
            elif due - now > _AIM_NS:
                self._report(now)
                self._step((due - now - _AIM_NS) / 1e9)
            else:
                self._report(now)
                if not self._nukleus.work():
                    os.sched_yield()  # the echo may be waiting for this very core


def ping(
    echo: str = "echo",
    *,
    directory: str | os.PathLike[str] | Directory | None = None,
    count: int = 1000,
    size: int = 64,
    rate: float | None = None,
    timeout: float = 5.0,
    spin: float = DEFAULT_SPIN_S,
) -> Trips:
    """Sends `count` payloads of `size` bytes through an Echo nukleus and tells how that went."""
    with PingSession(echo, directory=directory, timeout=timeout, spin=spin) as session:
        return session.measure(count=count, size=size, rate=rate)
