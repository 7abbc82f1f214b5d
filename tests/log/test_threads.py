"""Threads that append and commit at once, on a disk that fails now and then: what was acknowledged is there, once."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import DiskFull, LogReadOnly
from echomesh.log import LogReader, TopicLog, catalogue
from echomesh.log.stage_commit import StageCommit
from echomesh.log.storage import RealStorage
from tests.log.storm_support import Promises, Unsteady, event
from tests.log.support import ENOSPC, FaultyStorage, crash, small, stored
from tests.support.counts import count


class Storm(Promises):
    """Three threads append, one commits stages."""

    def __init__(self, log: TopicLog, seed: int, rounds: int) -> None:
        super().__init__()
        self.log = log
        self.seed = seed
        self.rounds = rounds
        self.errors: list[BaseException] = []

    def run(self) -> None:
        works = [*(lambda who=who: self.append(who) for who in range(3)), self.commit]
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except LogReadOnly:
            pass  # two failures at once: it says so, and takes no more
        except BaseException as error:
            self.errors.append(error)

    def append(self, who: int) -> None:
        chosen = random.Random(self.seed * 10 + who)
        for number in range(self.rounds):
            topic, encoded = chosen.choice("abc"), event(who, number, chosen.choice([5, 50, 900]))
            try:
                offset = self.log.append(topic, encoded)
                self.keep(topic, offset, encoded)
                if number % 5 == 0:
                    assert self.log.append(topic, encoded) == offset
            except DiskFull:
                continue

    def commit(self) -> None:
        chosen = random.Random(self.seed * 10 + 9)
        for epoch in range(self.rounds // 10):
            rows: dict[str, list[bytes]] = {}
            try:
                stage = self.log.stage("w", epoch, "r")
                for row in range(chosen.choice([1, 5, 40])):
                    topic, encoded = chosen.choice("abcd"), event("staged", f"{epoch}.{row}", chosen.choice([5, 200]))
                    stage.add(topic, encoded)
                    rows.setdefault(topic, []).append(encoded)
                done = self.log.commit("w", epoch, "r", [stage.close().stage])
            except DiskFull:
                continue
            for (_, topic), (first, _) in done.offsets.items():
                for i, encoded in enumerate(rows[topic]):
                    self.keep(topic, first + i, encoded)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chance", [0.0, 0.01], ids=["steady", "unsteady"])
@pytest.mark.parametrize("background", [False, True], ids=["calls", "background"])
def test_what_was_acknowledged_is_there_once_whatever_threads_and_the_disk_do(
    shm_dir: Path, chance: float, background: bool
) -> None:
    for seed in range(count(3, 400)):
        directory = shm_dir / str(seed)
        disk = Unsteady(seed, 0.0)
        options = small(disk, background=background, sync_interval_s=0.02, duplicate_bytes=1 << 20)
        log = TopicLog(directory, options)
        log.append("a", event("first", 0, 1))
        disk.chance = chance
        storm = Storm(log, seed, 200)
        storm.run()
        disk.chance = 0.0
        assert len(storm.acknowledged) > 10
        with log.reader() as reader:
            storm.check(reader)
        crash(log)
        with LogReader(directory) as reader:
            storm.check(reader)
        with TopicLog(directory, small()) as again, again.reader() as reader:
            assert not again.report.corrupt
            storm.check(reader)


class Interrupted(RealStorage):
    """Calls something in the middle of making a segment."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def open(self, path: str, *, create: bool = False) -> int:
        handle = super().open(path, create=create)
        if create and path.endswith(".seg"):
            call, self.meanwhile = self.meanwhile, lambda: None
            call()
        return handle


def test_a_smaller_event_that_comes_while_a_segment_is_begun_does_not_take_its_first_offset(tmp_path: Path) -> None:
    disk = Interrupted()
    with TopicLog(tmp_path, small(disk, segment_bytes=4096)) as log:
        log.append("a", b"0" * 3000)
        other = threading.Thread(target=log.append, args=("a", b"small"))

        def meanwhile() -> None:
            other.start()
            other.join(0.2)  # it waits for the new segment

        disk.meanwhile = meanwhile
        log.append("a", b"1" * 3000)
        other.join()
        assert sorted(stored(tmp_path, "a")) == [b"0" * 3000, b"1" * 3000, b"small"]


def test_an_append_whose_frame_failed_is_refused_though_another_has_its_offset_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("a", b"0")
    add = log.core.commits.add

    def slowly(topic: Any, data: Any, now: int, origin: bytes | None) -> int:
        offset = add(topic, data, now, origin)
        if data == b"slow":
            # Before this thread looks at its ticket, its frame fails, and another event is committed.
            disk.only, disk.fail["pwrite"] = "journal", (1, ENOSPC)
            with pytest.raises(DiskFull):
                log.append("a", b"fails with it")
            assert log.append("a", b"quick") == offset
        return offset

    class Commits:
        def __getattr__(self, name: str) -> Any:
            return getattr(kept, name)

        add = staticmethod(slowly)

    kept = log.core.commits
    monkeypatch.setattr(log.core, "commits", Commits())
    with pytest.raises(DiskFull):
        log.append_many("a", [b"slow"])
    monkeypatch.setattr(log.core, "commits", kept)
    assert stored(tmp_path, "a") == [b"0", b"quick"]
    crash(log)


