"""kill -9 of the writer at random points, with readers attached."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from time import sleep

import pytest

from echomesh.log import LogReader, TopicLog
from tests.log.support import events_of
from tests.log.writer_process import TOPICS
from tests.support.counts import count
from tests.support.repository import ROOT

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(1800)]


class Follower(threading.Thread):
    """A reader that keeps what it saw of one topic."""

    def __init__(self, directory: Path, topic: str) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self.topic = topic
        self.seen: list[bytes] = []
        self.stopping = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with LogReader(self.directory) as reader:
                topic = reader.topic(self.topic)
                while not self.stopping:
                    for batch in topic.follow(len(self.seen), timeout=0.05):
                        self.seen += batch.events()
                        if self.stopping:
                            break
        except BaseException as error:
            self.error = error


def run_and_kill(directory: Path, start: int, chosen: random.Random) -> dict[int, int]:
    """Runs a writer for a moment; the events it acknowledged and their offsets."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", "tests.log.writer_process", str(directory), str(start)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    killer = threading.Timer(chosen.uniform(0.0, 0.15), process.kill)
    killer.start()
    lines = process.stdout.read().split(b"\n")
    process.wait()
    killer.join()
    process.stdout.close()
    return {int(line.split()[0]): int(line.split()[1]) for line in lines[:-1]}


def number_of(event: bytes) -> int:
    return int(event.partition(b":")[0])


def test_a_killed_writer_loses_nothing_that_it_acknowledged_and_readers_saw_nothing_that_vanished(
    tmp_path: Path,
) -> None:
    chosen = random.Random(3)
    with TopicLog(tmp_path) as log:
        for t in range(TOPICS):
            log.append(f"t{t}", b"-1:")
    followers = [Follower(tmp_path, f"t{t}") for t in range(TOPICS)]
    for follower in followers:
        follower.start()
    acknowledged: dict[int, int] = {}
    rounds = count(25, 500)
    for round in range(rounds):
        acknowledged |= run_and_kill(tmp_path, round * 1_000_000, chosen)
    sleep(0.5)
    for follower in followers:
        follower.stopping = True
        follower.join()
        assert follower.error is None
    assert len(acknowledged) > rounds
    with LogReader(tmp_path) as reader:
        still = {t: events_of(reader.topic(f"t{t}")) for t in range(TOPICS)}
    with TopicLog(tmp_path) as log:
        for t in range(TOPICS):
            found = events_of(log.reader().topic(f"t{t}"))
            assert found == still[t]
            assert found[: len(followers[t].seen)] == followers[t].seen
            numbers = [number_of(event) for event in found]
            assert numbers == sorted(set(numbers)), "in order, once"
            for number, offset in acknowledged.items():
                if number % TOPICS == t:
                    assert numbers[offset] == number
