"""The two ends of a measurement, as they run in their processes."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from bench.harness.peer import GREETING_SECONDS, Flow, Peer, Role, Run
from bench.native.checker import END, HELLO, Checker, Stamper, stamp

WARM_LAPS = 200
PAUSE_SECONDS = 0.001
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Sent:
    """What the sender of a stream knows at its end."""

    messages: int
    cpu_s: float


@dataclass(frozen=True)
class Received:
    """What the receiver of a stream counted."""

    good: int
    bad: int
    lost: int
    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Laps:
    """Round trips, in microseconds."""

    count: int
    bad: int
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class Failed:
    """An end that raised."""

    trace: str


Send = Callable[[Any], object]
Receive = Callable[[], Any]
Check = Callable[[Any], bool]
Outcome = Sent | Received | Laps | Failed | None


def play(run: Run, role: Role, link: Connection, results: Connection) -> None:
    """The whole life of one end's process. `link` leads to the other end, `results` to the harness."""
    if not die_with_parent():
        return
    try:
        peer = make(run, role)
        meet(link)
        peer.connect()
        outcome = _ROLES[run.flow][role](peer, link)
        meet(link)  # nobody takes the rings and sockets away while the other still looks at them
        peer.close()
    except BaseException:
        outcome = Failed(traceback.format_exc())
    results.send(outcome)


def die_with_parent() -> bool:
    """Ctrl-C is the harness's to handle; it stops us then. If it is killed, so are we. False: it is gone already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    return os.getppid() != 1


def make(run: Run, role: Role) -> Peer:
    """The peer of a run, from its module."""
    module = importlib.import_module(f"bench.peers.{run.contestant.module}")
    made: Peer = module.make(run, role)
    return made


def meet(link: Connection) -> None:
    # Greetings and ends may cross with this; only the word that both say counts.
    link.send("here")
    while link.recv() != "here":
        pass


def _stream_out(peer: Peer, link: Connection) -> Sent:
    sender = peer.sender("stream")
    meet(link)
    # Some peers lose what is sent before they have found each other.
    while not link.poll(GREETING_SECONDS):
        stamp(sender.body, HELLO)
        sender.send(sender.body)
    link.recv()
    before_s = time.process_time()
    stamps: Stamper[Any] = Stamper(sender.body, peer.run.seconds, peer.run.count)
    sender.send_all(stamps)
    cpu_s = time.process_time() - before_s
    stamp(sender.body, END)
    sender.send(sender.body)
    return Sent(stamps.sent, cpu_s)


def stream_in(peer: Peer, link: Connection) -> Received:
    receiver = peer.receiver("stream")
    before_s = 0.0

    def greeted() -> None:
        nonlocal before_s
        before_s = time.process_time()
        link.send("hello")

    checker = Checker(peer.run.size, on_hello=greeted)
    meet(link)
    receiver.receive_all(checker)
    cpu_s = time.process_time() - before_s
    return Received(checker.good, checker.bad, checker.lost, checker.seconds, cpu_s)


def _ping(peer: Peer, link: Connection) -> Laps:
    sender, receiver = peer.sender("ping"), peer.receiver("pong")
    checker = Checker(peer.run.size)
    meet(link)
    peer.begin()
    paced = peer.run.flow == "paced round trip"
    stamps: Stamper[Any] = Stamper(sender.body, peer.run.seconds, peer.run.count, laps=not paced)
    if paced:
        laps = _paced(stamps, sender.send, receiver.receive, checker.check)
    else:
        peer.exchange(stamps, sender, receiver, checker.check)
        laps = stamps.laps_ns()
    peer.finish(sender)
    laps = sorted(laps[min(WARM_LAPS, len(laps) // 10) :])
    if not laps:
        raise RuntimeError("not one answer came in time")
    wrong = checker.bad + checker.lost + stamps.sent - checker.good
    return Laps(len(laps), wrong, laps[len(laps) // 2] / 1e3, laps[len(laps) * 99 // 100] / 1e3)


def _paced(stamps: Stamper[Any], send: Send, receive: Receive, check: Check) -> list[int]:
    # With a pause before each: the one that answers is asleep when a message comes.
    # The one that asks waits as its contestant does; ours has learnt by then to look out before it sleeps.
    laps = []
    for body in stamps:
        time.sleep(PAUSE_SECONDS)
        start = time.perf_counter_ns()
        send(body)
        answer = receive()
        laps.append(time.perf_counter_ns() - start)
        check(answer)
    return laps


def _pong(peer: Peer, link: Connection) -> None:
    checker = Checker(peer.run.size)
    meet(link)
    peer.echo(checker.check)


_ROLES: dict[Flow, dict[Role, Callable[[Peer, Connection], Outcome]]] = {
    "stream": {"a": _stream_out, "b": stream_in},
    "round trip": {"a": _ping, "b": _pong},
    "paced round trip": {"a": _ping, "b": _pong},
}
