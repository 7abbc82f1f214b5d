"""Staged epochs: committed, repeated, aborted, superseded, crashed."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import FencedWriter, LogCorrupt, StageMissing, StaleWriter
from echomesh.log import AsyncTopicLog, TopicLog, stage_copy
from tests.log.support import crash, events_of, small, stored


def stage(log: TopicLog, epoch: int, run: str = "r1", rows: int = 4, part: int = 0) -> str:
    made = log.stage("w", epoch, run, part)
    for row in range(rows):
        made.add(f"t{row % 2}", b"%d.%d.%d" % (epoch, part, row))
    return made.close().stage


def test_a_commit_gives_its_rows_consecutive_offsets_and_the_same_one_again_changes_nothing(
    tmp_path: Path,
) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append("t0", b"first")
        parts = [stage(log, 0), stage(log, 0, part=1)]
        assert stored(tmp_path, "t0") == [b"first"]
        done = log.commit("w", 0, "r1", parts)
        assert done.offsets == {("TST", "t0"): (1, 4), ("TST", "t1"): (0, 4)}
        assert stored(tmp_path, "t0") == [b"first", b"0.0.0", b"0.0.2", b"0.1.0", b"0.1.2"]
        assert log.append("t0", b"last") == 5
        again = log.commit("w", 0, "r1", parts)
        assert (again.rows, again.offsets, again.repeated) == (8, done.offsets, True)
    with TopicLog(tmp_path, small()) as log:
        assert log.commit("w", 0, "other run", []).repeated
    assert len(stored(tmp_path, "t0")) == 6


def test_stages_that_the_commit_does_not_name_are_dropped(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        winner, loser = stage(log, 0), stage(log, 0)
        log.commit("w", 0, "r1", [winner])
        assert not (tmp_path / "staging" / f"{loser}.stage").exists()
        with pytest.raises(StageMissing):
            log.commit("w", 1, "r1", [loser])
        log.core.keeper.care()
        assert not list((tmp_path / "staging").iterdir())


def test_a_commit_that_names_a_missing_or_damaged_stage_fails_whole(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        good, bad = stage(log, 0), stage(log, 0, part=1)
        with pytest.raises(StageMissing):
            log.commit("w", 0, "r1", [good, "00" * 16])
        path = tmp_path / "staging" / f"{bad}.stage"
        data = bytearray(path.read_bytes())
        data[60] ^= 1
        path.write_bytes(data)
        with pytest.raises(StageMissing):
            log.commit("w", 0, "r1", [good, bad])
        assert log.core.topics == {}
        assert log.commit("w", 0, "r1", [good]).rows == 4


def test_older_epochs_and_replaced_runs_are_refused_and_epochs_may_skip(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.commit("w", 3, "r1", [stage(log, 3)])
        log.commit("w", 7, "r2", [stage(log, 7, "r2")])
    with TopicLog(tmp_path, small()) as log:
        with pytest.raises(StaleWriter) as stale:
            log.commit("w", 5, "r2", [stage(log, 5, "r2")])
        assert (stale.value.epoch, stale.value.last_epoch) == (5, 7)
        with pytest.raises(FencedWriter):
            log.commit("w", 8, "r1", [stage(log, 8)])
        assert log.commit("w", 9, "r2", [stage(log, 9, "r2")]).rows == 4


def test_an_aborted_epoch_leaves_nothing(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        name = stage(log, 0)
        log.abort("w", 0)
        with pytest.raises(StageMissing):
            log.commit("w", 0, "r1", [name])
        log.stage("w", 0, "r1").abort()
        assert not list((tmp_path / "staging").iterdir())


def test_a_run_that_was_aborted_stages_nothing_more(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        late = log.stage("w", 0, "r1")
        late.add("t", b"row")
        log.core.stages.abort("w", 0, "r1")
        with pytest.raises(StageMissing, match="this run of its epoch was aborted"):
            late.close()
        with pytest.raises(StageMissing, match="this run of its epoch was aborted"):
            log.stage("w", 0, "r1")
        assert not list((tmp_path / "staging").iterdir())
        assert log.commit("w", 0, "r2", [stage(log, 0, "r2")]).rows == 4


def test_stages_expire_after_a_day(tmp_path: Path) -> None:
    now = [10**18]
    log = TopicLog(tmp_path, small(clock=lambda: now[0]))
    old = stage(log, 0)
    crash(log)
    now[0] += 23 * 3600 * 10**9
    log = TopicLog(tmp_path, small(clock=lambda: now[0]))
    young = stage(log, 1)
    assert (tmp_path / "staging" / f"{old}.stage").exists()
    crash(log)
    now[0] += 2 * 3600 * 10**9
    with TopicLog(tmp_path, small(clock=lambda: now[0])) as log:
        assert not (tmp_path / "staging" / f"{old}.stage").exists()
        assert log.commit("w", 1, "r1", [young]).rows == 4


def test_a_commit_larger_than_segments_is_whole_after_a_crash(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    log.append("t0", b"before")
    name = stage(log, 0, rows=1000)
    log.commit("w", 0, "r1", [name])
    log.append("t0", b"after")
    crash(log)
    expected = [b"before", *(b"0.0.%d" % row for row in range(0, 1000, 2)), b"after"]
    assert stored(tmp_path, "t0") == expected
    with TopicLog(tmp_path, small()) as log:
        assert log.append("t0", b"more") == 502
    assert stored(tmp_path, "t0") == [*expected, b"more"]


def test_a_commit_takes_bounded_memory_however_many_rows_it_has(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=4 << 20)) as log:
        made = log.stage("w", 0, "r")
        for row in range(24_000):
            made.add(f"t{row % 3}", b"%06d" % row * 170)
        name = made.close().stage
        tracemalloc.start()
        assert log.commit("w", 0, "r", [name]).rows == 24_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 12 << 20
        assert events_of(log.reader().topic("t1"))[-1] == b"%06d" % 23_998 * 170


def test_others_are_acknowledged_while_a_commit_is_copied_and_readers_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying, go_on = threading.Event(), threading.Event()
    copies = stage_copy.copies

    def slowly(*args: Any) -> Iterator[tuple[int, int, int, bytes]]:
        copying.set()
        assert go_on.wait(30)
        yield from copies(*args)

    monkeypatch.setattr(stage_copy, "copies", slowly)
    with TopicLog(tmp_path, small()) as log:
        name = stage(log, 0)
        thread = threading.Thread(target=log.commit, args=("w", 0, "r1", [name]))
        thread.start()
        assert copying.wait(30)
        assert log.append("t0", b"behind it") == 2
        assert log.append("other", b"x") == 0
        assert stored(tmp_path, "t0") == []
        go_on.set()
        thread.join()
        assert stored(tmp_path, "t0") == [b"0.0.0", b"0.0.2", b"behind it"]


def test_stages_expire_while_the_log_is_open_and_those_being_written_with_them(tmp_path: Path) -> None:
    now = [10**18]
    with TopicLog(tmp_path, small(clock=lambda: now[0])) as log:
        old, unclosed = stage(log, 0), log.stage("w", 0, "r1")
        now[0] += 23 * 3600 * 10**9
        young, fresh = stage(log, 1), log.stage("w", 1, "r1")
        log.core.keeper.care()
        assert (tmp_path / "staging" / f"{old}.stage").exists()
        now[0] += 2 * 3600 * 10**9
        log.core.keeper.care()
        assert not (tmp_path / "staging" / f"{old}.stage").exists()
        with pytest.raises(StageMissing):
            unclosed.close()
        fresh.add("t0", b"x")
        assert log.commit("w", 1, "r1", [young, fresh.close().stage]).rows == 5


def test_an_event_loop_stages_and_commits_without_waiting_for_the_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncTopicLog(tmp_path, small(background=True)) as log:
            made = await log.stage("w", 0, "r")
            for row in range(100):
                await made.add("t0", b"%d" % row)
            staged = await made.close()
            done, appended = await asyncio.gather(log.commit("w", 0, "r", [staged.stage]), log.append("t1", b"x"))
            assert (done.rows, appended) == (100, 0)
            dropped = await log.stage("w", 1, "r")
            await dropped.abort()
            await log.abort("w", 1)

    asyncio.run(scenario())
    assert stored(tmp_path, "t0") == [b"%d" % row for row in range(100)]


def test_no_run_that_was_replaced_is_ever_forgotten(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        for epoch in range(400):
            log.commit("w", epoch, f"run {epoch}", [])
    with TopicLog(tmp_path, small()) as log:
        for run in (0, 1, 200, 398):
            with pytest.raises(FencedWriter):
                log.commit("w", 1000, f"run {run}", [])
        assert log.commit("w", 1000, "run 399", []).rows == 0


@pytest.mark.parametrize("restart", [False, True])
def test_an_older_run_that_never_committed_is_refused_once_a_newer_one_has(tmp_path: Path, restart: bool) -> None:
    log = TopicLog(tmp_path, small())
    slow = stage(log, 5, "old run")
    if restart:
        crash(log)
        log = TopicLog(tmp_path, small())
    log.commit("w", 4, "new run", [stage(log, 4, "new run")])
    with pytest.raises(FencedWriter):
        log.commit("w", 5, "old run", [slow])
    crash(log)
    with TopicLog(tmp_path, small()) as log:
        with pytest.raises(FencedWriter):
            log.commit("w", 5, "old run", [slow])
        assert log.commit("w", 5, "new run", [stage(log, 5, "new run")]).rows == 4


def test_a_committed_stage_that_is_gone_after_a_crash_is_reported_or_was_copied(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    name = stage(log, 0)
    log.commit("w", 0, "r1", [name])
    crash(log)
    (tmp_path / "staging" / f"{name}.stage").unlink()
    assert stored(tmp_path, "t0") == [b"0.0.0", b"0.0.2"]
    for segment in (tmp_path / "topics" / "00000001").glob("*.seg"):
        segment.write_bytes(b"")
    with TopicLog(tmp_path, small()) as log:
        assert log.report.corrupt == [("t1", 0, 1)]
        assert log.append("t1", b"more") == 2
        with pytest.raises(LogCorrupt):
            log.reader().topic("t1").read(0)
