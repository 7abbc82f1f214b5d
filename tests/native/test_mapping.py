"""Mapped files: what can't be mapped is a typed error, and what is mapped is there for good."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomesh.errors import EchomeshError, FileGone, StorageError, StorageFull, UsageError
from echomesh.native.doorbell import Doorbell
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from tests.native.support.memory import RING_TRAILER
from tests.native.support.processes import run_code
from tests.support.descriptors import open_below


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory with room for 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine does not allow mounts")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(4096)) == 4096:
            pass


def test_a_new_file_is_zero_and_reserved_and_only_for_its_user(shm_dir: Path) -> None:
    mapping = Mapping.create(shm_dir / "new", 100_000)
    status = (shm_dir / "new").stat()
    assert (len(mapping), mapping.size, status.st_size) == (100_000, 100_000, 100_000)
    assert status.st_blocks * 512 >= 100_000
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert mapping.identity == (status.st_dev, status.st_ino)
    assert bytes(mapping) == bytes(100_000)
    assert (mapping.path, mapping.writable) == (str(shm_dir / "new"), True)


def test_two_mappings_of_a_file_are_the_same_memory(shm_dir: Path) -> None:
    first = Mapping.create(shm_dir / "file", 4096)
    second = Mapping.open(shm_dir / "file")
    memoryview(first)[10:15] = b"hello"
    assert bytes(memoryview(second)[10:15]) == b"hello"
    assert first.identity == second.identity


def test_a_file_that_is_there_is_not_made_anew(shm_dir: Path) -> None:
    (shm_dir / "there").write_bytes(b"precious")
    with pytest.raises(StorageError) as caught:
        Mapping.create(shm_dir / "there", 4096)
    assert caught.value.errno == errno.EEXIST
    assert (shm_dir / "there").read_bytes() == b"precious"


@pytest.mark.parametrize("size", [0, -1, -(2**63)])
def test_a_file_without_a_size_is_refused(shm_dir: Path, size: int) -> None:
    with pytest.raises(UsageError):
        Mapping.create(shm_dir / "none", size)
    assert list(shm_dir.iterdir()) == []


def test_a_file_that_does_not_fit_is_refused_at_creation_and_leaves_nothing(small_file_system: Path) -> None:
    with pytest.raises(StorageFull) as caught:
        Mapping.create(small_file_system / "large", 1 << 20)
    assert caught.value.errno == errno.ENOSPC
    assert "1048576" in str(caught.value)
    assert list(small_file_system.iterdir()) == []
    Mapping.create(small_file_system / "fits", 64 << 10)


def test_a_sparse_file_that_does_not_fit_is_refused_when_it_is_opened(small_file_system: Path) -> None:
    sparse = small_file_system / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 20)
    with pytest.raises(StorageFull):
        Mapping.open(sparse)
    assert sparse.stat().st_size == 1 << 20


def test_a_sparse_file_is_reserved_when_it_is_opened(small_file_system: Path) -> None:
    sparse = small_file_system / "sparse"
    with sparse.open("wb") as file:
        file.truncate((64 << 10) + RING_TRAILER)
    assert sparse.stat().st_blocks == 0
    mapping = Mapping.open(sparse)
    assert sparse.stat().st_blocks * 512 >= 64 << 10
    # The rest of the file system is used up: without the reservation the next touch would be a SIGBUS.
    fill(small_file_system)
    assert Ring(mapping).write(1, b"there is room for this")


def test_a_full_file_system_leaves_nothing_of_a_doorbell(small_file_system: Path) -> None:
    fill(small_file_system)
    with pytest.raises(StorageFull):
        Doorbell.create(small_file_system / "bell")
    assert [path.name for path in small_file_system.iterdir()] == ["filler"]


def test_what_is_no_regular_file_with_bytes_is_a_typed_error(shm_dir: Path) -> None:
    (shm_dir / "file").write_bytes(b"x")
    (shm_dir / "link").symlink_to(shm_dir / "file")
    (shm_dir / "dangling").symlink_to(shm_dir / "nothing")
    (shm_dir / "directory").mkdir()
    (shm_dir / "empty").touch()
    os.mkfifo(shm_dir / "fifo")
    for name in ("link", "dangling", "directory", "empty", "fifo"):
        for writable in (True, False):
            with pytest.raises(StorageError) as caught:
                Mapping.open(shm_dir / name, writable=writable)
            assert not isinstance(caught.value, FileGone | StorageFull)
            assert caught.value.filename == str(shm_dir / name)
    for name in ("link", "dangling", "directory", "fifo"):
        with pytest.raises(StorageError):
            Mapping.create(shm_dir / name, 4096)
    assert not (shm_dir / "nothing").exists()


def test_a_missing_file_is_gone(shm_dir: Path) -> None:
    for path in (shm_dir / "missing", shm_dir / "no" / "directory"):
        with pytest.raises(FileGone):
            Mapping.open(path)
    with pytest.raises(FileGone):
        Mapping.create(shm_dir / "no" / "directory", 64)


def test_a_file_below_a_file_is_a_typed_error(shm_dir: Path) -> None:
    (shm_dir / "file").touch()
    with pytest.raises(StorageError) as caught:
        Mapping.open(shm_dir / "file" / "below")
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, EchomeshError)
    assert caught.value.errno == errno.ENOTDIR


def test_a_mapping_for_reading_only_can_not_be_written(shm_dir: Path) -> None:
    Mapping.create(shm_dir / "file", 4096)
    with memoryview(Mapping.open(shm_dir / "file", writable=False)) as view:
        assert view.readonly
        with pytest.raises(TypeError):
            view[0] = 1


def test_no_file_descriptor_stays_open(shm_dir: Path) -> None:
    kept = [Mapping.create(shm_dir / "file", 4096), Mapping.open(shm_dir / "file")]
    for _ in range(50):
        with pytest.raises(StorageError):
            Mapping.open(shm_dir)
        Doorbell.create(shm_dir / "bell")
        Doorbell.open(shm_dir / "bell")
    assert open_below(shm_dir) == []
    assert len(kept) == 2


def test_memory_stays_mapped_while_a_view_of_it_lives() -> None:
    out = run_code(
        """
        import gc, tempfile
        from echomesh.native.mapping import Mapping

        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            mapping = Mapping.create(directory + "/file", 1 << 20)
        view = memoryview(mapping)[5:]
        del mapping
        gc.collect()
        view[:3] = b"abc"
        print(bytes(view[:3]), len(view))
        before = len(open("/proc/self/maps").readlines())
        del view
        print(len(open("/proc/self/maps").readlines()) < before)
        """
    )
    assert out.splitlines() == ["b'abc' 1048571", "True"]
