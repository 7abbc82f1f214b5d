"""Peers that die, come back, stop, or are foreign: what they left is heard, and they can come back."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import time
from pathlib import Path

import pytest

from echomesh.nukleus import SMALL, Echo, Nukleus
from echomesh.nukleus.commands import Capture, Captured, Refused, Route, Routed, Uncapture, Uncaptured
from echomesh.nukleus.streams import BEGIN, DATA
from tests.nukleus import workers
from tests.nukleus.foreign import ForeignPeer
from tests.nukleus.helpers import Recorder, bind, connect, controller, echo_in, join_echo, link, prepare, step_until
from tests.support.processes import kill, process


class Home:
    """A sink that this thread drives, and a peer that can die without ending this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.handler = Recorder()
        self.sink = self.make("sink", self.handler)
        self.peer_handler = Recorder()
        self.peer = self.make("peer", self.peer_handler)
        link(self.sink, self.peer)
        self.reference = bind(self.sink, "peer")

    def make(self, name: str, handler: Recorder | Echo) -> Nukleus:
        return Nukleus(name, handler, directory=self.root, capacities=SMALL, stream_capacity=1 << 15)

    def leave_frames(self, count: int = 700) -> None:
        """Three streams of numbered frames, more than a turn's worth, of which nothing is read."""
        ring = self.peer._hub._outlets["sink"].ring
        assert ring.write_frame(BEGIN, 1, struct.pack("<q", self.reference))
        for number in range(count):
            if number in (count // 3, count // 2):
                assert ring.write_frame(BEGIN, 3 if number == count // 3 else 5, struct.pack("<q", self.reference))
            assert ring.write_frame(DATA, 1, struct.pack("<q", number))

    def die(self, *, cleaned: bool) -> None:
        """As after kill -9: its lock is free; its files may have been removed by one that started."""
        self.peer._owner.release()
        if cleaned:
            shutil.rmtree(self.peer.place.path)

    def assert_all_heard(self, count: int = 700) -> None:
        assert self.handler.payloads == [struct.pack("<q", number) for number in range(count)]
        assert self.handler.saw("begin") == self.handler.saw("reset") == 3
        first_reset = next(i for i, event in enumerate(self.handler.events) if event[0] == "reset")
        last_data = max(i for i, event in enumerate(self.handler.events) if event[0] == "data")
        assert last_data < first_reset, "all that was published is heard before anything is given up"


@pytest.fixture
def home(shm_dir: Path) -> Home:
    return Home(shm_dir / "mesh")


@pytest.mark.parametrize("cleaned", [False, True])
def test_what_a_dead_peer_published_is_heard_and_then_its_streams_are_reset(home: Home, cleaned: bool) -> None:
    home.leave_frames()
    home.die(cleaned=cleaned)
    step_until(home.sink, lambda: home.handler.saw("reset") == 3)
    home.assert_all_heard()
    assert home.sink.counters["peers lost"] == 1
    assert home.sink.streams.open == 0


def restart(home: Home) -> tuple[Nukleus, Recorder]:
    handler = Recorder()
    peer = home.make("peer", handler)
    peer.capture("sink")
    return peer, handler


@pytest.mark.parametrize("ticks_between", [0, 1])
def test_a_restarted_peer_streams_again_and_meets_nothing_of_its_predecessor(home: Home, ticks_between: int) -> None:
    home.leave_frames()
    home.die(cleaned=False)
    peer, handler = restart(home)
    if ticks_between:
        time.sleep(0.3)
        home.sink.work()
    assert home.sink.do(Route(1, "peer")) == Routed(1)
    home.assert_all_heard()
    peer.route("sink")
    connect(peer, prepare(peer, "sink", bind(home.sink, "peer")))
    step_until(home.sink, lambda: home.handler.saw("begin") == 4)
    fresh = home.handler.streams[3]
    fresh.reply()
    step_until(peer, lambda: handler.saw("begin"))
    assert handler.streams[0].send(b"mine")
    step_until(home.sink, lambda: home.handler.payloads[-1] == b"mine")
    assert fresh.send(b"yours")
    step_until(peer, lambda: handler.payloads == [b"yours"])
    time.sleep(0.3)
    for _ in range(3):
        home.sink.work()
        peer.work()
    assert fresh.alive
    assert handler.saw("reset") == 0
    assert home.handler.saw("reset") == 3
    assert home.sink.streams.open == peer.streams.open == 1


def test_a_restarted_peer_is_still_captured(home: Home) -> None:
    home.die(cleaned=True)
    _, _ = restart(home)
    assert home.sink.do(Capture(1, "peer")) == Refused(1), "as the table says: captured already"
    assert home.sink.do(Uncapture(2, "peer")) == Uncaptured(2)
    assert home.sink.do(Capture(3, "peer")) == Captured(3)
    assert home.sink.do(Route(4, "peer")) == Routed(4)


def test_a_route_to_one_that_lives_is_refused_until_it_is_another(home: Home) -> None:
    assert home.sink.do(Route(1, "peer")) == Refused(1)
    home.die(cleaned=True)
    assert home.sink.do(Route(1, "peer")) == Refused(1), "there is nobody"
    peer, _ = restart(home)
    assert home.sink.do(Route(1, "peer")) == Routed(1)
    assert home.sink.do(Route(1, "peer")) == Refused(1)
    peer.close()


def test_a_nukleus_that_restarts_under_a_live_peer_is_noticed_and_linked_again(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    handler = Recorder()
    with Nukleus("client", handler, directory=root, capacities=SMALL, stream_capacity=1 << 14) as client:
        for round_ in range(3):
            with process(workers.echo, str(root)) as echo:
                control = controller(root)
                connect(client, join_echo(client, control))
                step_until(client, lambda: handler.saw("begin") == round_ + 1)  # noqa: B023
                handler.streams[-1].send(b"x" * round_)
                step_until(client, lambda: len(handler.payloads) == round_ + 1)  # noqa: B023
                kill(echo)
                control.close()
            if round_ % 2:  # with or without a tick in between
                step_until(client, lambda: handler.saw("reset") == round_ + 1)  # noqa: B023
        step_until(client, lambda: handler.saw("reset") == 3)
        assert client.streams.open == 0
        assert handler.payloads == [b"", b"x", b"xx"]


def test_a_stopped_peer_is_not_dead(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    with echo_in(root) as echo, process(workers.stream_for_ever, str(root), "client") as client:
        while not echo.streams.open or echo.counters["frames read"] < 100:
            time.sleep(0.005)
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        time.sleep(0.8)
        assert echo.streams.open == 1
        assert "peers lost" not in echo.counters
        os.kill(client.pid, signal.SIGCONT)
        before = echo.counters["frames read"]
        while echo.counters["frames read"] < before + 1000:
            time.sleep(0.005)


def test_a_foreign_peer_is_never_declared_dead_and_its_files_stay(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    with echo_in(root) as echo, controller(root) as control:
        java = ForeignPeer(root, "java")
        inbound = java.capture("echo")
        control.capture("java")
        control.route("java")
        reference = control.bind("java")
        outbound = java.route("echo")
        outbound.write(BEGIN, struct.pack("<qq", 1, reference))
        inbound.await_record()
        time.sleep(0.8)
        assert echo.streams.open == 1
    assert (root / "java" / "streams" / "echo").exists()


def test_a_dead_claim_in_a_stream_is_skipped_once_its_owner_is_gone(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    handler = Recorder()
    echo = Nukleus("echo", handler, directory=root, capacities=SMALL, stream_capacity=1 << 16)
    with echo, process(workers.claim_in_stream_and_die, str(root), "dying", 300) as dying:
        step_until(echo, lambda: handler.saw("reset"))
        dying.join(10)
        assert handler.payloads == [struct.pack("<q", number) for number in range(300)]
        step_until(echo, lambda: not echo._hub.inlets["dying"].ring.blocked())
        assert echo.counters["dead claims skipped"] == 1
