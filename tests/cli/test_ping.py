"""`echomesh ping`."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from echomesh.cli.ping import rows
from echomesh.nukleus import Echo, Handler, Nukleus, Stream
from echomesh.nukleus.histogram import Histogram
from tests.cli.conftest import PATIENCE_S, Mesh


@contextlib.contextmanager
def nukleus(mesh: Mesh, handler: Handler) -> Iterator[Nukleus]:
    """A nukleus named echo in this process, whatever it does."""
    with Nukleus("echo", handler, directory=mesh.root) as made:
        thread = threading.Thread(target=made.run)
        thread.start()
        try:
            yield made
        finally:
            made.stop()
            thread.join()


class Liar(Echo):
    """Changes one byte of the third payload."""

    def __init__(self) -> None:
        self.count = 0

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        self.count += 1
        answer = bytearray(payload)
        if self.count == 3:
            answer[-1] ^= 1
        stream.send(answer)


class Miser(Echo):
    """Keeps everything."""

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        pass


class Deaf(Echo):
    """Accepts no stream."""

    def on_begin(self, stream: Stream) -> None:
        pass


def test_it_shows_percentiles_a_histogram_and_the_rate(mesh: Mesh) -> None:
    with mesh.echo():
        result = mesh.run("ping", "--count", "500")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("500 round trips of 64 B through echo in ")
    assert result.stdout.splitlines()[2].split() == ["min", "p50", "p90", "p99", "p99.9", "max"]
    assert "█" in result.stdout
    assert result.stdout.endswith("every byte came back as it was sent.\n")


def test_json_holds_every_figure(mesh: Mesh) -> None:
    with mesh.echo("mirror"):
        found = mesh.json("ping", "mirror", "--count", "300", "--size", "1000", "--json")
    assert found["echo"] == "mirror"
    assert found["directory"] == str(mesh.root)
    assert (found["sent"], found["received"], found["lost"], found["wrong"]) == (300, 300, 0, 0)
    assert (found["ok"], found["reset"], found["interrupted"], found["size"]) == (True, False, False, 1000)
    figures = list(found["round_trip_us"])
    assert figures == ["min", "mean", "p50", "p90", "p99", "p99.9", "max"]
    ordered = [found["round_trip_us"][name] for name in figures if name != "mean"]
    assert ordered == sorted(ordered)
    assert sum(bucket["count"] for bucket in found["histogram"]) == 300


def test_any_size_that_fits_makes_the_trip(mesh: Mesh) -> None:
    with mesh.echo():
        for size in (0, 1, 7, 4096, 131064):
            found = mesh.json("ping", "--count", "50", "--size", str(size), "--json")
            assert (found["size"], found["received"], found["ok"]) == (size, 50, True)


def test_a_size_that_does_not_fit_is_a_usage_error_that_tells_the_limit(mesh: Mesh) -> None:
    with mesh.echo() as echo:
        result = mesh.run("ping", "--size", "131065")
        assert result.returncode == 2
        assert "131064" in result.stderr
        mesh.stop(echo)
    assert not mesh.root.exists()


@pytest.mark.parametrize("wait", ["spin", "balanced", "sleep"])
def test_a_rate_sends_all_of_them(mesh: Mesh, wait: str) -> None:
    with mesh.echo():
        found = mesh.json("ping", "--count", "300", "--rate", "2000", "--wait", wait, "--json")
    assert (found["received"], found["ok"]) == (300, True)


def test_a_rate_that_fills_the_rings_loses_nothing(mesh: Mesh) -> None:
    with mesh.echo():
        found = mesh.json("ping", "--count", "500", "--size", "60000", "--rate", "1000000", "--json")
    assert (found["received"], found["ok"]) == (500, True)


def test_without_an_echo_it_says_what_to_do_and_makes_no_file(mesh: Mesh) -> None:
    result = mesh.run("ping", "mirror")
    assert result.returncode == 1
    assert "`echomesh echo --name mirror` in another terminal, or add --start" in result.stderr
    assert not mesh.root.exists()


def test_start_runs_an_echo_for_as_long(mesh: Mesh) -> None:
    found = mesh.json("ping", "--start", "--count", "20", "--json")
    assert (found["received"], found["ok"]) == (20, True)
    assert not mesh.root.exists()


def test_start_beside_a_running_echo_is_refused(mesh: Mesh) -> None:
    with mesh.echo() as echo:
        result = mesh.run("ping", "--start")
        assert result.returncode == 1
        assert f"belongs to process {echo.pid}" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", [[], ["--rate", "100"], ["--start"]])
def test_a_signal_ends_it_with_the_summary_so_far(mesh: Mesh, number: int, options: list[str]) -> None:
    with contextlib.ExitStack() as held:
        if "--start" not in options:
            echo = held.enter_context(mesh.echo())
            held.callback(lambda: mesh.stop(echo))
        ping = held.enter_context(mesh.popen("ping", "--count", "0", "--json", *options))
        while not (mesh.root / "ping" / "streams" / "echo").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        found = json.loads(mesh.stop(ping, number))
        assert ping.returncode == 0
    assert (found["interrupted"], found["ok"]) == (True, True)
    assert found["sent"] == found["received"] > 0
    assert not mesh.root.exists()


def test_a_wrong_byte_is_found_out(mesh: Mesh) -> None:
    with nukleus(mesh, Liar()):
        result = mesh.run("ping", "--count", "10")
        assert result.returncode == 1
        assert "1 answer with wrong bytes" in result.stdout
        found = mesh.json("ping", "--count", "10", "--json")
    assert (found["ok"], found["wrong"], found["lost"]) == (True, 0, 0)


def test_a_payload_that_does_not_come_back_is_lost(mesh: Mesh) -> None:
    with nukleus(mesh, Miser()) as echo:
        result = mesh.run("ping", "--count", "10", "--timeout", "0.2")
        assert result.returncode == 1
        assert "1 payload without an answer" in result.stdout
        assert [place.name for place in echo.directory.places()] == ["echo"]


def test_a_nukleus_that_accepts_no_stream_is_no_echo(mesh: Mesh) -> None:
    with nukleus(mesh, Deaf()):
        result = mesh.run("ping", "--timeout", "0.2")
    assert result.returncode == 1
    assert "no answer from echo to the stream in 0.2 s: is it an echo" in result.stderr


@pytest.mark.fault
def test_an_echo_that_dies_resets_the_stream(mesh: Mesh) -> None:
    with mesh.echo() as echo, mesh.popen("ping", "--count", "0", "--json") as ping:
        while not (mesh.root / "ping" / "streams" / "echo").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        mesh.kill(echo)
        said, _ = ping.communicate(timeout=PATIENCE_S)
    found = json.loads(said)
    assert ping.returncode == 1
    assert (found["reset"], found["ok"], found["wrong"]) == (True, False, 0)
    assert not (mesh.root / "ping").exists()


def test_an_echo_keeps_nothing_of_a_ping_that_is_over(mesh: Mesh) -> None:
    with mesh.echo():
        assert mesh.run("ping", "--count", "10").returncode == 0
        assert [path.name for path in mesh.root.iterdir() if path.is_dir()] == ["echo"]
        assert list((mesh.root / "echo" / "streams").iterdir()) == []


@pytest.mark.fault
def test_a_ping_that_was_killed_does_not_disturb_the_next(mesh: Mesh) -> None:
    with mesh.echo():
        for _ in range(3):
            with mesh.popen("ping", "--count", "0", "--rate", "100000", "--size", "10000") as ping:
                while not (mesh.root / "ping" / "streams" / "echo").exists():
                    time.sleep(0.01)
                time.sleep(0.2)
                mesh.kill(ping)
        found = mesh.json("ping", "--count", "100", "--json")
        assert (found["received"], found["ok"]) == (100, True)


def test_two_pings_share_an_echo(mesh: Mesh) -> None:
    with mesh.echo():
        both = [mesh.popen("ping", "--count", "2000", "--json") for _ in range(2)]
        found = [json.loads(ping.communicate(timeout=PATIENCE_S)[0]) for ping in both]
    assert [(each["received"], each["ok"]) for each in found] == [(2000, True)] * 2


def histogram(*durations_ns: int) -> Histogram:
    made = Histogram()
    for duration in durations_ns:
        made.record(duration)
    return made


@pytest.mark.parametrize(
    "durations",
    [
        [1],
        [0, 0, 0],
        [8_000] * 1000,
        [10**3, 10**6, 10**9],
        list(range(1, 100_000, 7)),
        [2**i for i in range(40)],
    ],
)
def test_the_chart_counts_everything_once_in_few_rows(durations: list[int]) -> None:
    found = rows(histogram(*durations))
    assert sum(number for _, _, number in found) == len(durations)
    assert len(found) <= 24
    edges = [low for low, _, _ in found]
    assert edges == sorted(set(edges))