def test_an_event_behind_a_commit_in_the_same_frame_does_not_spoil_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TopicLog(tmp_path, small())
    log.append("a", b"0")
    take = StageCommit._take

    def and_then(commit: StageCommit) -> int:
        ticket = take(commit)
        topic = log.core.topics["TST", "a"]
        assert log.core.commits.add(topic, b"behind", 1) == 3
        assert topic.ticket == ticket, "in the same frame"
        return ticket

    monkeypatch.setattr(StageCommit, "_take", and_then)
    stage = log.stage("w", 0, "r")
    for row in (b"1", b"2"):
        stage.add("a", row)
    log.commit("w", 0, "r", [stage.close().stage])
    assert stored(tmp_path, "a") == [b"0", b"1", b"2", b"behind"]
    crash(log)
    for segment in tmp_path.rglob("*.seg"):
        segment.write_bytes(b"")
    with TopicLog(tmp_path, small()) as log:
        assert log.report.notes == []
        assert log.core.writers["w"].epoch == 0
    assert stored(tmp_path, "a") == [b"0", b"1", b"2", b"behind"]


def test_a_commit_that_fails_in_a_segment_that_was_begun_for_nothing_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("a", b"0" * 3000)
    topic = log.core.topics["TST", "a"]
    topic.make_room(3000)
    assert (topic.base, topic.done[0]) == (1, 0), "begun, and nothing is in it"
    stage = log.stage("w", 0, "r")
    for _ in range(30):
        stage.add("a", b"row" * 100)
    name = stage.close().stage
    for call, where in (("pwrite", ".room"), ("pwrite", "journal")):
        disk.only, disk.skip, disk.fail[call] = where, int(where == ".room"), (1, ENOSPC)
        with pytest.raises(DiskFull):
            log.commit("w", 0, "r", [name])
    with monkeypatch.context() as patch:
        patch.setattr(StageCommit, "_reserve", lambda *given: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            log.commit("w", 0, "r", [name])
    assert log.append("a", b"1" * 3000) == 1
    assert log.commit("w", 0, "r", [name]).rows == 30
    expected = [b"0" * 3000, b"1" * 3000, *[b"row" * 100] * 30]
    assert stored(tmp_path, "a") == expected
    crash(log)
    assert stored(tmp_path, "a") == expected


def test_topics_beyond_the_first_thousand_are_shown_in_a_larger_file_while_others_append(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=1 << 20)) as log:
        log.append("busy", b"0")
        slots = log.core.water.slots
        stop = threading.Event()
        ends: list[int] = []

        def append() -> None:
            while not stop.is_set():
                ends.append(log.append("busy", b"x"))

        def read() -> None:
            with LogReader(tmp_path) as reader:
                while not stop.is_set():
                    assert reader.topic("busy").end >= 1
                    seen.append(len(reader.topics()))

        seen: list[int] = []
        threads = [threading.Thread(target=append), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        for number in range(slots + 10):
            log.core.topic("TST", f"t/{number}")
        stop.set()
        for thread in threads:
            thread.join()
        assert log.core.water.slots == 2 * slots
        assert seen == sorted(seen)
        with LogReader(tmp_path) as reader:
            assert len(reader.topics()) == slots + 11
            assert reader.topic("busy").end == ends[-1] + 1


class ShortWrites:
    """An operating system that writes three bytes of any more."""

    def __getattr__(self, name: str) -> Any:
        return (lambda handle, data: 3) if name == "write" else getattr(os, name)


def test_a_topic_that_can_not_be_listed_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyStorage()
    with TopicLog(tmp_path, small(disk)) as log:
        log.append("a", b"1")
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "os", ShortWrites())
            with pytest.raises(DiskFull):
                log.append("b", b"1")
        log.core.commits.refusal = LogReadOnly(str(tmp_path), "for a test")
        with pytest.raises(LogReadOnly):
            log.append("c", b"1")
        log.core.commits.refusal = None
        assert log.append("d", b"2") == 0
        with LogReader(tmp_path) as reader:
            assert [name.name for name in reader.topics()] == ["a", "d"]
            assert reader.topic("d").read(0).events() == [b"2"]


def test_who_makes_room_for_handles_does_not_keep_a_failing_commit_from_rolling_back(tmp_path: Path) -> None:
    disk = FaultyStorage()
    log = TopicLog(tmp_path, small(disk))
    log.append("first", b"0")
    for number in range(16):
        log.core.commits.add(log.core.topic("TST", f"t{number}"), b"waits", 1)
    syncing, failed = threading.Event(), threading.Event()
    sync = log.core.keeper.sync

    def slowly() -> None:
        syncing.set()
        assert failed.wait(30), "the commit could not roll back"
        sync()

    log.core.keeper.sync = slowly  # type: ignore[method-assign]

    def append() -> None:
        with suppress(DiskFull):
            log.append("one more", b"x")

    one_more = threading.Thread(target=append)
    one_more.start()
    assert syncing.wait(30)
    disk.only, disk.fail["pwrite"] = "journal", (1, ENOSPC)
    with pytest.raises(DiskFull):
        log.append("t0", b"y")
    failed.set()
    one_more.join(30)
    assert not one_more.is_alive()
    log.core.keeper.sync = sync  # type: ignore[method-assign]
    assert log.append("t1", b"z") == 0
    log.close()
