"""kill -9 of the writer at random points, with readers attached."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from echomesh.log import LogOptions, LogReader, TopicLog
from tests.log.support import events_of
from tests.log.writer_process import TOPICS, event, number_of, topics_of
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
        self.wanted = sys.maxsize
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with LogReader(self.directory) as reader:
                topic = reader.topic(self.topic)
                while len(self.seen) < self.wanted:
                    for batch in topic.follow(len(self.seen), timeout=0.05):
                        self.seen += batch.events()
        except BaseException as error:
            self.error = error

    def stop_at(self, wanted: int) -> None:
        """Ends when so many were seen."""
        self.wanted = wanted
        self.join(60)
        assert not self.is_alive(), f"{len(self.seen)} of {wanted}"


def run_and_kill(directory: Path, start: int, life_s: float, *options: str) -> dict[int, int]:
    """Runs a writer for so long; the events it acknowledged and their offsets."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", "tests.log.writer_process", str(directory), str(start), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    killer = threading.Timer(life_s, process.kill)
    killer.start()
    lines = process.stdout.read().split(b"\n")
    process.wait()
    killer.join()
    process.stdout.close()
    return {int(line.split()[0]): int(line.split()[1]) for line in lines[:-1]}


@pytest.mark.parametrize(
    ("options", "life_s", "quick", "full"),
    [([], 0.15, 25, 500), (["many"], 0.4, 8, 200), (["convert"], 1.0, 4, 100), (["staged"], 0.3, 8, 200)],
    ids=["appends", "appends to many topics", "converts", "commits stages"],
)
def test_a_killed_writer_loses_nothing_that_it_acknowledged_and_readers_saw_nothing_that_vanished(
    tmp_path: Path, options: list[str], life_s: float, quick: int, full: int
) -> None:
    chosen = random.Random(3)
    topics = topics_of(options)
    with TopicLog(tmp_path) as log:
        for t in range(topics):
            log.append(f"t{t}", event(-1, 0))
    followers = [Follower(tmp_path, f"t{t}") for t in range(TOPICS)]
    for follower in followers:
        follower.start()
    acknowledged: dict[int, int] = {}
    rounds = count(quick, full)
    for round in range(rounds):
        acknowledged |= run_and_kill(tmp_path, round * 1_000_000, chosen.uniform(0.0, life_s), *options)
    with LogReader(tmp_path) as reader:
        still = {t: events_of(reader.topic(f"t{t}")) for t in range(topics)}
    for t, follower in enumerate(followers):
        follower.stop_at(len(still[t]))
        assert follower.error is None
    assert len(acknowledged) > rounds
    with TopicLog(tmp_path, LogOptions(parquet_after_s=0.0, duplicate_bytes=0, background=False)) as log:
        if "convert" in options:
            log.core.keeper.care()
            assert not list(tmp_path.rglob("*.new"))
            assert list(tmp_path.rglob("*.parquet"))
        if "staged" in options:
            assert list(tmp_path.rglob("*.rows"))
            assert not list(tmp_path.rglob("*.room"))
        for t, follower in enumerate(followers):
            assert still[t] == follower.seen
        numbers = {}
        for t in range(topics):
            found = events_of(log.reader().topic(f"t{t}"))
            assert found == still[t]
            numbers[t] = [number_of(event) for event in found]
            assert numbers[t] == sorted(set(numbers[t])), "in order, once"
        for number, offset in acknowledged.items():
            assert numbers[number % topics][offset] == number
