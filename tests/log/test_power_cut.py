"""A disk that drops what was not synced, cut off at every step of a workload."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from echomesh.errors import LogError
from echomesh.log import TopicLog
from echomesh.log.storage import PowerCut, SimulatedStorage
from tests.log.support import crash, small, stored
from tests.support.counts import count

Acknowledged = dict[str, list[bytes]]


def appends(log: TopicLog, done: Acknowledged) -> None:
    """Small and large events over three topics, a large frame, full segments, journal files that are used again."""
    for i in range(40):
        topic = f"t{i % 3}"
        event = b"%03d" % i * (1 if i % 13 else 30000)
        log.append(topic, event)
        done.setdefault(topic, []).append(event)
        if i % 7 == 6:
            log.core.keeper.care()
        if i % 5 == 0:
            batch = [b"%03d-%d" % (i, k) * 40 for k in range(6 if i != 20 else 400)]
            log.append_many("t0", batch)
            done.setdefault("t0", []).extend(batch)


def staged(log: TopicLog, done: Acknowledged) -> None:
    """Epochs between ordinary appends, each over two topics."""
    for epoch in range(3):
        log.append("t0", b"before %d" % epoch)
        done.setdefault("t0", []).append(b"before %d" % epoch)
        stages = []
        for part in range(2):
            stage = log.stage("w", epoch, "run", part)
            for row in range(5):
                stage.add(f"t{row % 2}", b"%d.%d.%d" % (epoch, part, row) * 20)
            stages.append(stage.close().stage)
        log.commit("w", epoch, "run", stages)
        for part in range(2):
            for row in range(5):
                done.setdefault(f"t{row % 2}", []).append(b"%d.%d.%d" % (epoch, part, row) * 20)
        log.core.keeper.care()


def adopted(log: TopicLog, done: Acknowledged) -> None:
    """Epochs whose stages become segments, between ordinary appends; each over two topics."""
    for epoch in range(3):
        log.append("t0", b"before %d" % epoch)
        done.setdefault("t0", []).append(b"before %d" % epoch)
        stages, rows = [], []
        for part, size in enumerate((3, 4, 0, 3)):
            stage = log.stage("w", epoch, "run", part)
            for row in range(size):
                rows.append((f"t{part % 2}", b"%d.%d.%d" % (epoch, part, row) * 20))
                stage.add(*rows[-1])
            stages.append(stage.close().stage)
        log.commit("w", epoch, "run", stages)
        for topic, event in rows:
            done.setdefault(topic, []).append(event)
        if epoch != 1:
            log.core.keeper.care()


def run(directory: Path, disk: SimulatedStorage, workload: Callable[[TopicLog, Acknowledged], None]) -> Acknowledged:
    done: Acknowledged = {}
    log = None
    try:
        log = TopicLog(directory, small(disk, journal_bytes=1 << 14))
        workload(log, done)
        log.close()
    except (PowerCut, LogError):
        assert disk.dead
    if log is not None and not log.core.closed:
        disk.cut_after = -1
        with suppress(PowerCut):
            crash(log)
    return done


def check(directory: Path, disk: SimulatedStorage, done: Acknowledged, whole: Acknowledged) -> None:
    for topic, expected in done.items():
        found = stored(directory, topic, disk)
        assert found[: len(expected)] == expected
        assert found == whole[topic][: len(found)]


@pytest.mark.parametrize("workload", [appends, staged, adopted])
def test_no_acknowledged_event_is_lost_whenever_the_power_goes(
    tmp_path: Path, workload: Callable[[TopicLog, Acknowledged], None]
) -> None:
    disk = SimulatedStorage()
    whole = run(tmp_path, disk, workload)
    steps = disk.steps
    assert steps > 100
    stride = max(1, steps // count(60, 10_000))
    for cut in range(0, steps, stride):
        disk = SimulatedStorage(cut, seed=cut)
        done = run(tmp_path, disk, workload)
        left = disk.after_power_cut()
        if done:
            check(tmp_path, left, done, whole)
        log = TopicLog(tmp_path, small(left))
        seen = {topic: stored(tmp_path, topic, left) for _, topic in log.core.topics}
        check(tmp_path, left, done, whole)
        for topic, events in seen.items():
            assert log.append(topic, b"new") == len(events)
        log.close()
        again = left.after_power_cut()
        for topic, events in seen.items():
            assert stored(tmp_path, topic, again) == [*events, b"new"]


@pytest.mark.parametrize("workload", [staged, adopted])
def test_a_commit_is_all_or_nothing_over_its_topics_whenever_the_power_goes(
    tmp_path: Path, workload: Callable[[TopicLog, Acknowledged], None]
) -> None:
    disk = SimulatedStorage()
    run(tmp_path, disk, workload)
    for cut in range(0, disk.steps, max(1, disk.steps // count(40, 10_000))):
        cut_disk = SimulatedStorage(cut, seed=cut)
        run(tmp_path, cut_disk, workload)
        left = cut_disk.after_power_cut()
        with TopicLog(tmp_path, small(left)) as log:
            found = [event for _, topic in log.core.topics for event in stored(tmp_path, topic, left)]
            for epoch in range(3):
                rows = {e for e in found if e.startswith(b"%d." % epoch)}
                assert len(rows) in (0, 10)
                last = log.core.writers.get("w")
                assert (len(rows) == 10) == (last is not None and last.epoch >= epoch)


def test_a_disk_that_lies_about_its_syncs_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path, SimulatedStorage(), appends)
    monkeypatch.setattr(SimulatedStorage, "fdatasync", lambda disk, handle: disk._step())
    lost = 0
    for cut in range(30, 200, 10):
        disk = SimulatedStorage(cut, seed=cut)
        done = run(tmp_path, disk, appends)
        try:
            check(tmp_path, disk.after_power_cut(), done, whole)
        except (AssertionError, LogError, OSError):
            lost += 1
    assert lost
