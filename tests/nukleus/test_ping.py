"""The ping client as a library."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomesh.errors import MessageTooLarge, NukleusGone
from echomesh.nukleus import Echo, Nukleus
from echomesh.nukleus.ping import PingSession, payloads, ping


@pytest.fixture
def root(shm_dir: Path) -> Path:
    return shm_dir / "mesh"


@pytest.fixture
def echo(root: Path) -> Iterator[Nukleus]:
    with Nukleus("echo", Echo(), directory=root) as nukleus:
        thread = threading.Thread(target=nukleus.run)
        thread.start()
        yield nukleus
        nukleus.stop()
        thread.join()


def test_every_payload_comes_back(echo: Nukleus, root: Path) -> None:
    trips = ping(directory=root, count=100, size=1000)
    assert (trips.sent, trips.received, trips.times.count, trips.ok) == (100, 100, 100, True)


def test_one_session_measures_many_times(echo: Nukleus, root: Path) -> None:
    with PingSession(directory=root) as session:
        assert [session.measure(count=20, size=size).received for size in (0, 1, 100, session.largest)] == [20] * 4
        assert session.measure(seconds=0.05).ok
        with pytest.raises(MessageTooLarge):
            session.measure(size=session.largest + 1)


def test_a_session_that_is_closed_leaves_nothing(echo: Nukleus, root: Path) -> None:
    with PingSession(directory=root) as session:
        session.measure(count=1)
        assert {place.name for place in echo.directory.places()} == {"echo", "ping"}
    assert [place.name for place in echo.directory.places()] == ["echo"]
    assert list(echo.place.streams.iterdir()) == []


def test_sessions_of_one_process_have_names_of_their_own(echo: Nukleus, root: Path) -> None:
    with PingSession(directory=root) as one, PingSession(directory=root) as other:
        assert {one.nukleus.name, other.nukleus.name} == {"ping", "ping-2"}
        assert one.measure(count=10).ok
        assert other.measure(count=10).ok


def test_a_session_goes_on_with_an_echo_that_came_back(root: Path) -> None:
    def run() -> tuple[Nukleus, threading.Thread]:
        nukleus = Nukleus("echo", Echo(), directory=root)
        thread = threading.Thread(target=nukleus.run)
        thread.start()
        return nukleus, thread

    def stop(nukleus: Nukleus, thread: threading.Thread) -> None:
        nukleus.stop()
        thread.join()
        nukleus.close()

    first = run()
    with PingSession(directory=root) as session:
        assert session.measure(count=10).ok
        stop(*first)
        lost = session.measure(count=10)
        assert (lost.reset, lost.ok, session.open) == (True, False, False)
        second = run()
        session.connect()
        assert session.measure(count=10).ok
    stop(*second)
    assert not root.exists()


def test_without_an_echo_no_file_is_made(root: Path) -> None:
    with pytest.raises(NukleusGone):
        ping(directory=root)
    assert not root.exists()


def test_stop_ends_a_measurement(echo: Nukleus, root: Path) -> None:
    with PingSession(directory=root) as session:
        threading.Timer(0.1, session.stop).start()
        trips = session.measure()
    assert (trips.interrupted, trips.ok) == (True, True)


@pytest.mark.parametrize("size", [0, 1, 8, 64, 100_000])
def test_payloads_have_their_size_and_neighbours_differ(size: int) -> None:
    some = list(itertools.islice(payloads(size), 20))
    assert {len(payload) for payload in some} == {size}
    if size >= 8:
        assert all(one != other for one, other in itertools.pairwise(some))
