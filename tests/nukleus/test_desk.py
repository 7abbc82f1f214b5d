"""The nukleus's end of its control file: answers, damage, dead controllers."""

from __future__ import annotations

import os
import struct
from collections import Counter
from pathlib import Path

import pytest

from echomesh.nukleus.conductor import Conductor
from echomesh.nukleus.control import Capacities, ControlFile
from echomesh.nukleus.desk import Desk
from tests.nukleus import workers
from tests.nukleus.foreign import ForeignController
from tests.nukleus.test_conductor import FakeFiles
from tests.support.processes import process, until

SIZES = Capacities(1 << 10, 1 << 10, 1280, 1280)
CAPTURE = struct.pack("<q", 7) + b"\x06client"


class Office:
    """A desk that this thread works at, and a controller across it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "control"
        self.lock = directory / "control.lock"
        self.file = ControlFile.create(self.path, SIZES)
        self.files = FakeFiles()
        self.counts: Counter[str] = Counter()
        self.desk = Desk(self.file, self.lock, Conductor(self.files), self._count)
        self.control = ForeignController(self.path)

    def _count(self, label: str) -> None:
        self.counts[label] += 1

    def scribble(self, offset: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            os.pwrite(file.fileno(), data, offset)

    def assert_answers(self) -> None:
        receiver = self.control.send(1, CAPTURE)
        assert self.desk.conduct() == 1
        assert receiver.receive() == (0x40000001, struct.pack("<q", 7))


@pytest.fixture
def office(shm_dir: Path) -> Office:
    return Office(shm_dir)


def test_commands_are_done_in_order_and_counted(office: Office) -> None:
    assert office.desk.conduct() == 0
    for name in ("a", "b", "c"):
        office.control.send(1, struct.pack("<q", 1) + b"\1" + name.encode())
    office.control.send(1, b"short")
    assert office.desk.conduct() == 4
    assert office.files.calls == [("capture", "a"), ("capture", "b"), ("capture", "c")]
    assert office.counts == {"commands": 3, "commands without correlation": 1}


@pytest.mark.parametrize("length", [1, 7, 1025, 0x7FFFFFFF])
def test_a_record_that_can_not_be_empties_the_ring(office: Office, length: int) -> None:
    office.scribble(64, struct.pack("<ii", length, 1))
    assert office.desk.conduct() == 1
    assert office.counts["damaged rings"] == 1
    office.assert_answers()


@pytest.mark.parametrize("length", [8, 9, 64, 1024])
def test_a_record_that_nobody_wrote_is_found_out_before_a_writer_goes_on(office: Office, length: int) -> None:
    office.assert_answers()
    index = office.control.ring.head
    office.scribble(64 + index, struct.pack("<ii", min(length, 1024 - index), 99))
    office.desk.conduct()
    assert office.counts["damaged rings"] == 1
    office.assert_answers()
    office.assert_answers()


@pytest.mark.parametrize("value", [-8, 4, 1 << 40, (1 << 63) - 8])
@pytest.mark.parametrize("offset", [128, 384])
def test_a_head_or_tail_that_can_not_be_is_put_right_at_the_next_tick(office: Office, offset: int, value: int) -> None:
    office.scribble(64 + 1024 + offset, struct.pack("<q", value))
    office.desk.tend()
    assert office.counts["damaged rings"] == 1
    office.assert_answers()


@pytest.mark.parametrize("tail", [-8, 5, -(1 << 63)])
def test_responses_whose_tail_can_not_be_are_begun_anew(office: Office, tail: int) -> None:
    responses = office.file.capacities.responses_at
    office.scribble(responses + 1024 + 8, struct.pack("<q", tail))
    office.control.send(1, CAPTURE)
    office.desk.conduct()
    assert office.counts["damaged rings"] == 1
    office.assert_answers()


def test_one_who_stopped_with_the_lock_does_not_stop_the_repair(office: Office) -> None:
    with process(workers.lock_and_stay, str(office.lock)):
        until(office.lock.exists)
        office.scribble(64, struct.pack("<ii", 7, 1))
        assert office.desk.conduct() == 1
        office.assert_answers()


def test_a_sign_of_life_is_given(office: Office) -> None:
    assert office.file.commands.heartbeat == 0
    office.desk.tend()
    assert office.file.commands.heartbeat > 1_700_000_000_000
