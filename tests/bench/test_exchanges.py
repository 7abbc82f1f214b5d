"""Whole measurements, small ones: every message counts, nothing stays behind, and no time is judged."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bench import rings
from bench.harness.pairs import MeasurementFailed, measure
from bench.harness.peer import Contestant
from bench.harness.rounds import Claim, Comparison, Patience, compared

ROOT = Path(__file__).resolve().parents[2]

ENDLESS = """
import signal
import sys

sys.path[:0] = [".", "src"]
from bench import rings
from bench.harness.command import stop_like_ctrl_c
from bench.harness.pairs import measure

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stop_like_ctrl_c()
    measure(rings.RING, "stream", 64, 3600)
"""


def directories() -> set[Path]:
    return set(Path("/dev/shm").glob("echomesh-bench-*"))


@pytest.mark.parametrize("ours", [rings.RING, rings.RING_BATCHES, rings.RING_IN_PLACE], ids=lambda one: one.variant)
def test_a_stream_through_our_ring_counts_every_message(ours: Contestant) -> None:
    # More than the ring holds, so that the writer has to wait for room. A multiple of a batch.
    assert measure(ours, "stream", 64, 0, count=64 * 2000).messages == 64 * 2000


@pytest.mark.parametrize("ours", [rings.RING_SPINNING, rings.RING_SLEEPING], ids=lambda one: one.variant)
def test_every_round_trip_through_our_rings_comes_back(ours: Contestant) -> None:
    assert measure(ours, "round trip", 64, 0, count=500).messages > 0
    assert measure(ours, "paced round trip", 64, 0, count=20).messages > 0


@pytest.mark.parametrize(
    ("package", "peer", "flow"),
    [
        ("zmq", rings.ZEROMQ, "stream"),
        ("zenoh", rings.ZENOH_TCP, "stream"),
        ("zenoh", rings.ZENOH_UNIX, "stream"),
        ("iceoryx2", rings.ICEORYX_POLL, "round trip"),
        ("iceoryx2", rings.ICEORYX_EVENT, "stream"),
        ("socket", rings.UNIX_SOCKET, "stream"),
        ("socket", rings.UNIX_SOCKET, "round trip"),
    ],
)
def test_a_peer_delivers_every_message_too(package: str, peer: Contestant, flow: str) -> None:
    pytest.importorskip(package)
    assert measure(peer, "stream" if flow == "stream" else "round trip", 64, 0, count=500).messages > 0


def test_an_end_that_fails_is_reported_and_leaves_nothing_behind() -> None:
    before = directories()
    with pytest.raises(MeasurementFailed, match="no_such_peer"):
        measure(Contestant("no_such_peer", "", "nobody"), "stream", 64, 0, count=1)
    assert directories() <= before
    assert not multiprocessing.active_children()


def test_a_comparison_goes_on_without_a_peer_that_fails() -> None:
    missing = Contestant("no_such_peer", "", "nobody")
    comparison = Comparison("stream", 64, (Claim("case", rings.RING, (missing,), target=2.0),))
    (row,) = compared(comparison, 1, 0.05, Patience(0), lambda sentence: None)
    assert (row.repetitions, row.ratio, row.met) == (0, None, False)
    assert "no_such_peer" in row.notes[0]


def test_nothing_stays_behind_after_a_measurement() -> None:
    before = directories()
    measure(rings.RING, "stream", 64, 0, count=64)
    assert directories() <= before
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_run_that_is_stopped_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    before = directories()
    # A shell's background job ignores SIGINT, and children inherit that: the script asks for it again.
    with subprocess.Popen([sys.executable, script], stderr=subprocess.DEVNULL, cwd=ROOT) as harness:
        started = psutil.Process(harness.pid)
        deadline = time.monotonic() + 60
        while len(ends := [p for p in started.children() if "spawn_main" in " ".join(p.cmdline())]) < 2:
            assert time.monotonic() < deadline, "the two ends did not start"
            time.sleep(0.02)
        harness.send_signal(number)
        assert harness.wait(30) != 0
    _, alive = psutil.wait_procs(ends, timeout=10)
    assert not alive
    assert directories() <= before
