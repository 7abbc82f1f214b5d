"""Readers over the death of a writer, and while nothing happens."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from echomesh.errors import UnknownTopic
from echomesh.log import LogReader, TopicLog, catalogue, holding, view
from echomesh.log import reader as reader_module
from echomesh.log.layout import Paths
from echomesh.log.state import State
from echomesh.log.storage import RealStorage, Storage
from echomesh.log.view import LiveView
from echomesh.native.log_water import Watermarks
from tests.log.support import crash, events_of, small, stored
from tests.support.counts import count
from tests.support.repository import ROOT


def killed_with_a_segment_begun(directory: Path, log: TopicLog) -> int:
    """Ends the writer right after it has begun a segment, before anything in it is committed; its first offset."""
    topic = log.core.topics["TST", "a"]
    log.core.commits.add(topic, b"never acknowledged" * 200, 1)
    assert topic.base == topic.done[2], "a segment was begun"
    crash(log)
    return topic.base


@pytest.mark.parametrize("read_before", [False, True], ids=["fresh", "attached"])
def test_a_reader_that_knows_a_segment_of_a_killed_writer_finds_what_came_instead(
    tmp_path: Path, read_before: bool
) -> None:
    log = TopicLog(tmp_path, small())
    events = [b"%d" % i * 100 for i in range(10)]
    log.append_many("a", events)
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        if read_before:
            assert events_of(topic) == events
        begun = killed_with_a_segment_begun(tmp_path, log)
        topic.bases = []
        reader.refresh()
        assert events_of(topic) == events
        assert begun in topic.bases, "it is in the list of the reader"
        log = TopicLog(tmp_path, small())
        # Small ones fit into the segment before; then others begin, elsewhere.
        more = [b"small"] * 4 + [b"%d" % i * 100 for i in range(40)]
        assert log.append_many("a", more)[0] == len(events) == begun
        assert begun not in [int(path.stem) for path in tmp_path.rglob("*.seg")]
        reader.refresh()
        for offset in (begun, begun + 2, begun + 20, begun - 1):
            assert topic.read(offset).events()[0] == [*events, *more][offset]
        assert events_of(topic) == [*events, *more]
        assert topic.offset_at(0) == 0
        log.close()
        reader.refresh()
        assert events_of(topic) == [*events, *more]
    assert stored(tmp_path, "a") == [*events, *more]


def test_a_reader_whose_segment_begins_again_with_other_events_does_not_mix_them(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    events = [b"%d" % i * 100 for i in range(19)]
    log.append_many("a", events)
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        assert events_of(topic) == events
        begun = killed_with_a_segment_begun(tmp_path, log)
        reader.refresh()
        assert events_of(topic) == events
        with TopicLog(tmp_path, small()) as log:
            assert log.append("a", b"another" * 500) == begun
            reader.refresh()
            assert events_of(topic) == [*events, b"another" * 500]


class Counted(RealStorage):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.read = 0

    def pread(self, handle: int, size: int, position: int) -> bytes:
        data = super().pread(handle, size, position)
        self.read += len(data)
        return data


def test_waiting_without_a_writer_reads_nothing_while_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TopicLog(tmp_path, small())
    log.append_many("a", [b"1", b"2"])
    crash(log)
    monkeypatch.setattr(reader_module, "SETTLING_S", 0.0)
    disk = Counted()
    with LogReader(tmp_path, storage=disk) as reader:
        topic = reader.topic("a")
        assert not topic.wait(2, 0.2)
        before = disk.read
        assert not topic.wait(2, 0.5)
        assert disk.read == before
        with TopicLog(tmp_path, small()) as log:
            log.append("a", b"3")
        assert topic.wait(2, 30), "a writer that came and went is noticed"
        assert topic.read(2).events() == [b"3"]
        log = TopicLog(tmp_path, small())
        assert not topic.wait(3, 0.3)
        assert reader.view.live, "and one that came to stay"
        log.append("a", b"4")
        assert topic.wait(3, 30)
        crash(log)


def test_a_change_in_the_moment_of_a_look_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The worst file system: times that never change.
    monkeypatch.setattr(RealStorage, "stamp", lambda disk, path: (0,))
    log = TopicLog(tmp_path, small())
    log.append("a", b"1")
    crash(log)
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        reader.look()
        with TopicLog(tmp_path, small()) as log:
            log.append("a", b"2")
        reader.look()
        assert topic.end == 2, "what is new is looked at again for a while"


def test_a_reader_that_a_new_writer_outruns_sees_what_that_one_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TopicLog(tmp_path) as log:
        log.append("a", b"0")
    log = TopicLog(tmp_path)
    log.append("a", b"1")
    looks, checkpoints = 0, 0
    real_live, real_checkpoint = view._live, holding._checkpoint

    def live(paths: Paths, log_id: bytes) -> LiveView | None:
        nonlocal looks
        looks += 1
        return real_live(paths, log_id) if looks > 1 else None  # it comes right behind the first look

    def checkpoint(storage: Storage, paths: Paths, log_id: bytes) -> tuple[State | None, list[str]]:
        nonlocal checkpoints
        checkpoints += 1
        found, notes = real_checkpoint(storage, paths, log_id)
        assert found is not None
        found.number += checkpoints  # and writes another one before each is read
        return found, notes

    monkeypatch.setattr(view, "_live", live)
    monkeypatch.setattr(holding, "_checkpoint", checkpoint)
    with LogReader(tmp_path) as reader:
        assert reader.view.live
        assert reader.topic("a").read(0).events() == [b"0", b"1"]
    assert checkpoints == 2 * holding._READS
    monkeypatch.setattr(view, "_live", lambda paths, log_id: None)
    with LogReader(tmp_path) as reader:
        assert not reader.view.live, "with a writer that shows nothing here, it makes do with what it has"
    log.close()


def test_a_reader_of_the_journal_whom_a_writer_overtakes_sees_only_what_that_one_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TopicLog(tmp_path) as log:
        log.append("a", b"0")
    real_hold = holding.hold
    writers: list[TopicLog] = []

    def hold(storage: Storage, paths: Paths, log_id: bytes) -> holding.Holding:
        if not writers:
            writers.append(TopicLog(tmp_path))
        return real_hold(storage, paths, log_id)

    monkeypatch.setattr(view, "hold", hold)
    with LogReader(tmp_path) as reader:
        assert reader.view.live
        (writer,) = writers
        assert writer.append("a", b"1") == 1
        assert reader.topic("a").read(0).events() == [b"0", b"1"]
        writer.close()


def test_event_loops_that_wait_without_a_writer_notice_the_next_one(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append("a", b"1")

    def append() -> None:
        with TopicLog(tmp_path, small()) as again:
            again.append("a", b"2")

    async def run() -> list[bytes]:
        with LogReader(tmp_path) as reader:
            waiting = asyncio.create_task(reader.topic("a").wait_async(1, 30))
            await asyncio.to_thread(append)
            assert await waiting
            return reader.topic("a").read(1).events()

    assert asyncio.run(run()) == [b"2"]


def test_what_a_killed_writer_had_on_disk_and_not_shown_yet_reaches_a_reader_that_waits(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from echomesh.log import TopicLog\n"
        "log = TopicLog(sys.argv[1])\n"
        "log.append_many('a', [b'1', b'2'])\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        with LogReader(tmp_path) as reader:
            topic = reader.topic("a")
            assert reader.view.live
            writer.kill()
            writer.wait()
            # As if it had been killed between the sync of its last commit and this.
            Watermarks.open(reader.paths.water).set_high(topic.number, 1)
            assert topic.wait(1, 30)
            assert topic.read(1).events() == [b"2"]


def test_a_reader_reads_each_entry_of_the_catalogue_once_however_many_topics_are_born(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []
    decode: Callable[[bytes], catalogue.Entry] = catalogue._decode

    def counted(entry: bytes) -> catalogue.Entry:
        decoded.append(entry)
        return decode(entry)

    monkeypatch.setattr(catalogue, "_decode", counted)
    number = count(100, 1000)
    with TopicLog(tmp_path, small()) as log, LogReader(tmp_path) as reader:
        for at in range(number):
            log.append(f"t/{at}", b"x")
            assert reader.topic(f"t/{at}").number == reader.topics()[-1].number
        assert len(reader.topics()) == number
        assert len(decoded) == number
        with pytest.raises(UnknownTopic):
            reader.topic(f"t/{number}")
    with LogReader(tmp_path) as reader:
        assert events_of(reader.topic("t/7")) == [b"x"]


def test_a_reader_whose_place_in_the_catalogue_belongs_to_an_older_one_begins_anew(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log, LogReader(tmp_path) as reader:
        log.append("a/long/name/that/the/other/one/has/not", b"x")
        assert [found.name for found in reader.topics()] == ["a/long/name/that/the/other/one/has/not"]
        view = reader.view
        assert isinstance(view, LiveView)
        catalogue.start(reader.paths.catalogue)
        for number, name in enumerate(("b", "c" * 100, "d" * 100)):
            catalogue.add(reader.paths.catalogue, number, "TST", name, "sync")
        assert log.core.topics  # the writer of the view still says how many there are
        log.append("e", b"x")
        assert [found.name for found in view.topics()] == ["b", "c" * 100]
        assert view.find("TST", "a/long/name/that/the/other/one/has/not") is None


def test_a_reader_passes_over_the_few_events_that_others_had_without_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [b"%d" % number * 20 for number in range(400)]
    with TopicLog(tmp_path, small(segment_bytes=1 << 20)) as log, LogReader(tmp_path) as reader:
        log.append_many("a", events[:100])
        topic = reader.topic("a")
        for number in range(10):  # it learns how large they are
            assert topic.read(number, max_records=1).events() == [events[number]]
        monkeypatch.setattr(topic, "index_of", lambda base: pytest.fail("it searched"))
        for number in (10, 13, 20, 51):
            assert topic.read(number, max_bytes=1, max_records=1).events() == [events[number]]
        assert topic.read(60, max_bytes=1 << 16, max_records=40).events() == events[60:100]
        assert len(topic.read(100)) == 0
        log.append_many("a", events[100:])
        assert topic.read(130, max_records=7).events() == events[130:137]


def test_a_reader_that_is_far_behind_or_ahead_of_what_is_wanted_searches(tmp_path: Path) -> None:
    events = [b"%d" % number * 20 for number in range(4000)]
    with TopicLog(tmp_path, small(segment_bytes=1 << 20)) as log, LogReader(tmp_path) as reader:
        log.append_many("a", events)
        topic = reader.topic("a")
        for number in (0, 3900, 3901, 17, 18, 2000, 1999, 3999):
            assert topic.read(number, max_bytes=1, max_records=1).events() == [events[number]]


def test_a_reader_that_nobody_closed_leaves_no_file_open(tmp_path: Path) -> None:
    closed: list[int] = []

    class Closing(RealStorage):
        def close(self, handle: int) -> None:
            closed.append(handle)
            super().close(handle)

    with TopicLog(tmp_path, small()) as log:
        log.append_many("a", [b"event"] * 50)
        reader = LogReader(tmp_path, storage=Closing())
        assert len(reader.topic("a").read(0)) > 0
        handles = list(reader.handles.values())
        assert handles
        closed.clear()
        del reader
        gc.collect()
        assert closed == handles
