"""Kill -9 of nuklei, controllers and peers at random points."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from echomesh.nukleus import SMALL, Directory, Echo, Nukleus
from tests.nukleus import workers
from tests.nukleus.helpers import Recorder, connect, controller, echo_in, files_in, join_echo, step_until
from tests.support.counts import count
from tests.support.processes import kill, process, spawn, until

pytestmark = pytest.mark.fault


def assert_served(root: Path, name: str = "good") -> None:
    """A client that does everything right gets everything."""
    handler = Recorder()
    client = Nukleus(name, handler, directory=root, capacities=SMALL, stream_capacity=1 << 14)
    with client, controller(root) as control:
        connect(client, join_echo(client, control))
        step_until(client, lambda: handler.streams)
        for number in range(100):
            while not handler.streams[0].send(bytes([number])):
                client.step(0.01)
        handler.streams[0].end()
        step_until(client, lambda: handler.saw("end"))
        assert handler.payloads == [bytes([number]) for number in range(100)]
        control.unroute(name)
        control.uncapture(name)


@pytest.mark.timeout(900)
def test_start_kill_cycles_leave_no_file_behind(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    chance = random.Random(1)
    for cycle in range(count(30, 1000)):
        names = [f"n{cycle % 3}", f"m{cycle % 2}"]
        for process_ in [spawn(workers.echo, str(root), name) for name in names]:
            time.sleep(chance.random() * 0.02)
            kill(process_)
        alive = [place.name for place in Directory(root).places() if place.owner_pid() is not None]
        assert alive == []
    with Nukleus("last", Echo(), directory=root, capacities=SMALL):
        assert sorted({path.split("/")[0] for path in files_in(root)}) == [".lock", "last"]
    assert files_in(shm_dir) == []


@pytest.mark.timeout(900)
def test_controllers_killed_at_random_points_stop_nobody_else(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    chance = random.Random(2)
    with echo_in(root) as echo, controller(root) as control:
        for cycle in range(count(15, 200)):
            busy = [spawn(workers.command_for_ever, str(root), f"c{cycle}-{n}") for n in range(2)]
            time.sleep(0.01 + chance.random() * 0.03)
            for each in busy:
                kill(each)
            control.capture(f"mine{cycle}")
            control.uncapture(f"mine{cycle}")
        assert echo.counters["commands"] > 0
        assert "damaged rings" not in echo.counters


@pytest.mark.timeout(900)
def test_peers_killed_at_random_points_are_given_up_and_can_come_back(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    chance = random.Random(3)
    with echo_in(root) as echo:
        for _ in range(count(12, 200)):
            opened = echo.counters.get("streams opened", 0)
            with process(workers.stream_for_ever, str(root), "client") as client:
                until(lambda: echo.counters.get("streams opened", 0) > opened or not client.is_alive())  # noqa: B023
                assert client.is_alive()
                time.sleep(chance.random() * 0.03)
                kill(client)
        until(lambda: echo.streams.open == 0)
        assert "damaged rings" not in echo.counters
        assert_served(root)


@pytest.mark.timeout(900)
def test_a_nukleus_killed_at_random_points_under_live_peers_can_be_used_again(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    chance = random.Random(4)
    for _ in range(count(8, 100)):
        with process(workers.echo, str(root)) as echo, process(workers.stream_for_ever, str(root), "client"):
            control = controller(root)
            until(lambda: control.counters().get("frames read", 0) > 10)  # noqa: B023
            time.sleep(chance.random() * 0.02)
            kill(echo)
            with process(workers.echo, str(root)):
                controller(root).close()
                assert_served(root)
            control.close()
    with Nukleus("last", Echo(), directory=root, capacities=SMALL):
        pass
    assert files_in(shm_dir) == []


@pytest.mark.timeout(900)
def test_of_many_that_start_at_once_exactly_one_gets_each_name(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    for round_ in range(count(3, 50)):
        go = shm_dir / f"go{round_}"
        names = ["same"] * 4 + ["other"] * 3 + ["own1", "own2"]
        told = [shm_dir / f"told{round_}-{n}" for n in range(len(names))]
        # Some dead ones are there for all of them to clean.
        with process(workers.echo, str(root), "dead") as dead:
            controller(root, "dead").close()
            kill(dead)
        started = [
            spawn(workers.start_and_tell, str(root), name, str(go), str(path))
            for name, path in zip(names, told, strict=True)
        ]
        time.sleep(0.1)
        go.write_text("now")
        until(lambda: all(path.exists() for path in told), timeout_s=60)  # noqa: B023
        results = [(name, path.read_text()) for name, path in zip(names, told, strict=True)]
        for name in set(names):
            outcomes = sorted(outcome for each, outcome in results if each == name)
            assert outcomes == ["started"] + ["taken"] * (names.count(name) - 1)
        assert [place.name for place in Directory(root).places()] == sorted(set(names))
        for each in started:
            kill(each)
