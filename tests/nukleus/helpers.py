"""What the tests of nuklei share: handlers that remember, threads and processes that run, patience."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from echomesh.errors import EchomeshError
from echomesh.native.doorbell import Doorbell
from echomesh.nukleus import Echo, Nukleus, Stream
from echomesh.nukleus.commands import Bind, Bound, Connect, Connected, Prepare, Prepared
from echomesh.nukleus.control import SMALL
from echomesh.nukleus.sync import Controller
from tests.support.processes import PATIENCE_S


class Recorder:
    """A handler that does nothing but remember."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int] | tuple[str, int, bytes]] = []
        self.streams: list[Stream] = []

    def on_begin(self, stream: Stream) -> None:
        self.events.append(("begin", stream.inbound_id))
        self.streams.append(stream)

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        self.events.append(("data", stream.inbound_id, bytes(payload)))

    def on_end(self, stream: Stream) -> None:
        self.events.append(("end", stream.inbound_id))

    def on_reset(self, stream: Stream) -> None:
        self.events.append(("reset", stream.inbound_id or -stream.outbound_id))

    @property
    def payloads(self) -> list[bytes]:
        return [event[2] for event in self.events if len(event) == 3]

    def saw(self, kind: str) -> int:
        return sum(event[0] == kind for event in self.events)


def step_until(nukleus: Nukleus, true: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Runs a nukleus in this thread until something is so."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"it never came true: {nukleus.counters}"
        nukleus.step(0.01)


@contextlib.contextmanager
def running(nukleus: Nukleus, *, serve: bool = False) -> Iterator[Nukleus]:
    """A nukleus that a thread runs, and that is closed at the end."""

    def main() -> None:
        if serve:
            asyncio.run(nukleus.serve())
        else:
            nukleus.run()

    thread = threading.Thread(target=main)
    thread.start()
    try:
        yield nukleus
    finally:
        nukleus.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        nukleus.close()


@contextlib.contextmanager
def echo_in(root: Path, *, serve: bool = False, stream_capacity: int = 1 << 16) -> Iterator[Nukleus]:
    nukleus = Nukleus("echo", Echo(), directory=root, capacities=SMALL, stream_capacity=stream_capacity)
    with running(nukleus, serve=serve):
        yield nukleus


def link(first: Nukleus, second: Nukleus) -> None:
    """Captures and routes both ways; nobody runs them yet, or both run in this thread."""
    first.capture(second.name)
    second.capture(first.name)
    first.route(second.name)
    second.route(first.name)


def bind(nukleus: Nukleus, source: str, reference: int = 0) -> int:
    answer = nukleus.do(Bind(0, source, reference))
    assert isinstance(answer, Bound), answer
    return answer.reference


def prepare(nukleus: Nukleus, destination: str, reference: int) -> int:
    answer = nukleus.do(Prepare(0, destination, reference))
    assert isinstance(answer, Prepared), answer
    return answer.reference


def connect(nukleus: Nukleus, reference: int) -> int:
    answer = nukleus.do(Connect(0, reference))
    assert isinstance(answer, Connected), answer
    return answer.reference


def join_echo(peer: Nukleus, control: Controller) -> int:
    """Links a nukleus of this thread with a running echo: the prepare reference to connect with."""
    if control.nukleus not in peer._hub.inlets:
        peer.capture(control.nukleus)
    control.capture(peer.name)
    control.route(peer.name)
    peer.route(control.nukleus)
    return prepare(peer, control.nukleus, control.bind(peer.name))


def controller(root: Path, name: str = "echo", *, timeout: float = PATIENCE_S) -> Controller:
    """A controller of a nukleus that may be about to start."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            made = Controller(name, directory=root, timeout=timeout)
            Doorbell.open(made._place.doorbell)
            return made
        except EchomeshError:
            assert time.monotonic() < deadline, f"{name} never started"
            time.sleep(0.002)


def files_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*")) if root.exists() else []
