"""What a commit of stages wrote to several topics becomes visible in all of them at once."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from echomesh.log import LogReader, TopicLog
from tests.log.support import events_of, small
from tests.support.counts import count
from tests.support.repository import ROOT

TOPICS = 300
MOVES_AT, HEADER_BYTES, SLOT_BYTES = 72, 4096, 64  # docs/format-log.md

COMMITS = """
import sys
from echomesh.log import LogOptions, TopicLog
from tests.log.test_moves import commit
with TopicLog(sys.argv[1], LogOptions(duplicate_bytes=0)) as log:
    print("ready", flush=True)
    for epoch in range(1, int(sys.argv[2])):
        commit(log, epoch)
"""


def commit(log: TopicLog, epoch: int) -> None:
    """A row to each of the topics, and to one that is new."""
    stage = log.stage("w", epoch, "r")
    for name in [*(f"old/{number}" for number in range(TOPICS)), f"new/{epoch}"]:
        stage.add(name, b"%d" % epoch)
    log.commit("w", epoch, "r", [stage.close().stage])


def ends(reader: LogReader) -> tuple[set[int], int]:
    """The ends of the old topics, and how many events the new ones have."""
    names: list[str] = []

    def numbers() -> list[int]:
        listed = reader.topics()
        names[:] = [topic.name for topic in listed]
        return [topic.number for topic in listed]

    found = dict(zip(names, (end for _, end in reader.bounds(numbers)), strict=True)) if numbers() else {}
    old = {end for name, end in found.items() if name.startswith("old/")}
    return old, sum(end for name, end in found.items() if name.startswith("new/"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nobody_sees_a_commit_in_some_of_its_topics_only(shm_dir: Path) -> None:
    epochs = count(60, 1000)
    command = [sys.executable, "-c", COMMITS, str(shm_dir), str(epochs)]
    with TopicLog(shm_dir, small()) as log:
        commit(log, 0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        with LogReader(shm_dir) as reader:
            seen: set[int] = set()
            while max(seen, default=0) < epochs:
                assert writer.poll() in (None, 0)
                old, new = ends(reader)
                assert old == {new}
                seen |= old
        assert writer.wait(60) == 0
    assert len(seen) > epochs // 4, "it looked in between"


def test_a_topic_that_a_commit_made_while_they_were_listed_is_among_them(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log, log.reader() as reader:
        log.append("a", b"first")
        asked: list[int] = []

        def numbers() -> list[int]:
            listed = [topic.number for topic in reader.topics()]
            asked.append(len(listed))
            if len(asked) == 1:
                stage = log.stage("w", 0, "r")
                for name in "ab":
                    stage.add(name, b"row")
                log.commit("w", 0, "r", [stage.close().stage])
            return listed

        assert reader.bounds(numbers) == [(0, 2), (0, 1)]
        assert asked == [1, 2]


class Halfway:
    """The file of high-watermarks as a writer leaves it that dies while topics move."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def at(self, place: int, form: str) -> int:
        with self.path.open("rb") as file:
            file.seek(place)
            return int(struct.unpack(form, file.read(struct.calcsize(form)))[0])

    def put(self, place: int, form: str, value: int) -> None:
        with self.path.open("r+b") as file:
            file.seek(place)
            file.write(struct.pack(form, value))

    def move(self, numbers: list[int], moved: dict[int, int]) -> None:
        """Begins to move these topics, and moves some."""
        moves = self.at(MOVES_AT, "<i") + 1
        assert moves & 1
        for number in numbers:
            slot = HEADER_BYTES + number * SLOT_BYTES
            self.put(slot + 24, "<q", self.at(slot, "<q"))
            self.put(slot + 32, "<i", moves)
        self.put(MOVES_AT, "<i", moves)
        for number, high in moved.items():
            self.put(HEADER_BYTES + number * SLOT_BYTES, "<q", high)


@contextmanager
def half_a_move(directory: Path) -> Iterator[tuple[TopicLog, LogReader]]:
    """A log of three topics with an event each, of which two are about to have two, and one of these has."""
    with TopicLog(directory, small()) as log:
        for name in "abc":
            log.append(name, b"first")
        halfway = Halfway(Path(log.core.paths.water))
        halfway.move([0, 1], {0: 2})
        with log.reader() as reader:
            yield log, reader


def test_while_topics_move_they_are_seen_where_they_were_and_nobody_waits(tmp_path: Path) -> None:
    with half_a_move(tmp_path) as (log, reader):
        begun = monotonic()
        assert reader.bounds(lambda: [0, 1, 2]) == [(0, 1)] * 3
        assert reader.topic("a").read(0).events() == [b"first"]
        assert not reader.topic("a").wait(1, 0.1)
        assert monotonic() - begun < 5
        log.append("c", b"second")
        assert reader.topic("c").read(1).events() == [b"second"], "others go on"


def test_who_sleeps_on_a_topic_wakes_when_all_have_moved(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log, log.reader() as reader:
        for name in "ab":
            log.append(name, b"first")
        woken: list[tuple[bool, list[tuple[int, int]]]] = []

        def sleep() -> None:
            with log.reader() as other:
                woken.append((other.topic("b").wait(1, 30), other.bounds(lambda: [0, 1])))

        sleeper = threading.Thread(target=sleep)
        sleeper.start()
        stage = log.stage("w", 0, "r")
        for name in "ab":
            stage.add(name, b"row")
        log.commit("w", 0, "r", [stage.close().stage])
        sleeper.join(30)
        assert woken == [(True, [(0, 2), (0, 2)])]
        assert reader.bounds(lambda: [0, 1]) == [(0, 2), (0, 2)]


def test_another_writer_finds_nothing_of_a_move_that_was_not_finished(tmp_path: Path) -> None:
    with half_a_move(tmp_path) as (log, reader):
        moves = reader.view.moves
        log.close()
        with TopicLog(tmp_path, small()) as again:
            assert reader.bounds(lambda: [0, 1, 2]) == [(0, 1)] * 3
            assert not reader.view.moves & 1
            assert reader.view.moves != moves
            again.append("a", b"second")
            assert events_of(reader.topic("a")) == [b"first", b"second"]
