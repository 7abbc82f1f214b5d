"""A nukleus: its life, its loop, its streams with others of ours."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from pathlib import Path

import pytest

from echomesh.errors import BadControlFile, BadName, ClosedError, OwnerAlive, StorageError
from echomesh.nukleus import SMALL, Capacities, Directory, Echo, Nukleus, Stream
from echomesh.nukleus.commands import Capture, Captured, Connect, Refused, Uncapture, Unroute
from tests.nukleus.helpers import (
    Recorder,
    bind,
    connect,
    controller,
    echo_in,
    files_in,
    join_echo,
    link,
    prepare,
    running,
    step_until,
)
from tests.support.processes import PATIENCE_S, until


def small(name: str, handler: Recorder | Echo, root: Path, capacity: int = 1 << 14) -> Nukleus:
    return Nukleus(name, handler, directory=root, capacities=SMALL, stream_capacity=capacity)


def test_it_makes_its_files_and_takes_them_away(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    with Nukleus("echo", Echo(), directory=root):
        assert files_in(root) == [
            ".lock",
            "echo",
            "echo/control",
            "echo/doorbell",
            "echo/doorbell.fifo",
            "echo/owner",
            "echo/streams",
        ]
        assert (root / "echo" / "control").read_bytes()[:20].hex() == "00000001" + "00100000" * 4
        assert (root / "echo" / "control").stat().st_size == 64 + (4 << 20) + 768 + 128
    assert not root.exists()


def test_a_capture_makes_a_ring_of_1_mib_by_default(shm_dir: Path) -> None:
    with Nukleus("echo", Echo(), directory=shm_dir / "mesh") as echo:
        echo.capture("client")
        assert (shm_dir / "mesh/echo/streams/client").stat().st_size == (1 << 20) + 768


def test_a_name_is_had_once_at_a_time(shm_dir: Path) -> None:
    with small("echo", Echo(), shm_dir / "mesh"):
        with pytest.raises(OwnerAlive):
            small("echo", Echo(), shm_dir / "mesh")
        with small("other", Echo(), shm_dir / "mesh"):
            pass
    with small("echo", Echo(), shm_dir / "mesh"):
        pass


@pytest.mark.parametrize("name", ["", "../x", ".x", "a/b"])
def test_a_bad_name_touches_nothing(shm_dir: Path, name: str) -> None:
    with pytest.raises(BadName):
        Nukleus(name, Echo(), directory=shm_dir / "mesh")
    assert files_in(shm_dir) == []


def test_one_that_can_not_be_made_leaves_nothing(shm_dir: Path) -> None:
    with pytest.raises(BadControlFile):
        Nukleus("echo", Echo(), directory=shm_dir / "mesh", capacities=Capacities(1000))
    assert files_in(shm_dir) == []
    (shm_dir / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        Nukleus("echo", Echo(), directory=shm_dir / "file" / "mesh")


def test_it_runs_without_room_for_counters(shm_dir: Path) -> None:
    sizes = Capacities(1 << 12, 1 << 12, 0, 0)
    with running(Nukleus("echo", Echo(), directory=shm_dir / "mesh", capacities=sizes)) as echo:
        with controller(shm_dir / "mesh") as control:
            control.capture("client")
            assert control.counters() == {}
        assert echo.counters == {}


def test_closing_twice_is_closing_once_and_a_closed_one_does_nothing(shm_dir: Path) -> None:
    echo = small("echo", Echo(), shm_dir / "mesh")
    echo.close()
    echo.close()
    for use in (echo.work, echo.step, echo.run, lambda: echo.do(Capture(0, "client"))):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        asyncio.run(echo.serve())
    assert not (shm_dir / "mesh").exists()


def test_a_child_of_a_fork_can_not_use_or_remove_its_parents_nukleus(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    echo = small("echo", Echo(), root)
    echo.capture("client")
    before = files_in(root)
    child = os.fork()
    if not child:
        good = True
        for use in (echo.work, echo.step, echo.run, lambda: echo.do(Capture(0, "other"))):
            try:
                use()
                good = False
            except ClosedError:
                pass
        echo.close()
        echo.__exit__(None, None, None)
        good = good and files_in(root) == before
        del echo, use
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert files_in(root) == before
    assert Directory(root).place("echo").owner_pid() == os.getpid()
    assert echo.do(Capture(7, "another")) == Captured(7)
    echo.close()
    assert not root.exists()


def test_two_nuklei_of_ours_stream_both_ways(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    handler = Recorder()
    with small("echo", Echo(), root) as echo, small("client", handler, root) as client:
        link(echo, client)
        ours = prepare(client, "echo", bind(echo, "client"))
        theirs = prepare(echo, "client", bind(client, "echo"))
        connect(client, ours)
        connect(echo, theirs)
        while handler.saw("begin") < 2:
            client.work()
            echo.work()
        answered = next(stream for stream in handler.streams if stream.initiated)
        accepted = next(stream for stream in handler.streams if not stream.initiated)
        accepted.reply()
        for stream in (answered, accepted):
            for payload in (b"a", b"", b"b" * 1000):
                assert stream.send(payload)
            assert stream.end()
        while handler.saw("end") < 2:
            client.work()
            echo.work()
        for stream in (answered, accepted):
            mine = [event[2] for event in handler.events if len(event) == 3 and event[1] == stream.inbound_id]
            assert mine == [b"a", b"", b"b" * 1000]
        assert client.streams.open == echo.streams.open == 0


def test_it_can_talk_to_itself(shm_dir: Path) -> None:
    with small("echo", Echo(), shm_dir / "mesh") as echo:
        echo.capture("echo")
        echo.route("echo")
        connect(echo, prepare(echo, "echo", bind(echo, "echo")))
        for _ in range(10):
            echo.work()
        assert echo.streams.open == 2
        assert echo.do(Unroute(0, "echo")) != Refused(0)
        for _ in range(10):
            echo.work()
        assert echo.streams.open == 0
        assert echo.do(Uncapture(0, "echo")) != Refused(0)


@pytest.mark.parametrize("serve", [False, True])
def test_run_and_serve_echo_alike(shm_dir: Path, serve: bool) -> None:
    root = shm_dir / "mesh"
    handler = Recorder()
    with echo_in(root, serve=serve), small("client", handler, root) as client, controller(root) as control:
        connect(client, join_echo(client, control))
        step_until(client, lambda: handler.streams)
        payloads = [bytes([n % 256]) * (n * 7 % 1500) for n in range(500)]
        for payload in payloads:
            while not handler.streams[0].send(payload):
                client.step(0.01)
        step_until(client, lambda: len(handler.payloads) == 500)
        assert handler.payloads == payloads
        handler.streams[0].end()
        step_until(client, lambda: handler.saw("end"))
        assert control.counters()["streams opened"] == 1


@pytest.mark.parametrize("serve", [False, True])
def test_a_sleeping_nukleus_is_woken_by_ours_without_polling(shm_dir: Path, serve: bool) -> None:
    root = shm_dir / "mesh"
    with echo_in(root, serve=serve), controller(root) as control:
        control.capture("client")
        control.uncapture("client")
        times = []
        for _ in range(20):
            time.sleep(0.01)
            started = time.perf_counter()
            control.capture("client")
            times.append(time.perf_counter() - started)
            control.uncapture("client")
        assert sorted(times)[10] < 0.05, "a tick is 0.25 s"


@pytest.mark.parametrize("serve", [False, True])
def test_an_idle_nukleus_sleeps(shm_dir: Path, serve: bool) -> None:
    root = shm_dir / "mesh"
    measured: dict[str, float] = {}

    def usage() -> tuple[float, float]:
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return used.ru_utime + used.ru_stime, used.ru_nvcsw

    def main() -> None:
        with small("echo", Echo(), root) as echo:
            timer = threading.Timer(1.6, echo.stop)
            marks: list[tuple[float, float]] = []

            plain = echo._hub.check_peers

            def measured_tick() -> None:
                plain()
                marks.append(usage())

            echo._hub.check_peers = measured_tick  # type: ignore[method-assign]  # where the thread itself can look
            timer.start()
            if serve:
                asyncio.run(echo.serve())
            else:
                echo.run()
            timer.join()
            # The first ticks are those before the controller below has marked the command ring.
            (cpu0, switches0), (cpu1, switches1) = marks[-4], marks[-1]
            measured.update(cpu=cpu1 - cpu0, switches=switches1 - switches0, ticks=len(marks))

    thread = threading.Thread(target=main)
    thread.start()
    control = controller(root)
    control.capture("echo")  # with no writer but ourselves, so that nothing is polled but what is marked
    control.route("echo")
    thread.join(PATIENCE_S)
    control.close()
    assert 5 <= measured["ticks"] <= 9
    assert measured["switches"] <= 12, f"three ticks of 0.25 s: {measured}"
    assert measured["cpu"] < 0.05, measured


def test_stop_ends_run_at_once_from_another_thread(shm_dir: Path) -> None:
    with small("echo", Echo(), shm_dir / "mesh") as echo:
        thread = threading.Thread(target=echo.run)
        thread.start()
        with controller(shm_dir / "mesh") as control:
            control.capture("x")
        started = time.perf_counter()
        echo.stop()
        thread.join(PATIENCE_S)
        assert time.perf_counter() - started < 5
        assert not thread.is_alive()


def test_connect_to_a_full_ring_is_refused_and_leaves_no_stream(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    with small("echo", Echo(), root) as echo, small("client", Recorder(), root, 1 << 10) as client:
        link(echo, client)
        reference = prepare(echo, "client", bind(client, "echo"))
        opened = 0
        while echo.do(Connect(0, reference)) != Refused(0):
            opened += 1
        assert echo.streams.open == opened
        client.work()
        assert echo.do(Connect(0, reference)) != Refused(0)


def test_connect_without_capture_or_route_is_refused(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    with small("echo", Echo(), root) as echo, small("client", Recorder(), root) as client:
        link(echo, client)
        reference = prepare(echo, "client", bind(client, "echo"))
        echo.do(Uncapture(0, "client"))
        assert echo.do(Connect(5, reference)) == Refused(5)
        assert echo.do(Capture(0, "client")) == Captured(0)
        connect(echo, reference)
        echo.do(Unroute(0, "client"))
        assert echo.do(Connect(5, reference)) == Refused(5)


def test_closing_resets_the_streams_of_peers(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    handler = Recorder()
    with small("client", handler, root) as client:
        with small("echo", Echo(), root) as echo:
            link(echo, client)
            connect(client, prepare(client, "echo", bind(echo, "client")))
            echo.work()
            client.work()
            assert handler.saw("begin") == 1
        step_until(client, lambda: handler.saw("reset"))
        assert client.streams.open == 0


class Keeping(Recorder):
    """Uncaptures the very source whose frame it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.nukleus: Nukleus | None = None

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        super().on_data(stream, payload)
        assert self.nukleus is not None
        self.nukleus.do(Uncapture(0, stream.peer))
        self.nukleus.do(Unroute(0, stream.peer))
        super().on_data(stream, payload)


def test_a_handler_may_uncapture_the_source_it_is_reading(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    handler = Keeping()
    with small("sink", handler, root) as sink, small("client", Recorder(), root) as client:
        handler.nukleus = sink
        link(sink, client)
        connect(client, prepare(client, "sink", bind(sink, "client")))
        stream = client.streams.peer("sink")._outbound[next(iter(client.streams.peer("sink")._outbound))]
        for _ in range(5):
            stream.send(b"x" * 100)
        for _ in range(5):
            sink.work()
        assert handler.payloads[:2] == [b"x" * 100] * 2
        assert sink.streams.open == 0


def test_the_heartbeat_goes_on(shm_dir: Path) -> None:
    with echo_in(shm_dir / "mesh") as echo:
        first = echo._control.commands.heartbeat
        until(lambda: echo._control.commands.heartbeat > first + 200)
        assert abs(echo._control.commands.heartbeat - time.time() * 1000) < 5000
