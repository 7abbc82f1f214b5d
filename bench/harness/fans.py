"""One sender and many receivers, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import traceback
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bench.harness.machine import free_port
from bench.harness.pairs import GRACE_SECONDS, MeasurementFailed, remove
from bench.harness.peer import GREETING_SECONDS, Contestant, Run
from bench.harness.roles import Failed, Outcome, Received, Sent, die_with_parent, make, meet, stream_in
from bench.native.checker import END, HELLO, Stamper, stamp

_SPAWN = multiprocessing.get_context("spawn")


def measure_fan(contestant: Contestant, receivers: int, size: int, seconds: float, *, count: int = 0) -> float:
    """Messages a second that every receiver got: the rate of the slowest."""
    directory = Path(tempfile.mkdtemp(prefix="echomesh-bench-", dir="/dev/shm"))
    run = Run(contestant, "stream", size, seconds, directory, free_port(), count)
    pipes = [_SPAWN.Pipe() for _ in range(receivers)]
    results, processes = [], []
    try:
        for target, links in [(_send, [ours for ours, _ in pipes]), *((_receive, [theirs]) for _, theirs in pipes)]:
            ours, theirs = _SPAWN.Pipe(duplex=False)
            process = _SPAWN.Process(target=target, args=(run, links, theirs), daemon=True)
            process.start()
            processes.append(process)
            results.append(ours)
            theirs.close()
        return _rate(contestant, [_outcome(contestant, result, seconds) for result in results])
    finally:
        for process in processes:
            process.join(2)
            if process.is_alive():
                process.kill()
            process.join()
        for end in (*results, *(end for pipe in pipes for end in pipe)):
            end.close()
        remove(directory)


def _outcome(contestant: Contestant, result: Connection, seconds: float) -> Outcome:
    if not wait([result], seconds + 2 * GRACE_SECONDS):
        raise MeasurementFailed(f"{contestant.name}: it hangs")
    try:
        found: Outcome = result.recv()
    except EOFError:
        raise MeasurementFailed(f"{contestant.name}: a process died") from None
    if isinstance(found, Failed):
        raise MeasurementFailed(f"{contestant.name}: {found.trace}")
    return found


def _rate(contestant: Contestant, outcomes: list[Outcome]) -> float:
    sent, *received = outcomes
    rates = []
    for one in received:
        if (
            not isinstance(sent, Sent)
            or not isinstance(one, Received)
            or one.bad
            or one.lost
            or one.good != sent.messages
        ):
            raise MeasurementFailed(f"{contestant.name}: {sent} and {one}")
        rates.append(one.good / one.seconds)
    return min(rates)


def _send(run: Run, links: list[Connection], results: Connection) -> None:
    if not die_with_parent():
        return
    try:
        peer = make(run, "a")
        for link in links:
            meet(link)
        peer.connect()
        sender = peer.sender("stream")
        for link in links:
            meet(link)
        waiting = list(links)
        while waiting:
            stamp(sender.body, HELLO)
            sender.send(sender.body)
            waiting = [link for link in waiting if not (link.poll() and link.recv() == "hello")]
            time.sleep(GREETING_SECONDS)
        stamps: Stamper[Any] = Stamper(sender.body, run.seconds, run.count)
        sender.send_all(stamps)
        stamp(sender.body, END)
        sender.send(sender.body)
        for link in links:
            meet(link)
        peer.close()
        results.send(Sent(stamps.sent, 0.0))
    except BaseException:
        results.send(Failed(traceback.format_exc()))


def _receive(run: Run, links: list[Connection], results: Connection) -> None:
    if not die_with_parent():
        return
    try:
        (link,) = links
        peer = make(run, "b")
        meet(link)
        peer.connect()
        outcome = stream_in(peer, link)
        meet(link)
        peer.close()
        results.send(outcome)
    except BaseException:
        results.send(Failed(traceback.format_exc()))
