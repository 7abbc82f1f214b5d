"""Hostile bytes in control files, streams files and commands: a running nukleus neither crashes nor hangs."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import struct
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from echomesh.errors import EchomeshError
from echomesh.nukleus import SMALL, Nukleus
from echomesh.nukleus.sync import Controller
from tests.nukleus import workers
from tests.nukleus.foreign import ForeignController, ForeignPeer, ForeignReceiver
from tests.nukleus.helpers import Recorder, connect, controller, files_in, join_echo, step_until
from tests.support.counts import count
from tests.support.processes import PATIENCE_S, process

JAVA = b"\x04java"
COMMANDS_AT, RESPONSES_AT = 64, 64 + (1 << 16) + 768
LABELS_AT = RESPONSES_AT + (1 << 16) + 128
CONTROL_END = LABELS_AT + (2 << 16)
HOSTILE = [1, 7, 8, 9, 0x7FFFFFFF, 0x7FFFFFF8, -1, -8, -(1 << 31), 1 << 16, (1 << 16) + 8, 1 << 20, 12345]


@pytest.fixture
def root(shm_dir: Path) -> Path:
    return shm_dir / "mesh"


@pytest.fixture
def echo(root: Path) -> Iterator[ForkServerProcess]:
    with process(workers.echo, str(root)) as running:
        controller(root).close()
        yield running
        assert running.is_alive(), f"it died with {running.exitcode}"


def assert_served(root: Path, echo: ForkServerProcess, name: str) -> None:
    """A good client is served in the end; on the way it may meet the damage, in typed errors."""
    deadline = time.monotonic() + PATIENCE_S
    for tried in itertools.count():  # each with a name of its own: what one left behind is not the next one's
        handler = Recorder()
        with Nukleus(f"{name}-{tried}", handler, directory=root, capacities=SMALL, stream_capacity=1 << 13) as client:
            try:
                with Controller("echo", directory=root, timeout=0.4) as control:
                    connect(client, join_echo(client, control))
                    step_until(client, lambda: handler.streams)  # noqa: B023
                    handler.streams[0].send(b"still here")
                    step_until(client, lambda: handler.payloads)  # noqa: B023
                    assert handler.payloads == [b"still here"]
                    return
            except EchomeshError as error:
                met = repr(error)
        assert echo.is_alive(), f"it died with {echo.exitcode}"
        assert time.monotonic() < deadline, f"it serves nobody any more: {met}"


def scribble(path: Path, start: int, end: int, heads: list[int], chance: random.Random) -> None:
    """Random bytes, random words, hostile lengths at the heads, or all ones, in a part of a file."""
    how = chance.choice(["bytes", "words", "words", "lengths", "lengths", "ones", "trailer"])
    with path.open("r+b", buffering=0) as file:
        if how == "bytes":
            os.pwrite(file.fileno(), chance.randbytes(end - start), start)
        elif how == "ones":
            os.pwrite(file.fileno(), b"\xff" * (end - start), start)
        elif how == "trailer":
            os.pwrite(file.fileno(), chance.randbytes(min(768, end - start)), max(start, end - 768))
        elif how == "lengths":
            for head in heads:
                record = struct.pack("<ii", chance.choice(HOSTILE), chance.choice([0, 1, 2, -1, 99]))
                os.pwrite(file.fileno(), record, start + head % max(8, end - start - 768))
        else:
            for _ in range(chance.choice([1, 20, 300])):
                os.pwrite(file.fileno(), chance.randbytes(8), chance.randrange(start, end - 7) & ~7)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["commands", "responses", "counters"])
def test_scribbles_in_the_control_file_are_survived(root: Path, echo: ForkServerProcess, part: str) -> None:
    start, end = {
        "commands": (COMMANDS_AT, RESPONSES_AT),
        "responses": (RESPONSES_AT, LABELS_AT),
        "counters": (LABELS_AT, CONTROL_END),
    }[part]
    path = root / "echo" / "control"
    chance = random.Random(part)
    for round_ in range(count(12, 300)):
        foreign = ForeignController(path)
        for _ in range(3):
            scribble(path, start, end, [foreign.ring.head, foreign.ring.head + 64], chance)
            time.sleep(chance.random() * 0.003)
        assert_served(root, echo, f"good{round_}")


@pytest.mark.timeout(900)
def test_a_scribbled_header_is_a_typed_error_for_those_who_come(root: Path, echo: ForkServerProcess) -> None:
    path = root / "echo" / "control"
    header = path.read_bytes()[:64]
    chance = random.Random(5)
    for round_ in range(count(10, 300)):
        with path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), chance.randbytes(20), 0)
            with pytest.raises(EchomeshError):
                Controller("echo", directory=root, timeout=0.2)
            os.pwrite(file.fileno(), header, 0)
        if round_ % 10 == 0:
            assert_served(root, echo, f"good{round_}")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", ["inlet", "outlet"])
def test_scribbles_in_streams_files_are_survived(root: Path, echo: ForkServerProcess, which: str) -> None:
    chance = random.Random(which)
    for round_ in range(count(12, 300)):
        name = f"java{round_ % 50}"
        shutil.rmtree(root / name, ignore_errors=True)
        java = ForeignPeer(root, name, 1 << 12)
        inbound = java.capture("echo")
        with controller(root) as control:
            control.capture(name)
            control.route(name)
            reference = control.bind(name)
            outbound = java.route("echo")
            outbound.write(1, struct.pack("<qq", 1, reference))
            path = root / "echo" / "streams" / name if which == "inlet" else root / name / "streams" / "echo"
            size = path.stat().st_size
            for _ in range(3):
                for number in range(30):
                    outbound.write(2, struct.pack("<qq", 1, number))
                scribble(path, 0, size, [inbound.head if which == "outlet" else outbound.head], chance)
                time.sleep(chance.random() * 0.003)
            assert_served(root, echo, f"good{round_}")
            for undo in (control.unroute, control.uncapture):
                try:
                    undo(name)
                except EchomeshError:
                    assert undo == control.unroute, "a damaged route was given up before; a capture stays"
        assert echo.is_alive()


def test_files_that_are_none_are_refused_or_replaced(root: Path, echo: ForkServerProcess) -> None:
    chance = random.Random(7)
    with controller(root) as control:
        for round_, size in enumerate([0, 1, 7, 767, 768, 769, 832, 4096, 4864, (1 << 16) + 767]):
            name = f"n{round_}"
            streams = root / name / "streams"
            streams.mkdir(parents=True)
            (streams / "echo").write_bytes(chance.randbytes(size))
            with pytest.raises(EchomeshError):
                control.route(name)
            (root / "echo" / "streams" / name).write_bytes(chance.randbytes(size))
            control.capture(name)
            assert (root / "echo" / "streams" / name).read_bytes()[: 1 << 16] == bytes(1 << 16)
            with pytest.raises(EchomeshError):
                control.bind(name)
    assert_served(root, echo, "good")


def test_random_commands_are_each_answered_once_if_they_have_a_correlation(root: Path, echo: ForkServerProcess) -> None:
    chance = random.Random(8)
    foreign = ForeignController(root / "echo" / "control")
    before = files_in(root)
    receiver = ForeignReceiver(foreign.memory, RESPONSES_AT, 1 << 16)
    expected: list[bytes] = []
    answers: list[bytes] = []
    for number in range(count(2000, 50_000)):
        code = chance.choice([*range(0x24), 0x40000001, chance.randrange(1 << 31)])
        body = struct.pack("<q", number) + chance.randbytes(chance.choice([0, 1, 8, 17, 40]))
        body = body[: chance.choice([4, 8, 100])]
        while not foreign.ring.write(code, body):
            time.sleep(0.001)
        if len(body) >= 8:
            expected.append(body[:8])
        if number % 100 == 0:
            answers += drain(receiver)
            assert echo.is_alive()
    deadline = time.monotonic() + PATIENCE_S
    while len(answers) < len(expected) and time.monotonic() < deadline:
        answers += drain(receiver)
    assert answers == expected
    new = set(files_in(root)) - set(before)
    assert all(path.startswith("echo/streams/") and path.count("/") == 2 for path in new), new
    assert_served(root, echo, "good")


def drain(receiver: ForeignReceiver) -> list[bytes]:
    found = []
    while (answer := receiver.receive()) is not None:
        found.append(answer[1][:8])
    return found


def test_random_frames_are_survived(root: Path, echo: ForkServerProcess) -> None:
    chance = random.Random(9)
    java = ForeignPeer(root, "java", 1 << 14)
    inbound = java.capture("echo")
    with controller(root) as control:
        control.capture("java")
        control.route("java")
        reference = control.bind("java")
        control.prepare("java", 7)
        outbound = java.route("echo")
        for number in range(count(5000, 200_000)):
            stream = chance.choice([0, 1, 2, 3, 4, 5, 6, -1, chance.randrange(-(1 << 63), 1 << 63)])
            kind = chance.choice([0, 1, 1, 2, 2, 2, 3, 4, -7, chance.randrange(1 << 31)])
            value = chance.choice([reference, reference, 0, 1, 3, 5])
            payload = chance.choice([struct.pack("<q", value)] * 3 + [b"", chance.randbytes(chance.randrange(60))])
            body = struct.pack("<q", stream) + payload
            while not outbound.write(kind, body if chance.random() > 0.02 else body[:5]):
                inbound.read()
            if number % 50 == 0:
                inbound.read()
            if number % 1000 == 0:
                control.connect(1)
        while outbound.head < outbound.tail:
            inbound.read()
        assert_served(root, echo, "good")
        assert "damaged rings" not in control.counters()
