"""A disk that fails: no sync lies, nothing is forgotten, and it goes on when the disk does."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from echomesh.errors import StorageError, StorageFull
from tests.log.support import EIO, ENOSPC, FOREVER
from tests.mesh.state_faults_support import CALLS, decided, read_copy, written
from tests.mesh.state_support import FaultyDisk, content, found, is_clean, opened
from tests.support.counts import count
from tests.support.descriptors import open_below


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("code", [EIO, ENOSPC])
@pytest.mark.parametrize("call", CALLS)
def test_after_one_failure_all_is_in_a_new_file(shm_dir: Path, call: str, code: int, threaded: bool) -> None:
    disk = FaultyDisk()
    state = opened(shm_dir, disk, threaded=threaded, clock=lambda: 0.0)
    state.put(("a",), 1)
    assert decided(state) is None
    old = (shm_dir / "state").stat().st_ino
    disk.fail[call] = (1, code)
    state.put(("a",), 2)
    if call in ("create", "rename", "sync_directory"):
        # These come only with a new file: ask for one.
        state._journal.broken = True
    failure = decided(state)
    if failure is not None:
        assert failure.errno == code
        assert isinstance(failure, StorageFull) == (code == ENOSPC)
        assert decided(state) is None
    assert disk.fail[call][0] == 0
    assert (shm_dir / "state").stat().st_ino != old
    assert state.error is None
    assert state.flush()
    assert found(shm_dir) == {("a",): 2}
    state.close()


@pytest.mark.parametrize("code", [EIO, ENOSPC])
@pytest.mark.parametrize("call", CALLS)
def test_while_the_disk_fails_no_sync_succeeds_and_the_old_file_stays(shm_dir: Path, call: str, code: int) -> None:
    disk = FaultyDisk()
    now = [0.0]
    state = opened(shm_dir, disk, clock=lambda: now[0], compact_bytes=300)
    state.put(("safe",), 1)
    state.sync().result()
    disk.fail[call] = (FOREVER, code)
    if call in ("create", "rename", "sync_directory"):
        disk.fail["fdatasync"] = (1, EIO)
    for i in range(20):
        now[0] += 0.05
        state.put(("unsafe",), i)
        state.flush()
        sync = state.sync()
        assert sync.done()
        with pytest.raises(StorageError) as caught:
            sync.result()
        assert caught.value.errno == code
        assert str(shm_dir / "state") in str(caught.value)
        assert state.error is not None
        assert {path.name for path in shm_dir.iterdir()} == {"state"}
        assert found(shm_dir)[("safe",)] == 1
    disk.fail.clear()
    now[0] += 10.0
    assert state.flush(), "it goes on by itself once the disk does"
    assert found(shm_dir) == {("safe",): 1, ("unsafe",): 19}
    state.sync().result()
    assert state.error is None


def test_failures_and_compactions_leave_no_file_open(shm_dir: Path) -> None:
    disk = FaultyDisk()
    state = opened(shm_dir, disk, compact_bytes=100, clock=lambda: 0.0)
    assert len(open_below(shm_dir)) == 1
    for i in range(100):
        disk.fail["fdatasync"] = (i % 4, EIO)
        state.put(("a",), i)
        state.sync()
    assert len(open_below(shm_dir)) == 1
    disk.fail.clear()
    state.close()
    assert open_below(shm_dir) == []


def test_what_is_left_of_a_new_file_does_not_get_into_the_next(shm_dir: Path) -> None:
    state = opened(shm_dir)
    state.put(("a",), 1)
    assert state.flush()
    (shm_dir / "state.new").write_bytes(b"left over" * 100)
    state._journal.rewrite()
    assert is_clean(shm_dir)
    (shm_dir / "state.new").write_bytes(b"left over" * 100)
    assert found(shm_dir) == {("a",): 1}
    assert not (shm_dir / "state.new").exists()


def test_a_failing_disk_is_not_asked_again_at_every_flush(shm_dir: Path) -> None:
    disk = FaultyDisk()
    now = [0.0]
    state = opened(shm_dir, disk, clock=lambda: now[0])
    disk.fail["pwrite"] = (FOREVER, ENOSPC)
    for i in range(6000):
        now[0] += 0.01
        state.put(("a",), i)
        assert not state.flush()
    tries = FOREVER - disk.fail["pwrite"][0]
    assert 5 < tries < 40, "a minute of full disk"


def test_a_compaction_that_fails_leaves_the_old_file_in_use(shm_dir: Path) -> None:
    disk = FaultyDisk()
    now = [0.0]
    state = opened(shm_dir, disk, clock=lambda: now[0], compact_bytes=1000)
    disk.fail["create"] = (FOREVER, ENOSPC)
    for i in range(200):
        state.put(("a",), i)
        assert state.flush()
        state.sync().result()
        now[0] += 1.0
        assert found(shm_dir) == {("a",): i}
    grown = state.file_bytes
    assert grown > 5000
    disk.fail.clear()
    for i in range(50):
        state.put(("a",), i)
        now[0] += 1.0
        assert state.flush()
    assert state.file_bytes < 2000
    assert found(shm_dir) == {("a",): 49}


def test_it_starts_on_a_disk_that_takes_no_writes_and_says_so(shm_dir: Path) -> None:
    values = written(shm_dir)[-1][1]
    with (shm_dir / "state").open("ab") as file:
        file.write(b"torn")
    disk = FaultyDisk()
    disk.fail["create"] = (FOREVER, ENOSPC)
    now = [0.0]
    state = opened(shm_dir, disk, clock=lambda: now[0])
    assert content(state) == values
    assert "nothing can be written for now" in str(state.report)
    assert isinstance(state.error, StorageFull)
    state.put(("more",), 1)
    assert not state.flush()
    disk.fail.clear()
    now[0] = 10.0
    assert state.flush()
    assert found(shm_dir) == values | {("more",): 1}


def test_a_file_that_can_not_be_read_is_an_error_and_stays(shm_dir: Path) -> None:
    class Unreadable(FaultyDisk):
        def pread(self, handle: int, size: int, position: int) -> bytes:
            raise OSError(EIO, "Input/output error")

    written(shm_dir)
    with pytest.raises(StorageError, match="check the disk"):
        opened(shm_dir, Unreadable())
    assert found(shm_dir)


@pytest.mark.parametrize("call", CALLS)
def test_faults_at_random_never_make_a_sync_lie(shm_dir: Path, call: str) -> None:
    """Threaded, with real files: what a sync called safe is in the file, whatever failed between."""
    disk = FaultyDisk()
    chosen = random.Random(5)
    told = threading.Semaphore(0)
    state = opened(shm_dir, disk, threaded=True, notify=told.release, compact_bytes=500)
    failures = 0
    for i in range(count(60, 1000)):
        if chosen.random() < 0.5:
            disk.fail[chosen.choice(["fdatasync", call])] = (chosen.randrange(4), chosen.choice([EIO, ENOSPC]))
        for _ in range(chosen.randrange(4)):
            state.put(("k", str(chosen.randrange(10))), i)
            state.flush()
        sync = state.sync()
        while not sync.done():
            assert told.acquire(timeout=30)
        try:
            sync.result()
        except StorageError:
            failures += 1
        else:
            assert read_copy(shm_dir) == content(state)
    assert failures
    disk.fail.clear()
    state.close()
    assert found(shm_dir) == content(state)
