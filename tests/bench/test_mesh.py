"""Part `mesh`, in small: all systems do what is counted, each delivered event is checked, and no time is judged."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from bench import mesh
from bench import mesh_trials as trials
from bench.harness.numbered import END, InOrder, encoded
from bench.harness.pairs import MeasurementFailed
from bench.harness.rounds import Patience
from bench.harness.servers import ServerProgram, cpu_seconds
from bench.mesh_trials import Publishing, Subscribing, System
from bench.peers.installed import find

SECONDS = 0.05
WINDOW = 16

REDIS = pytest.mark.skipif(find("redis-server") is None, reason="no redis-server here")
NATS = pytest.mark.skipif(find("nats-server") is None, reason="no nats-server here")
NATS_PY = pytest.mark.skipif(importlib.util.find_spec("nats") is None, reason="no nats-py here")

REDIS_PY = pytest.mark.skipif(importlib.util.find_spec("redis") is None, reason="no redis-py here")

BOTH = [pytest.param(trials.OURS, id="ours"), pytest.param(trials.REDIS_EVERYSEC, id="redis", marks=REDIS)]


def test_events_are_checked_one_by_one() -> None:
    make, order = encoded(200), InOrder(200)
    assert [order.check(make(number)) for number in (0, 1, 2, END)] == [False, False, False, True]
    assert order.count == 3


@pytest.mark.parametrize("wrong", [encoded(200)(0), encoded(200)(2), encoded(201)(1), b""])
def test_an_event_that_is_lost_repeated_or_another_one_is_found(wrong: bytes) -> None:
    order = InOrder(200)
    order.check(encoded(200)(0))
    with pytest.raises(MeasurementFailed, match="not event 1"):
        order.check(wrong)


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(trials.OURS, id="ours"),
        pytest.param(trials.REDIS_ALWAYS, id="redis always", marks=REDIS),
        pytest.param(trials.REDIS_EVERYSEC, id="redis everysec", marks=REDIS),
        pytest.param(trials.REDIS_PY_EVERYSEC, id="redis-py", marks=[REDIS, REDIS_PY]),
        pytest.param(trials.JETSTREAM, id="nats", marks=NATS),
        pytest.param(trials.JETSTREAM_PY, id="nats-py", marks=[NATS, NATS_PY]),
    ],
)
def test_publishes_in_flight_are_answered(system: Publishing, shm_dir: Path) -> None:
    assert trials.acknowledged(str(shm_dir), system, SECONDS, 200, WINDOW) > 0


@pytest.mark.parametrize(
    "system", [*BOTH, pytest.param(trials.REDIS_PY_EVERYSEC, id="redis-py", marks=[REDIS, REDIS_PY])]
)
def test_each_subscriber_gets_each_event(system: Subscribing, shm_dir: Path) -> None:
    assert trials.delivered(str(shm_dir), system, SECONDS, 1024, WINDOW, 2) > 0


@pytest.mark.parametrize("system", BOTH)
def test_the_way_of_each_event_is_timed(system: System, shm_dir: Path) -> None:
    half, most = trials.latency(str(shm_dir), system, SECONDS, 200, 1000)
    assert 0 < half <= most


def test_events_are_followed_over_a_bridge(shm_dir: Path) -> None:
    rate, cpu_us = trials.bridged(str(shm_dir), SECONDS, 200, WINDOW)
    assert rate > 0
    assert cpu_us >= 0


def test_events_into_one_server_are_all_in_its_log(shm_dir: Path) -> None:
    rate, cpu_us = trials.alone(str(shm_dir), SECONDS, 200, WINDOW)
    assert rate > 0
    assert cpu_us >= 0


def test_clients_whose_connections_break_come_back(shm_dir: Path) -> None:
    assert trials.reconnected(str(shm_dir), 20, 2, 2) > 0


def test_a_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MeasurementFailed, match="sh did not start: out of luck"):
        ServerProgram(["/bin/sh", "-c", "echo out of luck"], 1, tmp_path / "log")


def test_processor_time_is_that_of_the_process() -> None:
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) == before:
        sum(range(100_000))
    used = os.times()
    assert cpu_seconds(os.getpid()) == pytest.approx(used.user + used.system, abs=0.1)


def test_both_sizes_and_all_targets_have_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("acknowledged", "delivered", "reconnected"):
        monkeypatch.setattr(trials, name, lambda *arguments: 1.0)
    for name in ("latency", "alone", "bridged"):
        monkeypatch.setattr(trials, name, lambda *arguments: (1.0, 2.0))
    plan = mesh.Plan(quick=True)
    plan.patience = Patience(0)
    rows = mesh.measured(plan)
    assert [row.ratio for row in rows].count(None) == 0
    assert sum(row.target is not None for row in rows) == 19
    assert all(any(size in row.case for row in rows) for size in mesh.SIZES.values())
