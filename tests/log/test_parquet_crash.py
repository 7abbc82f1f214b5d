"""A conversion that ends at any point loses nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from echomesh.log import TopicLog
from echomesh.log.layout import parquet_name, segment_name
from echomesh.log.storage import PowerCut, RealStorage, SimulatedStorage
from tests.log.parquet_support import (
    compacted,
    event,
    everything,
    files,
    fill,
    seen,
)
from tests.log.support import crash, small
from tests.support.counts import count
from tests.support.repository import ROOT


class Failing(RealStorage):
    """Raises at the n-th call that changes something."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerCut("here")

    def pwrite(self, *given: Any) -> None:
        self._step()
        super().pwrite(*given)

    def fdatasync(self, handle: int) -> None:
        self._step()
        super().fdatasync(handle)

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self._step()
        super().sync_directory(path)


def through_all_steps(run: Callable[[int], bool]) -> int:
    """Calls `run` with 0, 1, 2 ... steps allowed, until that was enough."""
    step = 0
    while not run(step):
        step += 1
    return step


def test_a_conversion_that_ends_at_any_step_leaves_every_event(tmp_path: Path) -> None:
    fill(tmp_path, 40)
    before = seen(tmp_path)

    def run(step: int) -> bool:
        try:
            compacted(tmp_path, Failing(step))
        except PowerCut:
            assert seen(tmp_path) == before
            return False
        return True

    # Each attempt starts from what the one before it left behind.
    assert through_all_steps(run) >= 5
    assert seen(tmp_path) == before
    assert len(files(tmp_path, "seg")) == 1
    assert files(tmp_path, "new") == []


def test_a_power_cut_at_any_step_of_a_conversion_loses_nothing(tmp_path: Path) -> None:
    for seed in range(count(2, 30)):

        def run(step: int, seed: int = seed) -> bool:
            disk = SimulatedStorage(seed=seed)
            fill(tmp_path, 40, disk)
            before = seen(tmp_path, disk)
            disk.cut_after = disk.steps + step
            try:
                compacted(tmp_path, disk)
            except PowerCut:
                left = disk.after_power_cut()
                assert seen(tmp_path, left) == before
                with TopicLog(tmp_path, small(left)) as log:
                    assert everything(log.reader().topic("a")) == before
                compacted(tmp_path, left)
                assert seen(tmp_path, left) == before
                return False
            return True

        assert through_all_steps(run) >= 7


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_nine_of_a_conversion_loses_nothing(tmp_path: Path) -> None:
    chosen = random.Random(8)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    script = (
        "import sys\n"
        "from echomesh.log import LogReader\n"
        "from echomesh.log.parquet import compact\n"
        "with LogReader(sys.argv[1]) as reader:\n"
        "    print('open', flush=True)\n"
        "    compact(reader.topic('a'), min_age_s=0)\n"
    )
    for round in range(count(3, 50)):
        directory = tmp_path / str(round)
        fill(directory, 400, segment_bytes=1024)
        before = seen(directory)
        found: list[BaseException] = []
        stop = threading.Event()

        def read(where: Path = directory, wanted: Any = before, errors: Any = found, stop: Any = stop) -> None:
            try:
                while not stop.is_set():
                    assert seen(where) == wanted
            except BaseException as error:
                errors.append(error)

        reading = threading.Thread(target=read)
        reading.start()
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE, env=environment
            )
            assert process.stdout is not None
            process.stdout.readline()
            sleep(chosen.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            assert seen(directory) == before
        stop.set()
        reading.join()
        assert not found, found
        compacted(directory)
        assert seen(directory) == before
        assert len(files(directory, "seg")) == 1


def test_a_segment_and_its_parquet_file_side_by_side_are_one(tmp_path: Path) -> None:
    fill(tmp_path)
    before = seen(tmp_path)
    path = sorted((tmp_path / "topics").rglob("*.seg"))[0]
    kept = path.read_bytes()
    compacted(tmp_path)
    path.write_bytes(kept)
    assert seen(tmp_path) == before
    assert path.name == segment_name(0)
    compacted(tmp_path)
    assert not path.exists()
    path.write_bytes(kept)
    (path.parent / parquet_name(0)).write_bytes(b"half a file")
    compacted(tmp_path)
    assert seen(tmp_path) == before
    assert not path.exists()


def test_a_replayed_journal_does_not_bring_a_converted_segment_back(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    old = {path: path.read_bytes() for path in tmp_path.glob("checkpoint*")}
    log.append_many("a", [event(i) for i in range(60)])
    log.core.keeper.sync()
    log.core.keeper.checkpoint()
    assert compacted(tmp_path).done
    before = seen(tmp_path)
    crash(log)
    for path in tmp_path.glob("checkpoint*"):
        path.unlink()
    for path, data in old.items():
        path.write_bytes(data)
    assert seen(tmp_path) == before
    with TopicLog(tmp_path, small()) as log:
        assert log.report.replayed_frames
        assert everything(log.reader().topic("a")) == before
    assert len(files(tmp_path, "seg")) == 1
