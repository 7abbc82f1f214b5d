"""Controllers, for threads and for asyncio: every call, refusals, time-outs, and whose answer it is."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from echomesh.errors import (
    BadControlFile,
    BadFrame,
    BadName,
    ClosedError,
    CommandRefused,
    CommandTimeout,
    EchomeshError,
    NukleusGone,
)
from echomesh.nukleus import SMALL, Capacities, Echo, Nukleus, commands
from echomesh.nukleus.control import ControlFile
from echomesh.nukleus.controller import Controller as AsyncController
from echomesh.nukleus.locks import holder
from echomesh.nukleus.sync import Controller
from tests.nukleus import workers
from tests.nukleus.helpers import Recorder, controller, echo_in
from tests.support.counts import count
from tests.support.processes import PATIENCE_S, kill, process, until


@pytest.fixture
def root(shm_dir: Path) -> Path:
    return shm_dir / "mesh"


@pytest.fixture
def echo(root: Path) -> Iterator[Nukleus]:
    with echo_in(root) as nukleus:
        yield nukleus


@pytest.fixture
def client(echo: Nukleus, root: Path) -> Iterator[Nukleus]:
    """A nukleus beside echo that has captured it, and that nobody runs."""
    with Nukleus("client", Recorder(), directory=root, capacities=SMALL) as nukleus:
        nukleus.capture("echo")
        yield nukleus


def test_every_call_of_the_sync_one(client: Nukleus, root: Path) -> None:
    with Controller("echo", directory=root) as control:
        control.capture("client")
        control.route("client")
        assert control.bind("client") == 2
        assert control.bind("client", 77) == 4
        assert control.prepare("client", 8) == 1
        assert control.connect(1) == 3
        control.unprepare(1)
        control.unbind(2)
        control.unroute("client")
        control.uncapture("client")
        assert control.call(commands.Capture(999, "x")).title == "CAPTURED"
        assert control.counters()["commands"] == 11


def test_every_call_of_the_asyncio_one(client: Nukleus, root: Path) -> None:
    async def main() -> None:
        async with AsyncController("echo", directory=root) as control:
            await control.capture("client")
            await control.route("client")
            assert await control.bind("client") == 2
            assert await control.bind("client", 77) == 4
            assert await control.prepare("client", 8) == 1
            assert await control.connect(1) == 3
            await control.unprepare(1)
            await control.unbind(2)
            await control.unroute("client")
            await control.uncapture("client")
            assert (await control.call(commands.Capture(999, "x"))).title == "CAPTURED"
            assert control.counters()["commands"] == 11
            with pytest.raises(CommandRefused):
                await control.unbind(2)
        with pytest.raises(ClosedError):
            await control.capture("y")

    asyncio.run(main())


def test_the_loop_goes_on_while_a_command_waits(root: Path) -> None:
    async def main() -> None:
        control = AsyncController("echo", directory=root, timeout=0.3)
        turns = 0
        waiting = asyncio.create_task(control.capture("client"))
        while not waiting.done():
            turns += 1
            await asyncio.sleep(0.001)
        assert turns > 20
        with pytest.raises(CommandTimeout):
            await waiting

    with Nukleus("echo", Echo(), directory=root, capacities=SMALL):  # which nobody runs
        asyncio.run(main())


REFUSED: list[tuple[Callable[[Controller], object], str]] = [
    (lambda control: control.uncapture("x"), "UNCAPTURE nukleus='x': it is not captured"),
    (lambda control: control.route("x"), "ROUTE nukleus='x': it is routed already, or has not captured"),
    (lambda control: control.unroute("x"), "UNROUTE nukleus='x': it is not routed"),
    (
        lambda control: control.bind("x", 3),
        "BIND nukleus='x' reference=3: it must be both captured and routed",
    ),
    (lambda control: control.unbind(2), "UNBIND reference=2: that is no bind reference"),
    (lambda control: control.prepare("x", 4), "PREPARE nukleus='x' reference=4: it must be both"),
    (lambda control: control.unprepare(1), "UNPREPARE reference=1: that is no prepare reference"),
    (lambda control: control.connect(1), "CONNECT reference=1: that is no prepare reference"),
]


def test_a_refusal_says_what_was_refused_and_why_that_may_be(echo: Nukleus, root: Path) -> None:
    with Controller("echo", directory=root) as control:
        for call, text in REFUSED:
            with pytest.raises(CommandRefused) as caught:
                call(control)
            assert str(caught.value).startswith(f"echo refused {text}")
            assert caught.value.nukleus == "echo"
        control.capture("x")
        with pytest.raises(CommandRefused, match="captured already"):
            control.capture("x")


def test_a_bad_name_or_number_is_not_sent(echo: Nukleus, root: Path) -> None:
    with Controller("echo", directory=root) as control:
        for name in ("", "../x", "n" * 256):
            with pytest.raises(BadName):
                control.capture(name)
        with pytest.raises(EchomeshError, match="64-bit"):
            control.unbind(1 << 63)
        assert control.counters().get("commands", 0) == 0
        control.capture("fine")
    with pytest.raises(BadName):
        Controller("../echo", directory=root)


def test_no_nukleus_is_told_at_once(root: Path) -> None:
    started = time.monotonic()
    with pytest.raises(NukleusGone, match="start it"):
        Controller("echo", directory=root)
    with pytest.raises(NukleusGone):
        AsyncController("echo", directory=root)
    assert time.monotonic() - started < 2


def test_a_nukleus_that_was_killed_is_told_at_once_and_its_successor_is_found(root: Path) -> None:
    with process(workers.echo, str(root)) as first:
        control = controller(root)
        control.capture("a")
        kill(first)
        started = time.monotonic()
        with pytest.raises(NukleusGone):
            control.capture("b")
        assert time.monotonic() - started < 2
        with pytest.raises(NukleusGone):
            Controller("echo", directory=root)
    with process(workers.echo, str(root)):
        controller(root).close()
        control.capture("a")
        control.close()


def test_a_nukleus_that_dies_while_one_waits_is_told_soon(root: Path) -> None:
    with process(workers.echo, str(root)) as echo:
        control = controller(root)
        control.capture("a")
        assert echo.pid is not None
        os.kill(echo.pid, signal.SIGSTOP)
        threading.Timer(0.2, lambda: kill(echo)).start()
        started = time.monotonic()
        with pytest.raises(NukleusGone):
            control.capture("b")
        assert time.monotonic() - started < 10
        until(lambda: echo._closed, timeout_s=PATIENCE_S)  # type: ignore[attr-defined]  # by the timer


def test_a_stopped_nukleus_is_a_time_out_and_not_gone(root: Path) -> None:
    with process(workers.echo, str(root)) as echo:
        control = controller(root)
        control.capture("a")
        assert echo.pid is not None
        os.kill(echo.pid, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(CommandTimeout, match="stopped") as caught:
            control.capture("b", timeout=0.3)
        assert 0.25 < time.monotonic() - started < 10
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.timeout_s == 0.3
        os.kill(echo.pid, signal.SIGCONT)
        # It was carried out all the same; its late answer is nobody's.
        with pytest.raises(CommandRefused):
            control.capture("b")
        control.capture("c")


def test_a_full_command_ring_of_a_stopped_nukleus_is_a_time_out(root: Path) -> None:
    with Nukleus("echo", Echo(), directory=root, capacities=Capacities(1 << 10, 1 << 10, 1280, 1280)):
        control = Controller("echo", directory=root, timeout=0.01)
        full = []
        for number in range(60):
            with pytest.raises(CommandTimeout) as caught:
                control.capture(f"n{number}")
            full.append("its command ring stays full" in str(caught.value))
        assert not full[0]
        assert full[-1]


def test_a_controller_killed_between_claim_and_publish_does_no_lasting_harm(root: Path) -> None:
    with echo_in(root) as echo:
        for number in range(5):
            with process(workers.claim_and_die, str(root)) as dying:
                dying.join(PATIENCE_S)
            if number % 2:  # healed by the next controller, or by the nukleus itself
                until(lambda: not echo._control.commands.blocked())
            with controller(root) as control:
                control.capture(f"n{number}")


def test_a_controller_that_stops_with_the_lock_is_named(echo: Nukleus, root: Path) -> None:
    with process(workers.lock_and_stay, str(root / "echo" / "control.lock")) as stopped:
        until(lambda: holder(echo.place.command_lock) == stopped.pid)
        with controller(root) as control:
            with pytest.raises(CommandTimeout, match=f"process {stopped.pid}"):
                control.capture("before", timeout=0.2)
            kill(stopped)
            control.capture("after")


def test_threads_that_share_one_get_their_own_answers(echo: Nukleus, root: Path) -> None:
    rounds = count(40, 1000)
    failures: list[BaseException] = []
    with controller(root) as control:

        def work(name: str) -> None:
            try:
                for _ in range(rounds):
                    control.capture(name)
                    with pytest.raises(CommandRefused):
                        control.capture(name)
                    control.uncapture(name)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_processes_at_once_get_their_own_answers(echo: Nukleus, root: Path, shm_dir: Path) -> None:
    rounds = count(40, 1000)
    told = [shm_dir / f"told{n}" for n in range(3)]
    running = [process(workers.command_in_turns, str(root), f"p{n}", rounds, str(told[n])) for n in range(3)]
    with running[0] as first, running[1] as second, running[2] as third:
        for each in (first, second, third):
            each.join(100)
            assert each.exitcode == 0
    assert all(path.read_text() == "done" for path in told)


class FakeNukleus:
    """A foreign nukleus that answers as it is told."""

    def __init__(self, root: Path, name: str = "fake") -> None:
        (root / name).mkdir(parents=True, mode=0o700)
        self.file = ControlFile.create(root / name / "control", Capacities(1 << 10, 1 << 10, 1280, 1280))
        self.transmitter = self.file.transmitter()
        self.stopping = False

    def answer(self, *responses: tuple[int, bytes], times: int = 1) -> threading.Thread:
        """Answers the next command, with its correlation id where a body has dashes."""

        def main() -> None:
            while not (taken := self.file.commands.drain()):
                time.sleep(0.0005)
            for _ in range(times):
                for code, body in responses:
                    self.transmitter.transmit(code, body.replace(b"--------", taken[0][1][:8]))

        thread = threading.Thread(target=main)
        thread.start()
        return thread


def test_an_answer_that_was_overwritten_by_others_is_told(root: Path) -> None:
    fake = FakeNukleus(root)
    with Controller("fake", directory=root, timeout=20.0) as control:
        # The wait is cut short, so that it looks only after it was lapped.
        thread = fake.answer((0x40000001, struct.pack("<q", -1) + bytes(100)), times=40)
        listening = control._control.receiver()
        control._send(control._control, commands.Capture(5, "x"), time.monotonic() + 20, 20.0)
        thread.join()
        with pytest.raises(CommandTimeout, match="overwritten"):
            control._await(control._control, commands.Capture(5, "x"), listening, time.monotonic() + 20, 20.0)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (0x40000001, b"--------" + b"extra"),
        (0x40000011, b"--------"),
        (0x12345678, b"--------"),
        (0x40000002, b"--------"),
        (0x40000011, b"--------" + bytes(8)),
    ],
)
def test_an_answer_that_is_none_is_a_typed_error(root: Path, code: int, body: bytes) -> None:
    fake = FakeNukleus(root)
    with Controller("fake", directory=root, timeout=20.0) as control:
        thread = fake.answer((code, body))
        with pytest.raises(BadFrame):
            control.capture("x")
        thread.join()


def test_a_bind_answered_without_a_reference_is_a_typed_error(root: Path) -> None:
    fake = FakeNukleus(root)
    with Controller("fake", directory=root, timeout=20.0) as control:
        thread = fake.answer((0x40000001, b"--------"))
        with pytest.raises(BadFrame):
            control.bind("x")
        thread.join()


def test_answers_to_others_are_passed_over(root: Path) -> None:
    fake = FakeNukleus(root)
    with Controller("fake", directory=root, timeout=20.0) as control:
        others = [(0x40000000, struct.pack("<q", 4711)), (0x40000000, b"short"), (0x7FFFFFFF, b"")]
        thread = fake.answer(*others, (0x40000001, b"--------"))
        control.capture("x")
        thread.join()


def test_what_is_no_control_file_is_told(root: Path) -> None:
    (root / "fake").mkdir(parents=True)
    with pytest.raises(NukleusGone):
        Controller("fake", directory=root)
    for content in (b"", b"x", os.urandom(5000), struct.pack(">5i", 1, 1024, 1024, 0, 0) + bytes(500)):
        (root / "fake" / "control").write_bytes(content)
        with pytest.raises(BadControlFile):
            Controller("fake", directory=root)
