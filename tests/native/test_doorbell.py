"""Doorbells: files that wake a process, and never block who rings."""

from __future__ import annotations

import os
import select
import stat
from pathlib import Path

import pytest

from echomesh.errors import FileGone, StorageError
from echomesh.native.doorbell import Doorbell
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.native.waiter import Waiter
from tests.native.support.memory import RING_TRAILER, get32, put32, scratch

WORD, SLEEPERS, ARMED = 0, 4, 8


def readable(bell: Doorbell) -> bool:
    looking = select.poll()
    looking.register(bell.fileno(), select.POLLIN)
    return bool(looking.poll(0))


def armed(bell: Doorbell) -> Waiter:
    waiter = Waiter(bell)
    waiter.watch([])
    assert waiter.arm() is False
    return waiter


def test_a_bell_is_a_small_file_and_a_fifo_that_only_its_user_may_touch(shm_dir: Path) -> None:
    bell = Doorbell.create(shm_dir / "bell")
    assert (bell.own, bell.path) == (True, str(shm_dir / "bell"))
    assert sorted(path.name for path in shm_dir.iterdir()) == ["bell", "bell.fifo"]
    for name in ("bell", "bell.fifo"):
        assert stat.S_IMODE((shm_dir / name).stat().st_mode) == 0o600
    assert not Doorbell.open(shm_dir / "bell").own


def test_a_bell_takes_the_place_of_an_old_one(shm_dir: Path) -> None:
    for left_over in ("both", "file", "fifo"):
        old = Doorbell.create(shm_dir / "bell")
        if left_over == "file":
            (shm_dir / "bell.fifo").unlink()
        elif left_over == "fifo":
            (shm_dir / "bell").unlink()
        new = Doorbell.create(shm_dir / "bell")
        waiter = armed(new)
        old.ring()
        assert not readable(new)
        Doorbell.open(shm_dir / "bell").ring()
        assert readable(new)
        assert waiter.wait(0) is True


def test_only_an_armed_bell_gets_bytes(shm_dir: Path) -> None:
    bell = Doorbell.create(shm_dir / "bell")
    other = Doorbell.open(shm_dir / "bell")
    other.ring()
    assert not readable(bell)
    waiter = Waiter(bell)
    waiter.watch([])
    assert waiter.arm() is False
    for _ in range(1000):
        other.ring()
    assert os.read(bell.fileno(), 100) == b"\x01"


def test_a_ring_before_arming_is_not_lost(shm_dir: Path) -> None:
    bell = Doorbell.create(shm_dir / "bell")
    waiter = Waiter(bell)
    waiter.watch([])
    Doorbell.open(shm_dir / "bell").ring()
    assert waiter.arm() is True
    assert waiter.arm() is False


def test_arming_sees_what_is_there_and_does_not_leave_the_bell_armed(shm_dir: Path) -> None:
    bell = Doorbell.create(shm_dir / "bell")
    ring = Ring(scratch(1024 + RING_TRAILER))
    ring.connect_reader(bell)
    waiter = Waiter(bell)
    waiter.watch([ring])
    ring.write(1, b"")
    assert waiter.arm() is True
    assert get32(Mapping.open(bell.path), ARMED) == 0
    ring.drain()
    assert waiter.arm() is False
    ring.write(1, b"")
    assert readable(bell)


@pytest.mark.timeout(60)
def test_a_bell_that_nobody_answers_never_blocks_and_is_silenced_at_once(shm_dir: Path) -> None:
    bell = Doorbell.create(shm_dir / "bell")
    other = Doorbell.open(shm_dir / "bell")
    file = Mapping.open(bell.path)
    for _ in range(70_000):  # more than a FIFO holds
        put32(file, ARMED, 1)
        other.ring()
    assert readable(bell)
    bell.silence()
    assert not readable(bell)
    armed_again = Waiter(bell)
    assert armed_again.arm() is False
    other.ring()
    assert readable(bell)


def test_a_bell_whose_process_is_gone_is_rung_in_vain(shm_dir: Path) -> None:
    bell = Doorbell.create(shm_dir / "bell")
    late = Doorbell.open(shm_dir / "bell")
    armed(bell)
    del bell
    too_late = Doorbell.open(shm_dir / "bell")
    for other in (late, too_late):
        put32(Mapping.open(other.path), ARMED, 1)
        other.ring()
    assert too_late.fileno() == -1


@pytest.mark.parametrize("values", [(-1, -1, -1), (2**31 - 1, -(2**31), 7), (0, 2**31 - 1, 1)])
def test_hostile_values_in_a_bell_do_no_harm(shm_dir: Path, values: tuple[int, int, int]) -> None:
    bell = Doorbell.create(shm_dir / "bell")
    ring = Ring(scratch(1024 + RING_TRAILER))
    ring.connect_reader(bell)
    waiter = Waiter(bell)
    waiter.watch([ring])
    file = Mapping.open(bell.path)
    for at, value in zip((WORD, SLEEPERS, ARMED), values, strict=True):
        put32(file, at, value)
    waiter.wait(0.01)
    ring.write(1, b"")
    bell.ring()
    assert waiter.wait(0) is True
    bell.silence()


def test_what_is_no_bell_is_a_typed_error(shm_dir: Path) -> None:
    with pytest.raises(FileGone):
        Doorbell.open(shm_dir / "missing")
    (shm_dir / "short").write_bytes(bytes(63))
    (shm_dir / "directory").mkdir()
    for name in ("short", "directory"):
        with pytest.raises(StorageError):
            Doorbell.open(shm_dir / name)
    for path in (shm_dir / "directory", shm_dir / "missing" / "bell"):
        with pytest.raises(StorageError):
            Doorbell.create(path)
    assert sorted(path.name for path in shm_dir.iterdir()) == ["directory", "short"]
