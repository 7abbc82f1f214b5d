"""The control file: its header, its parts, and what is not one."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from echomesh.errors import BadControlFile, EchomeshError, FileGone, StorageError
from echomesh.nukleus.control import SMALL, Capacities, ControlFile
from tests.nukleus.foreign import ForeignController


def test_the_default_capacities_are_1_mib_and_the_small_ones_64_kib() -> None:
    assert Capacities() == Capacities(1 << 20, 1 << 20, 1 << 20, 1 << 20)
    assert Capacities(1 << 16, 1 << 16, 1 << 16, 1 << 16) == SMALL


def test_the_header_is_big_endian_and_the_parts_follow_with_no_gap(shm_dir: Path) -> None:
    path = shm_dir / "control"
    sizes = Capacities(1 << 10, 1 << 11, 1 << 12, 1 << 13)
    file = ControlFile.create(path, sizes)
    raw = path.read_bytes()
    assert raw[:20].hex() == "0000000100000400000008000000100000002000"
    assert raw[20:64] == bytes(44)
    assert len(raw) == 64 + (1 << 10) + 768 + (1 << 11) + 128 + (1 << 12) + (1 << 13)
    assert file.commands.write(0x11223344, b"command!")
    file.transmitter().transmit(0x55667788, b"response")
    file.counters().allocate("label").add(0x0102)
    raw = path.read_bytes()
    assert raw[64:80].hex() == "1000000044332211" + b"command!".hex()
    responses = 64 + 1024 + 768
    assert raw[responses : responses + 16].hex() == "1000000088776655" + b"response".hex()
    labels = responses + 2048 + 128
    assert raw[labels : labels + 9] == b"\5\0\0\0label"
    assert raw[labels + 4096 : labels + 4104] == struct.pack("<q", 0x0102)


def test_a_foreign_controller_finds_all_parts(shm_dir: Path) -> None:
    file = ControlFile.create(shm_dir / "control", Capacities(1 << 12, 1 << 10, 128 * 3, 128 * 3))
    foreign = ForeignController(shm_dir / "control")
    receiver = foreign.send(7, b"to them")
    assert file.commands.drain() == [(7, b"to them")]
    file.transmitter().transmit(9, b"to you")
    assert receiver.receive() == (9, b"to you")
    file.counters().allocate("one").add(5)
    file.counters().allocate("two").add(6)
    assert foreign.counters() == {"one": 5, "two": 6}
    assert foreign.ring.next_correlation() == 0
    assert file.commands.next_correlation_id() == 1


def test_a_file_gets_its_name_once_it_is_whole(shm_dir: Path) -> None:
    (shm_dir / "control.new").write_bytes(b"half of one that a dead process left")
    ControlFile.create(shm_dir / "control", SMALL)
    assert [path.name for path in shm_dir.iterdir()] == ["control"]
    assert (shm_dir / "control").stat().st_mode & 0o777 == 0o600


def test_both_ends_see_the_same_file(shm_dir: Path) -> None:
    made = ControlFile.create(shm_dir / "control", SMALL)
    opened = ControlFile.open(shm_dir / "control")
    assert opened.capacities == made.capacities
    opened.commands.write(1, b"x")
    assert made.commands.drain() == [(1, b"x")]


BAD_CAPACITIES = [
    (0, 1024, 0, 0),
    (1000, 1024, 0, 0),
    (512, 1024, 0, 0),
    (-1024, 1024, 0, 0),
    (1024, 0, 0, 0),
    (1024, 3 << 10, 0, 0),
    (1024, -(1 << 31), 0, 0),
    (1024, 1024, 100, 0),
    (1024, 1024, -128, 0),
    (1024, 1024, 0, 1),
    (1 << 30, 1 << 30, 0x7FFFFF80, 0x7FFFFF80),
]


@pytest.mark.parametrize("sizes", BAD_CAPACITIES)
def test_impossible_capacities_are_refused_by_both_ends(shm_dir: Path, sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(BadControlFile):
        ControlFile.create(shm_dir / "control", Capacities(*sizes))
    assert list(shm_dir.iterdir()) == []
    (shm_dir / "control").write_bytes(struct.pack(">5i", 1, *sizes) + bytes(8192))
    with pytest.raises(BadControlFile):
        ControlFile.open(shm_dir / "control")


@pytest.mark.parametrize("version", [0, 2, -1, 0x01000000])
def test_another_version_is_refused(shm_dir: Path, version: int) -> None:
    (shm_dir / "control").write_bytes(struct.pack(">5i", version, 1024, 1024, 0, 0) + bytes(8192))
    with pytest.raises(BadControlFile, match="version"):
        ControlFile.open(shm_dir / "control")


def test_every_truncation_is_refused(shm_dir: Path) -> None:
    path = shm_dir / "control"
    ControlFile.create(path, Capacities(1 << 10, 1 << 10, 256, 256))
    size = path.stat().st_size
    whole = path.read_bytes()
    for length in [*range(70), 1088, 1855, size // 2, size - 129, size - 8, size - 1]:
        cut = shm_dir / "cut"
        cut.write_bytes(whole[:length])
        with pytest.raises(BadControlFile):
            ControlFile.open(cut)


def test_what_is_no_file_is_refused(shm_dir: Path) -> None:
    with pytest.raises(FileGone):
        ControlFile.open(shm_dir / "missing")
    (shm_dir / "directory").mkdir()
    os.mkfifo(shm_dir / "fifo")
    ControlFile.create(shm_dir / "real", SMALL)
    (shm_dir / "link").symlink_to(shm_dir / "real")
    for name in ("directory", "fifo", "link"):
        with pytest.raises((StorageError, BadControlFile)):
            ControlFile.open(shm_dir / name)


def test_random_bytes_are_refused(shm_dir: Path) -> None:
    for seed in range(50):
        (shm_dir / "control").write_bytes(os.urandom(64 + seed * 100))
        with pytest.raises(EchomeshError):
            ControlFile.open(shm_dir / "control")


def test_an_emptied_command_ring_is_as_new_but_correlation_ids_go_on(shm_dir: Path) -> None:
    file = ControlFile.create(shm_dir / "control", Capacities(1 << 10, 1 << 10, 256, 256))
    for _ in range(3):
        file.commands.next_correlation_id()
    memoryview(file.mapping)[64 : 64 + 1024 + 512] = os.urandom(1024 + 512)
    file.empty_commands()
    assert file.commands.head == file.commands.tail == 0
    assert file.commands.next_correlation_id() == 3
    for number in range(100):
        assert file.commands.write(number, bytes(100))
        assert file.commands.drain() == [(number, bytes(100))]


def test_emptied_responses_are_as_new(shm_dir: Path) -> None:
    file = ControlFile.create(shm_dir / "control", Capacities(1 << 10, 1 << 10, 256, 256))
    start = file.capacities.responses_at
    memoryview(file.mapping)[start : start + 1024 + 24] = os.urandom(1024 + 24)
    file.empty_responses()
    receiver = file.receiver()
    file.transmitter().transmit(5, b"answer")
    assert receiver.receive() == (5, b"answer")
    raw = (shm_dir / "control").read_bytes()
    assert raw[start + 1024 : start + 1048] == struct.pack("<qqq", 16, 16, 0)
