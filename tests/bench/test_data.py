"""The data plane in the harness: every message counts, at one subscriber and at many; no time is judged."""

from __future__ import annotations

import pytest

from bench import data
from bench.harness.bouts import Figures
from bench.harness.fans import measure_fan
from bench.harness.pairs import measure
from bench.harness.peer import Contestant


@pytest.mark.parametrize("ours", [data.SINGLE, data.MANY], ids=lambda one: one.name)
def test_every_message_of_ours_counts(ours: Contestant) -> None:
    measured = measure(ours, "stream", 64, 0, count=64 * 500)
    assert measured.messages == 64 * 500
    assert measured.cpu_us is not None
    assert measured.cpu_us > 0


def test_every_loan_counts() -> None:
    assert measure(data.LOAN, "stream", 1 << 16, 0, count=500).messages == 500


@pytest.mark.parametrize("ours", [data.SPIN, data.LOOP], ids=lambda one: one.name)
def test_every_round_trip_comes_back(ours: Contestant) -> None:
    assert measure(ours, "round trip", 64, 0, count=200).messages > 0


def test_every_receiver_of_a_fan_gets_every_message() -> None:
    assert measure_fan(data.SINGLE, 3, 1 << 16, 0, count=200) > 0


@pytest.mark.parametrize(
    ("package", "peer", "flow"),
    [
        ("iceoryx2", data.ICEORYX_LOAN, "stream"),
        ("zmq", data.ZEROMQ_LOOP, "round trip"),
    ],
)
def test_a_peer_delivers_every_message_too(package: str, peer: Contestant, flow: str) -> None:
    pytest.importorskip(package)
    assert measure(peer, "stream" if flow == "stream" else "round trip", 1 << 16, 0, count=100).messages > 0


def test_each_figure_has_its_row() -> None:
    figures = Figures(rounds=[dict.fromkeys(data.figures(), 2.0)])
    rows = data.rows(figures)
    assert len(rows) == 11
    assert all(row.repetitions == 1 and row.ratio == 1.0 for row in rows)
