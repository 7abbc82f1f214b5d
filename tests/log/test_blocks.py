"""Files that are written once: in whole blocks, past the page cache where there is a way, the same bytes."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from echomesh.log.storage import RealStorage
from echomesh.log.storage.blocks import BlockFile
from tests.log.support import EIO, FaultyStorage

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 12345])
def test_any_pieces_become_the_same_file(tmp_path: Path, shm_dir: Path, size: int) -> None:
    chosen = random.Random(size)
    data = chosen.randbytes(size)
    for directory in (tmp_path, shm_dir):  # one of them may not know such writes
        file = BlockFile(RealStorage(), str(directory / "file"))
        at = 0
        while at < size:
            piece = data[at : at + chosen.choice((1, 700, 4096, 300_000, 2 * MIB))]
            file.write(piece)
            at += len(piece)
            if chosen.random() < 0.1:
                file.flush()
                assert (directory / "file").read_bytes() == data[:at]
        assert file.size == size
        file.sync()
        file.close()
        assert (directory / "file").read_bytes() == data


def test_a_large_file_goes_past_the_page_cache_where_there_is_a_way(tmp_path: Path) -> None:
    file = BlockFile(RealStorage(), str(tmp_path / "file"))
    file.write(bytes(3 * MIB))
    flags = (Path("/proc/self/fdinfo") / str(file._handle)).read_text().split("flags:")[1].split()[0]
    file.close()
    if not int(flags, 8) & os.O_DIRECT:
        pytest.skip("the file system of the tests has a page cache and no way around it")
    assert (tmp_path / "file").read_bytes() == bytes(3 * MIB)


def test_a_disk_that_fails_is_told_and_the_handle_is_given_back(tmp_path: Path) -> None:
    disk = FaultyStorage()
    disk.fail["pwrite"] = (1, EIO)
    file = BlockFile(disk, str(tmp_path / "file"))
    with pytest.raises(OSError, match="Input/output"):
        file.write(bytes(2 * MIB))
    file.close()
    assert not disk.paths


def test_a_disk_that_wants_other_blocks_is_written_as_usual(tmp_path: Path) -> None:
    disk = FaultyStorage()
    data = random.Random(3).randbytes(3 * MIB + 77)
    for refused in range(4):
        file = BlockFile(disk, str(tmp_path / f"file{refused}"))
        disk.only, disk.skip, disk.fail["pwrite"] = f"file{refused}", refused, (1, errno.EINVAL)
        file.write(data)
        file.sync()
        file.close()
        assert (tmp_path / f"file{refused}").read_bytes() == data
    assert not disk.paths
