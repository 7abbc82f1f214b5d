"""Part `log`, in small: what is counted is what was done, nothing stays behind, and no time is judged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import log_loads
from bench.harness.apart import Apart, apart
from bench.harness.bouts import bouts
from bench.harness.numbered import encoded
from bench.harness.pairs import MeasurementFailed
from bench.harness.rounds import Patience
from bench.limits.disk import fdatasyncs, real_disk
from bench.peers import redis_streams
from echomesh.events import Event
from echomesh.log import LogReader

SECONDS = 0.05


def now() -> None:
    """The measurement may begin at once."""


def events(directory: Path, topic: str) -> list[bytes]:
    with LogReader(directory) as log:
        found = log.topic(topic)
        return [event for records in found.follow(0, timeout=0) for event in records.events()]


def test_events_have_the_size_that_was_asked_for_and_ids_of_their_own() -> None:
    for size in (140, 200, 4096, 100_000):
        make = encoded(size)
        assert len(make(7)) == size
        assert Event.decode(make(7)).id == "0" * 15 + "7"
        batches = log_loads.together(size, 3)
        made = [*next(batches), *next(batches)]
        assert {len(event) for event in made} == {size}
        assert [int(Event.decode(event).id, 16) for event in made] == [0, 1, 2, 1 << 16, 1 + (1 << 16), 2 + (1 << 16)]


def test_the_bare_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    assert fdatasyncs(now, str(tmp_path), SECONDS) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_data_are_on_a_disk() -> None:
    assert Path(real_disk()).is_dir()
    assert not real_disk().startswith("/dev/shm")


@pytest.mark.parametrize("topics", [1, 10])
def test_appends_in_flight_are_all_in_the_log(tmp_path: Path, topics: int) -> None:
    assert log_loads.in_flight(now, str(tmp_path), SECONDS, 200, 64, topics) > 0
    found = [events(tmp_path, f"topic/{i}")[1:] for i in range(topics)]
    ids = sorted(Event.decode(event).id for each in found for event in each)
    assert len(ids) >= 64
    assert ids == [f"{turn:012x}{number:04x}" for turn in range(len(ids) // 32) for number in range(32)]


def test_appends_one_at_a_time_are_all_in_the_log(tmp_path: Path) -> None:
    rate = log_loads.one_at_a_time(now, str(tmp_path), SECONDS, 200)
    assert rate == pytest.approx((len(events(tmp_path, "orders")) - 1) / SECONDS, rel=0.9)


def test_a_log_is_filled_scanned_read_and_written_to(tmp_path: Path) -> None:
    where = str(tmp_path)
    assert log_loads.fill(now, where, "t", 200, 10_000, 60.0) == 10_000
    assert log_loads.arrow_scan(now, where, "t", SECONDS) > 0
    assert log_loads.read_round(now, where, "t", SECONDS) > 0
    assert log_loads.paced(now, where, SECONDS, 1000, 200) > 0
    pairs = log_loads.large_and_empty(now, where, "t", SECONDS, 200, 16, 2)
    assert [min(pair) > 0 for pair in pairs] == [True, True]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server here")
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_redis_answers_and_is_gone_afterwards(tmp_path: Path, fsync: str) -> None:
    assert redis_streams.appends(now, str(tmp_path), SECONDS, fsync, 200, 64) > 0
    assert not (tmp_path / "redis.sock").exists()


def answer(ready: Callable[[], None], value: int) -> tuple[int, int]:
    ready()
    return os.getpid(), value


def fail(ready: Callable[[], None]) -> None:
    raise RuntimeError("as it should")


def die(ready: Callable[[], None]) -> None:
    os._exit(3)


def test_a_function_runs_in_a_process_of_its_own() -> None:
    pid, value = apart(answer, 7, seconds=1.0)
    assert value == 7
    assert pid != os.getpid()
    with pytest.raises(MeasurementFailed, match="as it should"):
        apart(fail, seconds=1.0)
    with pytest.raises(MeasurementFailed, match="its process died"):
        apart(die, seconds=1.0)
    with Apart(answer, 1) as waiting:
        waiting.wait_ready()  # and is stopped though it never went on


def test_figures_are_paired_by_repetition_and_what_fails_twice_is_not_tried_again() -> None:
    counts = iter(range(1, 10))
    said: list[str] = []

    def broken() -> float:
        raise MeasurementFailed("no such server")

    measurements = {"ours": lambda: float(next(counts)), "peer": lambda: 2.0, "broken": broken}
    figures = bouts(measurements, 3, Patience(0), said.append)
    row = figures.row("case", "ours", "peer", unit="/s", target=1.0)
    assert (row.ratio, row.spread, row.repetitions, row.met) == (1.0, [0.5, 1.5], 3, True)
    doubled = figures.row("case", "ours", "peer", unit="/s", theirs=lambda found: 2 * found["peer"])
    assert doubled.ratio == 0.5
    absent = figures.row("case", "ours", "broken", unit="/s")
    noted = ["no such server (repetition 1)", "no such server (repetition 2)"]
    assert (absent.ours, absent.repetitions, absent.notes) == (None, 0, noted)
    assert len(said) == 9
