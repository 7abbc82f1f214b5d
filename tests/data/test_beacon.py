"""The beacon, with a clock of the test's own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from echomesh.data import wire
from echomesh.data.beacon import Beacon
from echomesh.data.messages import VERSION, Hello

ME = Hello(4000, VERSION, "default", b"m" * 16, 10)
OTHER = Hello(4001, VERSION, "default", b"o" * 16, 20)


def make(now: float = 100.0) -> tuple[Beacon, Counter[str]]:
    counts: Counter[str] = Counter()

    def count(label: str) -> None:
        counts[label] += 1

    return Beacon(ME, 1.0, now, count), counts


def test_the_first_one_goes_out_at_once_and_then_one_each_interval() -> None:
    beacon, _ = make()
    sent = [now for now in (100.0, 100.5, 101.0, 101.9, 102.0) if beacon.send(now) is not None]
    assert sent == [100.0, 101.0, 102.0]


def test_one_that_slept_sends_one_and_not_all_that_it_missed() -> None:
    beacon, _ = make()
    beacon.send(100.0)
    assert beacon.send(160.0) is not None
    assert beacon.send(160.1) is None
    assert beacon.send(160.5) is not None


def test_a_beacon_is_heard_by_another_participant() -> None:
    beacon, counts = make()
    assert beacon.heard(wire.encode_beacon(OTHER)) == OTHER
    assert not counts


def test_ones_own_beacon_is_not_heard() -> None:
    beacon, counts = make()
    datagram = beacon.send(100.0)
    assert datagram is not None
    assert beacon.heard(datagram) is None
    assert not counts


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"version": VERSION + 1}, "beacons of other versions"),
        ({"domain": "lab"}, "beacons of other domains"),
        ({"port": 0}, "bad beacons"),
    ],
)
def test_others_are_counted_and_left_alone(change: dict[str, Any], label: str) -> None:
    beacon, counts = make()
    assert beacon.heard(wire.encode_beacon(msgspec.structs.replace(OTHER, **change))) is None
    assert counts == {label: 1}


def test_noise_is_counted_and_left_alone() -> None:
    beacon, counts = make()
    for noise in (b"", b"\xc1", b"x" * 600, wire.encode_beacon(OTHER)[:-1]):
        assert beacon.heard(noise) is None
    assert counts == {"bad beacons": 4}
