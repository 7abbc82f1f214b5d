"""The state on a disk that fails, loses power or flips bits: nothing that was called safe is lost, nothing made up."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import Buffer

from echomesh.errors import StateTooNew, StorageError, StorageFull
from echomesh.log.storage import PowerCut, SimulatedStorage
from echomesh.mesh import state_format
from echomesh.mesh.state import StateFile
from echomesh.mesh.state_format import FRAME_BYTES, HEADER_BYTES
from echomesh.native.log_sums import crc32c
from tests.log.support import EIO, ENOSPC, FOREVER
from tests.mesh.state_support import LOG_ID, FaultyDisk, Key, content, drop, found, fresh_directory, is_clean, opened
from tests.support.counts import count

CALLS = ["pwrite", "fdatasync", "create", "rename", "sync_directory"]


class History:
    """All values that each key ever had, and where in them the last flush and the last sync that was done stand."""

    def __init__(self) -> None:
        self.values: dict[Key, list[object]] = {}
        self.flushed: dict[Key, int] = {}
        self.synced: dict[Key, int] = {}

    def put(self, key: Key, value: object) -> None:
        self.values.setdefault(key, [None]).append(value)

    def now(self) -> dict[Key, int]:
        return {key: len(values) - 1 for key, values in self.values.items()}

    def flush(self, state: StateFile) -> None:
        now = self.now()
        assert state.flush()
        self.flushed = now

    def sync(self, state: StateFile) -> None:
        now = self.now()
        state.sync().result()
        self.flushed = self.synced = now

    def check(self, seen: dict[Key, object], since: dict[Key, int]) -> None:
        """Nothing that was never put, and nothing older than at that time."""
        assert seen.keys() <= self.values.keys()
        for key, values in self.values.items():
            assert seen.get(key) in values[since.get(key, 0) :], key


def work(state: StateFile, history: History, seed: int) -> None:
    """Puts, deletes, flushes and syncs, over files that get full soon."""
    chosen = random.Random(seed)
    for i in range(120):
        change(state, history, ("k", str(chosen.randrange(12))), None if chosen.random() < 0.15 else i)
        if chosen.random() < 0.4:
            history.flush(state)
        if chosen.random() < 0.2:
            history.sync(state)


def change(state: StateFile, history: History, key: Key, value: object) -> None:
    history.put(key, value)
    if value is None:
        state.delete(key)
    else:
        state.put(key, value)


def after_kill(disk: SimulatedStorage) -> SimulatedStorage:
    """The disk as another process finds it while the machine lives on."""
    left = SimulatedStorage()
    for path, file in disk.files.items():
        handle = left.open(path, create=True)
        left.pwrite(handle, file.content, 0)
        left.close(handle)
    left.sync_all("/")
    return left


def cut(directory: Path, seed: int, after: int) -> tuple[SimulatedStorage, History]:
    disk, history = SimulatedStorage(after, seed=after), History()
    try:
        state = opened(directory, disk, compact_bytes=400)
        work(state, history, seed)
        history.sync(state)
        state.close()
    except PowerCut:
        pass
    return disk, history


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


# Files that are torn or damaged


def written(directory: Path) -> list[tuple[int, dict[Key, object]]]:
    """Writes a small file; where each of its frames ends, and what is known then."""
    state = opened(directory)
    ends: list[tuple[int, dict[Key, object]]] = [(state.file_bytes, {})]
    for i in range(4):
        state.put(("topic", "é"), i)
        state.put(("k", str(i)), "value" * i)
        if i == 3:
            state.delete(("k", "1"))
        assert state.flush()
        ends.append((state.file_bytes, content(state)))
    drop(state)
    return ends


def test_a_tail_torn_at_any_byte_is_cut_off_and_reported(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    for size in range(HEADER_BYTES, len(data)):
        (shm_dir / "state").write_bytes(data[:size])
        state = opened(shm_dir)
        end, values = max(entry for entry in ends if entry[0] <= size)
        assert content(state) == values
        assert state.report.torn_bytes == size - end
        assert not state.report.lost
        assert state.report.clean == (size == end)
        # The next write follows the last good one.
        state.put(("more",), size)
        assert state.flush()
        drop(state)
        assert found(shm_dir) == values | {("more",): size}


def test_zeros_behind_the_end_are_a_torn_tail(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    (shm_dir / "state").write_bytes(data + bytes(100))
    state = opened(shm_dir)
    assert content(state) == ends[-1][1]
    assert state.report.torn_bytes == 100
    assert "100 bytes of an unfinished write" in str(state.report)


def test_any_one_flipped_bit_is_put_right_and_reported(shm_dir: Path) -> None:
    values = written(shm_dir)[-1][1]
    data = (shm_dir / "state").read_bytes()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        (shm_dir / "state").write_bytes(damaged)
        state = opened(shm_dir)
        drop(state)
        assert content(state) == values, bit
        assert len(state.report.mended) == 1
        assert "flipped bits were put right" in str(state.report)
        assert found(shm_dir) == values
        assert is_clean(shm_dir)


def test_two_flipped_bits_lose_what_they_hit_and_nothing_else(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    chosen = random.Random(2)
    for number in range(1, len(ends)):
        for _ in range(count(30, 1000)):
            damaged = bytearray(data)
            begin, end = ends[number - 1][0], ends[number][0]
            for bit in chosen.sample(range((begin + 8) * 8, end * 8), 2):
                damaged[bit >> 3] ^= 1 << (bit & 7)
            (shm_dir / "state").write_bytes(damaged)
            state = opened(shm_dir)
            drop(state)
            seen = content(state)
            if number == len(ends) - 1:
                # Nothing stands behind it, so that it may look like a torn write.
                assert seen == ends[number - 1][1]
                assert bool(state.report.torn_bytes) != bool(state.report.lost)
                continue
            assert [tuple(part) for part in state.report.lost] == [(begin, end - begin, 1)]
            # Later writes count: only keys that were in the lost one alone have their values of before.
            expected = dict(ends[-1][1])
            expected.pop(("k", str(number - 1)), None)
            assert seen == expected
            assert (shm_dir / "state.aside").read_bytes() == bytes(damaged)
            assert f"{end - begin} bytes at {begin} are damaged (1 writes lost)" in str(state.report)


def test_an_old_write_that_turns_up_again_brings_no_old_value_back(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    (shm_dir / "state").write_bytes(data + data[ends[0][0] : ends[1][0]])
    state = opened(shm_dir)
    assert content(state) == ends[-1][1]
    assert not state.report.clean


def test_a_write_that_is_gone_without_a_trace_is_missed(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    (shm_dir / "state").write_bytes(data[: ends[1][0]] + data[ends[2][0] :])
    state = opened(shm_dir)
    assert [tuple(part) for part in state.report.lost] == [(ends[1][0], 0, 1)]


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_a_file_too_short_for_its_header_is_put_aside(shm_dir: Path, size: int) -> None:
    written(shm_dir)
    (shm_dir / "state").write_bytes((shm_dir / "state").read_bytes()[:size])
    state = opened(shm_dir)
    assert content(state) == {}
    assert "too short" in str(state.report)
    assert (shm_dir / "state.aside").stat().st_size == size
    assert is_clean(shm_dir)


def test_a_header_that_is_gone_takes_nothing_with_it(shm_dir: Path) -> None:
    values = written(shm_dir)[-1][1]
    data = (shm_dir / "state").read_bytes()
    (shm_dir / "state").write_bytes(bytes(HEADER_BYTES) + data[HEADER_BYTES:])
    state = opened(shm_dir)
    assert content(state) == values
    assert "the header is damaged" in str(state.report)
    (shm_dir / "state").write_bytes(bytes(len(data)))
    assert found(shm_dir) == {}
    (shm_dir / "state").write_bytes(b"something else, of another program, and long enough for a header")
    state = opened(shm_dir)
    assert content(state) == {}
    assert state.report.aside


def test_a_file_of_a_newer_version_is_left_alone(shm_dir: Path) -> None:
    written(shm_dir)
    data = bytearray((shm_dir / "state").read_bytes())
    data[8] = 2
    data[36:40] = crc32c(bytes(data[:36])).to_bytes(4, "little")
    (shm_dir / "state").write_bytes(data)
    with pytest.raises(StateTooNew, match="version 2"):
        opened(shm_dir)
    assert (shm_dir / "state").read_bytes() == data


@given(st.data())
def test_fuzzed_files_are_opened_with_a_report_and_nothing_made_up(data: st.DataObject) -> None:
    with fresh_directory() as directory:
        history = History()
        state = opened(directory)
        for i in range(6):
            state.put(("k", str(i % 4)), [i, "x" * i])
            history.put(("k", str(i % 4)), [i, "x" * i])
            assert state.flush()
        drop(state)
        file = bytearray((directory / "state").read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(file) - 1))
            size = data.draw(st.integers(0, 60))
            change = data.draw(st.sampled_from(["set", "zero", "cut", "insert", "repeat"]))
            if change == "set":
                file[at : at + size] = data.draw(st.binary(min_size=size, max_size=size))
            elif change == "zero":
                file[at : at + size] = bytes(size)
            elif change == "cut":
                del file[at : at + size]
            elif change == "insert":
                file[at:at] = data.draw(st.binary(max_size=60))
            else:
                file[at:at] = file[at : at + size]
            file = file or bytearray(1)
        (directory / "state").write_bytes(file)
        state = opened(directory)
        drop(state)
        history.check(content(state), {})
        str(state.report)
        assert is_clean(directory)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_frames_with_a_good_sum_and_any_content_do_no_harm(body: bytes, sequence: int) -> None:
    with fresh_directory() as directory:
        mark = b"\x01\x02\x03\x04\x05\x06\x07\x08"
        good = state_format.encode([(("a",), state_format.encode(1))])
        file = state_format.header(LOG_ID, mark)
        for number, part in ((1, good), (sequence, body), (9, good)):
            file += state_format.frame(crc32c(LOG_ID), mark, number, part)
        (directory / "state").write_bytes(file)
        state = opened(directory)
        drop(state)
        assert state.get(("a",)) in (1, None)
        content(state)
        assert not state.report.clean


@pytest.mark.parametrize(
    "entries",
    [[((), b"\x01")], [(("a",), b"\xc1")], [(("a",), b"\x91" * 100_000)], [(("a",), b"")], [(("a",), 5)], {"a": 1}],
)
def test_a_frame_whose_entries_are_none_is_a_damaged_one(shm_dir: Path, entries: object) -> None:
    mark = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    file = state_format.header(LOG_ID, mark)
    file += state_format.frame(crc32c(LOG_ID), mark, 1, state_format.encode(entries))
    (shm_dir / "state").write_bytes(file)
    state = opened(shm_dir)
    assert content(state) == {}
    assert [(part.position, part.frames) for part in state.report.lost] == [(HEADER_BYTES, 1)]
    assert len(file) > HEADER_BYTES + FRAME_BYTES


# Disks that refuse


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


def decided(state: StateFile) -> StorageError | None:
    """Syncs, and waits until that is decided; what kept it from the disk."""
    told = threading.Event()
    state._notify = told.set
    sync = state.sync()
    while not sync.done():
        assert told.wait(30)
    try:
        sync.result()
    except StorageError as error:
        return error
    return None


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
    before = len(list(Path("/proc/self/fd").iterdir()))
    for i in range(100):
        disk.fail["fdatasync"] = (i % 4, EIO)
        state.put(("a",), i)
        state.sync()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    disk.fail.clear()
    state.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1


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


def read_copy(directory: Path) -> dict[Key, object]:
    (directory / "copy").mkdir(exist_ok=True)
    (directory / "copy" / "state").write_bytes((directory / "state").read_bytes())
    return found(directory / "copy")
