"""The writer converts old segments to Parquet by itself, and nobody waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from echomesh.events import Event
from echomesh.log import LogOptions, LogReader, TopicLog, parquet
from echomesh.log.layout import index_name, parquet_name
from tests.log.parquet_support import compacted, event, everything, files, fill, seen
from tests.log.support import ENOSPC, FaultyStorage, crash, small
from tests.support.repository import ROOT

HOUR = 3600 * 10**9


class Clock:
    """A time that goes on by an hour when told so."""

    def __init__(self) -> None:
        self.now = 10**18

    def __call__(self) -> int:
        self.now += 1
        return self.now


def options(clock: Clock, **changes: Any) -> LogOptions:
    chosen: dict[str, Any] = {"clock": clock, "parquet_after_s": 3600.0} | changes
    return small(**chosen)


def test_segments_become_parquet_files_when_they_are_old_enough_and_not_before(tmp_path: Path) -> None:
    clock = Clock()
    with TopicLog(tmp_path, options(clock)) as log:
        log.append_many("a", [event(i) for i in range(100)])
        log.core.keeper.care()
        assert files(tmp_path, "parquet") == []
        before = seen(tmp_path)
        clock.now += 2 * HOUR
        log.append_many("a", [event(i) for i in range(100, 130)])
        log.core.keeper.care()
        old, young = files(tmp_path, "parquet"), files(tmp_path, "seg")
        assert len(old) >= 3
        assert 100 - 20 < int(young[0][:-4]) <= 100 < int(young[-1][:-4])
        assert len(files(tmp_path, "idx")) == len(old) + len(young)
        assert everything(log.reader().topic("a"))[:100] == before
        assert [entry[3] for entry in seen(tmp_path)] == [event(i) for i in range(130)]
    assert [entry[3] for entry in seen(tmp_path)] == [event(i) for i in range(130)]


def test_nothing_is_converted_that_should_never_be(tmp_path: Path) -> None:
    clock = Clock()
    with TopicLog(tmp_path, options(clock, parquet_after_s=None)) as log:
        log.append_many("a", [event(i) for i in range(100)])
        clock.now += 1000 * HOUR
        log.core.keeper.care()
        assert files(tmp_path, "parquet") == []
    with TopicLog(tmp_path, options(clock)) as log:
        log.create("none", level="none")
        log.append_many("none", [event(i) for i in range(100)])
        clock.now += 2 * HOUR
        log.core.keeper.care()
        assert len(files(tmp_path, "parquet")) >= 3
        assert not list(Path(log.core.topics["TST", "none"].directory).glob("*.parquet"))


def test_what_is_sealed_since_the_last_checkpoint_gets_one_first(tmp_path: Path) -> None:
    clock = Clock()
    log = TopicLog(tmp_path, options(clock))
    log.create("a", level="os")
    log.append_many("a", [event(i) for i in range(100)])
    clock.now += 2 * HOUR
    log.append_many("a", [event(i) for i in range(100, 130)])
    log.core.keeper.care()
    assert len(files(tmp_path, "parquet")) >= 3
    before = everything(log.reader().topic("a"))
    crash(log)
    assert seen(tmp_path) == before
    with TopicLog(tmp_path, options(clock)) as log:
        topic = log.reader().topic("a")
        assert topic.read(0, max_bytes=10).events() == [event(0)]
        assert topic.read(129).events() == [event(129)]


def test_duplicates_are_recognized_over_a_restart_whatever_was_converted(tmp_path: Path) -> None:
    clock = Clock()
    chosen = options(clock, duplicate_bytes=1 << 20, duplicate_s=7200.0, parquet_after_s=0.0)
    events = [event(i) for i in range(100)]
    with TopicLog(tmp_path, chosen) as log:
        log.append_many("a", events)
        clock.now += HOUR
        log.append_many("a", [event(i) for i in range(100, 130)])
        log.core.keeper.care()
        assert files(tmp_path, "parquet") == [], "not while the window reaches there"
    assert compacted(tmp_path).done
    assert len(files(tmp_path, "seg")) == 1
    with TopicLog(tmp_path, chosen) as log:
        assert log.append_many("a", events) == list(range(100))
        assert log.append("a", event(130)) == 130
    clock.now += HOUR + HOUR // 2
    with TopicLog(tmp_path, chosen) as log:
        assert log.append_many("a", [events[0], event(110)]) == [131, 110], "older ones than the window are not"


def test_a_parquet_file_that_is_damaged_shortens_the_window_and_that_is_told(tmp_path: Path) -> None:
    clock = Clock()
    chosen = options(clock, duplicate_bytes=1 << 20)
    with TopicLog(tmp_path, chosen) as log:
        log.append_many("a", [event(i) for i in range(100)])
    compacted(tmp_path)
    path = sorted(tmp_path.rglob("*.parquet"))[0]
    path.write_bytes(path.read_bytes()[:-1])
    with TopicLog(tmp_path, chosen) as log:
        assert log.append_many("a", [event(99), event(0)]) == [99, 100]
        assert "the segment from 0 are not recognized" in log.report.notes[-1]


def test_retention_knows_how_small_a_converted_segment_is(tmp_path: Path) -> None:
    clock = Clock()
    events = [Event(type="t", source="/s", id=str(i), data="x" * 1000).encode() for i in range(1000)]
    with TopicLog(tmp_path, options(clock, segment_bytes=1 << 17, retention_bytes=1 << 20)) as log:
        log.append_many("a", events[:800])
        log.core.keeper.care()
        assert log.reader().topic("a").earliest == 0
        clock.now += 2 * HOUR
        log.append_many("a", events[800:900])
        log.core.keeper.upkeep.round()
        sizes = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
        assert 0 < sizes < 1 << 17
        # More than is allowed, would the segments still be there.
        log.append_many("a", events[900:])
        log.core.keeper.care()
        assert log.reader().topic("a").earliest == 0


def test_retention_looks_again_before_it_removes_what_another_process_has_converted(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=1 << 17, retention_bytes=1 << 20)) as log:
        events = [Event(type="t", source="/s", id=str(i), data="x" * 1000).encode() for i in range(1100)]
        log.append_many("a", events[:800])
        log.core.keeper.care()
        log.core.keeper.checkpoint()
        assert compacted(tmp_path).done
        log.append_many("a", events[800:])
        log.core.keeper.care()
        assert log.reader().topic("a").earliest == 0


def test_what_can_not_be_converted_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    tried: list[int] = []
    convert = parquet.convert

    def counted(topic: Any, base: int, *given: Any, **more: Any) -> Any:
        tried.append(base)
        return convert(topic, base, *given, **more)

    monkeypatch.setattr(parquet, "convert", counted)
    with TopicLog(tmp_path, options(clock)) as log:
        log.append_many("a", [b"no event", *(event(i) for i in range(100))])
        clock.now += 2 * HOUR
        log.append_many("a", [event(i) for i in range(100, 130)])
        for _ in range(3):
            log.core.keeper.care()
        assert tried == sorted(set(tried))
        assert tried[0] == 0
        assert files(tmp_path, "seg")[0] == "00000000000000000000.seg"
        assert len(files(tmp_path, "parquet")) == len(tried) - 1


def test_somebody_who_converts_already_is_not_disturbed(tmp_path: Path) -> None:
    clock = Clock()
    with TopicLog(tmp_path, options(clock)) as log:
        log.append_many("a", [event(i) for i in range(100)])
        clock.now += 2 * HOUR
        log.append_many("a", [event(i) for i in range(100, 130)])
        with LogReader(tmp_path) as reader, parquet.alone(reader):
            log.core.keeper.care()
            assert files(tmp_path, "parquet") == []
        log.core.keeper.care()
        assert files(tmp_path, "parquet")


def test_what_a_crash_has_interrupted_is_put_in_order(tmp_path: Path) -> None:
    fill(tmp_path)
    before = seen(tmp_path)
    path = sorted(tmp_path.rglob("*.seg"))[0]
    kept = path.read_bytes()
    compacted(tmp_path)
    path.write_bytes(kept)
    (path.parent / f"{parquet_name(50)}.new").write_bytes(b"half")
    with TopicLog(tmp_path, small()) as log:
        log.core.keeper.care()
        assert not path.exists()
        assert files(tmp_path, "new") == []
    assert seen(tmp_path) == before


def test_the_index_of_a_converted_segment_is_made_again_from_it(tmp_path: Path) -> None:
    clock = Clock()
    fill(tmp_path, clock=clock)
    before = seen(tmp_path)
    compacted(tmp_path)
    indexes = sorted(tmp_path.rglob("*.idx"))
    good = [path.read_bytes() for path in indexes]
    for damage in (Path.unlink, lambda path: path.write_bytes(b"x" * 30)):
        for path in indexes:
            damage(path)
        with TopicLog(tmp_path, options(clock)) as log:
            log.core.keeper.care()
        assert [path.read_bytes()[:24] for path in indexes] == [data[:24] for data in good]
    assert seen(tmp_path) == before


def test_a_damaged_parquet_file_does_not_keep_upkeep_from_the_rest(tmp_path: Path) -> None:
    fill(tmp_path)
    compacted(tmp_path)
    first, second = sorted(tmp_path.rglob("*.parquet"))[:2]
    first.write_bytes(b"nothing")
    for path in (first, second):
        (path.parent / index_name(int(path.stem))).unlink()
    with TopicLog(tmp_path, small()) as log:
        log.core.keeper.care()
        assert not (first.parent / index_name(int(first.stem))).exists()
        assert (second.parent / index_name(int(second.stem))).exists()


def test_retention_by_age_goes_on_over_a_converted_segment_without_an_index(tmp_path: Path) -> None:
    clock = Clock()
    with TopicLog(tmp_path, options(clock)) as log:
        for i in range(0, 200, 10):
            clock.now += HOUR // 20
            log.append_many("a", [event(k) for k in range(i, i + 10)])
    compacted(tmp_path)
    for path in tmp_path.rglob("*.idx"):
        path.unlink()
    with TopicLog(tmp_path, options(clock, retention_s=1800.0, parquet_after_s=None)) as log:
        topic = log.core.topics["TST", "a"]
        log.core.retain()
        assert topic.earliest == 0, "nothing tells how old the second one is"
        clock.now += HOUR
        log.core.retain()
        assert topic.earliest == topic.done[0], "but all are older than the last one"


def test_without_pyarrow_segments_stay_and_that_is_said_once(tmp_path: Path) -> None:
    fill(tmp_path, 200)
    script = (
        "import logging, sys\n"
        "sys.modules['pyarrow'] = None\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "from echomesh.log import LogOptions, TopicLog\n"
        "chosen = LogOptions(parquet_after_s=0.0, duplicate_s=0.0, background=False)\n"
        "with TopicLog(sys.argv[1], chosen) as log:\n"
        "    for _ in range(3):\n"
        "        log.core.keeper.care()\n"
        "    assert len(log.report.notes) == 1, log.report.notes\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False, env=environment
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.count("echomesh[node]") == 1
    assert files(tmp_path, "parquet") == []


def test_appends_syncs_and_readers_go_on_while_a_segment_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    before = seen(tmp_path)
    converting = threading.Event()

    def endless(*given: Any) -> bytes | None:
        converting.set()
        assert log.core.keeper.upkeep.stopping.wait(60)
        return None

    monkeypatch.setattr(parquet, "build", endless)
    log = TopicLog(tmp_path, small(background=True, parquet_after_s=0.0))
    assert converting.wait(30)
    for i in range(100, 200):
        assert log.append("a", event(i)) == i
    log.core.keeper.care()
    assert log.core.keeper.synced == log.core.commits.last_number
    assert everything(log.reader().topic("a"))[:100] == before
    log.close()
    assert files(tmp_path, "parquet") == []
    assert seen(tmp_path)[:100] == before


def test_the_writer_converts_in_the_background(tmp_path: Path) -> None:
    fill(tmp_path)
    before = seen(tmp_path)
    with TopicLog(tmp_path, small(background=True, parquet_after_s=0.0)) as log:
        assert log.core.keeper.upkeep.wait_for_round(1, 60)
        assert len(files(tmp_path, "parquet")) >= 3
        assert len(files(tmp_path, "seg")) == 1
        assert everything(log.reader().topic("a")) == before


def test_a_full_disk_leaves_the_segment_and_no_half_file(tmp_path: Path) -> None:
    disk = FaultyStorage()
    fill(tmp_path)
    before = seen(tmp_path)
    disk.only = ".parquet.new"
    disk.fail["pwrite"] = (1, ENOSPC)
    with TopicLog(tmp_path, small(disk, parquet_after_s=0.0)) as log:
        log.core.keeper.care()
        assert files(tmp_path, "parquet") == files(tmp_path, "new") == []
        assert everything(log.reader().topic("a")) == before
        assert log.append("a", event(100)) == 100, "appends have nothing to do with it"
        log.core.keeper.care()
        assert len(files(tmp_path, "parquet")) >= 3
