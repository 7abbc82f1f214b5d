"""Power cuts under a state file: what was synced is there."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import Buffer

from echomesh.log.storage import PowerCut, SimulatedStorage
from echomesh.mesh.state import StateFile
from tests.mesh.state_faults_support import History, after_kill, change, cut, work
from tests.mesh.state_support import content, found, opened
from tests.support.counts import count


def test_nothing_synced_is_lost_whenever_the_power_goes(tmp_path: Path) -> None:
    for seed in range(count(5, 100)):
        disk, history = cut(tmp_path, seed, 1 << 60)
        assert disk.steps > 50
        for after in range(disk.steps):
            disk, history = cut(tmp_path, seed, after)
            left = disk.after_power_cut()
            state = opened(tmp_path, left, compact_bytes=400)
            seen = content(state)
            history.check(seen, history.synced)
            history.check(found(tmp_path, after_kill(disk)), history.flushed)
            # And it goes on from there, over another power cut.
            state.put(("new",), after)
            state.sync().result()
            assert found(tmp_path, left.after_power_cut()) == seen | {("new",): after}


class BusyDisk(SimulatedStorage):
    """A disk on which there is time for others while a new file is written to and synced."""

    meanwhile: Callable[[], None] | None = None

    def pwrite(self, handle: int, data: Buffer, position: int) -> None:
        super().pwrite(handle, data, position)
        self._others()

    def fdatasync(self, handle: int) -> None:
        self._others()
        super().fdatasync(handle)
        self._others()

    def _others(self) -> None:
        if self.meanwhile is not None:
            self.meanwhile()


def busy(directory: Path, seed: int, after: int) -> tuple[BusyDisk, History, StateFile | None]:
    """As `cut`, with puts and flushes in the middle of every compaction."""
    disk, history, state = BusyDisk(after, seed=after), History(), None
    chosen = random.Random(seed)
    numbers = itertools.count(1000)

    def meanwhile() -> None:
        if state is None or state._journal._tail is None or state._journal._lock.locked():
            return  # no new file is being written, or it is taking the old one's place
        number = next(numbers)
        change(state, history, ("k", str(chosen.randrange(12))), None if number % 5 == 0 else number)
        if chosen.random() < 0.8:
            history.flush(state)

    try:
        state = opened(directory, disk, compact_bytes=300)
        disk.meanwhile = meanwhile
        work(state, history, seed)
        disk.meanwhile = None
        history.sync(state)
    except PowerCut:
        pass
    return disk, history, state


def test_what_is_put_while_a_new_file_is_written_is_as_safe_as_any(tmp_path: Path) -> None:
    for seed in range(count(5, 100)):
        disk, history, state = busy(tmp_path, seed, 1 << 60)
        assert state is not None
        assert content(state) == found(tmp_path, disk)
        for after in range(disk.steps):
            disk, history, _ = busy(tmp_path, seed, after)
            history.check(found(tmp_path, disk.after_power_cut()), history.synced)
            history.check(found(tmp_path, after_kill(disk)), history.flushed)


def test_a_disk_that_lies_about_its_syncs_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedStorage, "fdatasync", lambda disk, handle: disk._step())
    lost = 0
    for after in range(20, 120, 5):
        disk, history = cut(tmp_path, 0, after)
        try:
            history.check(found(tmp_path, disk.after_power_cut()), history.synced)
        except AssertionError:
            lost += 1
    assert lost
