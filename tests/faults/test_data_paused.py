"""A subscriber that is stopped (SIGSTOP), under each choice for slow subscribers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import SlowSubscriber
from echomesh.sync import Publisher, connect
from tests.data import shm_workers
from tests.data.shm_support import numbered
from tests.support.processes import PATIENCE_S, process, until

pytestmark = pytest.mark.fault

SIZES = pytest.mark.parametrize("size", [40, 50_000], ids=["small", "large"])


@contextlib.contextmanager
def stopped(options: dict[str, Any], directory: Path, queue: int = 16) -> Iterator[tuple[int, Path]]:
    """A process that subscribes and is stopped: its pid, and where it tells what came."""
    told = directory / "told"
    with process(shm_workers.take_until_end, options, "t", queue, str(told)) as subscriber:
        until(lambda: (directory / "told.ready").exists())
        assert subscriber.pid is not None
        yield subscriber.pid, told


def outcome(told: Path) -> dict[str, Any]:
    until(told.exists, "it never told")
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def assert_nothing_is_missing(found: dict[str, Any]) -> None:
    """What came and what was reported lost are together all numbers, each once."""
    lost = [number for first, last, _ in found["lost"] for number in range(first, last + 1)]
    assert sorted(found["came"] + lost) == list(range(found["end"]))
    assert found["came"] == sorted(found["came"])


def dropped(publisher: Publisher) -> int:
    return sum(publisher.statistics.dropped.values())


@SIZES
def test_block_waits_and_then_raises_and_the_others_get_everything(
    options: dict[str, Any], shm_dir: Path, size: int
) -> None:
    with connect(**options) as mesh, stopped(options, shm_dir) as (pid, told):
        other = mesh.subscribe("t")
        publisher = mesh.publisher("t", timeout=0.1)
        publisher.matched(2, PATIENCE_S)
        os.kill(pid, signal.SIGSTOP)
        for sent in range(16):
            publisher.send(numbered(sent, size))
            assert other.receive(PATIENCE_S).sequence == sent
        sent = 16
        with pytest.raises(SlowSubscriber) as raised:
            publisher.send(numbered(sent, size))
        assert len(raised.value.subscribers) == 1
        assert other.receive(PATIENCE_S).sequence == sent
        os.kill(pid, signal.SIGCONT)
        publisher.send(shm_workers.END, timeout=PATIENCE_S)
        found = outcome(told)
        assert_nothing_is_missing(found)
        assert found["lost"] == [[sent, sent, "the publisher waited no longer"]]


@SIZES
@pytest.mark.parametrize(
    "choices",
    [{"slow": "drop oldest", "queue": 8}, {"slow": "latest"}, {"reliability": "best effort"}],
    ids=["drop oldest", "latest", "best effort"],
)
def test_choices_that_drop_never_wait_and_report_each_number(
    options: dict[str, Any], shm_dir: Path, size: int, choices: dict[str, Any]
) -> None:
    with connect(**options) as mesh, stopped(options, shm_dir) as (pid, told):
        publisher = mesh.publisher("t", pool=8 << 20, **choices)
        publisher.matched(1, PATIENCE_S)
        os.kill(pid, signal.SIGSTOP)
        for number in range(5000):
            publisher.send(numbered(number, size))
        assert dropped(publisher) > 0
        os.kill(pid, signal.SIGCONT)
        until(lambda: publisher.statistics.waiting == 0)
        until(lambda: len(publisher.targets) == 1 and not publisher.targets[0].slow)
        publisher.flush(PATIENCE_S)
        publisher.send(shm_workers.END, timeout=PATIENCE_S)
        while not told.exists() and publisher.statistics.dropped and publisher.targets:
            # The end itself may be dropped where nothing waits for it.
            publisher.flush(PATIENCE_S)
            publisher.send(shm_workers.END)
        found = outcome(told)
        assert_nothing_is_missing(found)
        if choices.get("slow") == "latest":
            assert 4999 in found["came"]
            assert len(found["came"]) <= 10
        elif "slow" in choices:
            assert found["came"][-8:] == list(range(4992, 5000))
        assert {reason for _, _, reason in found["lost"]} <= {
            "the subscriber was slow",
            "the publisher's pool was full",
        }


def test_a_deadline_gives_a_message_up_as_a_whole(options: dict[str, Any], shm_dir: Path) -> None:
    with connect(**options) as mesh, stopped(options, shm_dir) as (pid, told):
        publisher = mesh.publisher("t", deadline=0.05)
        publisher.matched(1, PATIENCE_S)
        os.kill(pid, signal.SIGSTOP)
        for number in range(20):  # 16 are on their way, 4 are late
            publisher.send(numbered(number, 100))
        os.kill(pid, signal.SIGCONT)
        until(lambda: publisher.targets and not publisher.targets[0].slow)
        publisher.send(shm_workers.END)
        found = outcome(told)
        assert_nothing_is_missing(found)
        assert found["came"] == list(range(16))
        assert found["lost"] == [[16, 19, "the deadline had passed"]]


def test_who_is_stopped_for_ever_costs_its_publisher_no_more_than_its_share(
    options: dict[str, Any], shm_dir: Path
) -> None:
    with connect(**options) as mesh, stopped(options, shm_dir, queue=8192) as (pid, _):
        other = mesh.subscribe("t")
        publisher = mesh.publisher("t", slow="drop oldest", pool=16 << 20)
        publisher.matched(2, PATIENCE_S)
        os.kill(pid, signal.SIGSTOP)
        for number in range(300):
            publisher.send(numbered(number, 1 << 20))
            message = other.receive(PATIENCE_S)
            assert bytes(message.data[:8]) == numbered(number, 8)
            assert message.sequence == number
        assert publisher.statistics.pool_bytes <= 16 << 20


def test_a_mesh_that_is_left_while_a_subscriber_is_stopped_ends(options: dict[str, Any], shm_dir: Path) -> None:
    with stopped(options, shm_dir) as (pid, _):
        mesh = connect(**options)
        publisher = mesh.publisher("t", slow="latest")
        publisher.matched(1, PATIENCE_S)
        os.kill(pid, signal.SIGSTOP)
        for number in range(100):
            publisher.send(numbered(number, 100))
        mesh.close()
        assert publisher.state


def test_a_request_waits_for_one_that_is_slow_to_join_though_an_onlooker_is_there(options: dict[str, Any]) -> None:
    with connect(**options) as mesh, process(shm_workers.answer, options, "turn") as answering:
        assert answering.pid is not None
        with mesh.publisher("turn") as publisher:
            publisher.matched(1, PATIENCE_S)
        mesh.subscribe("**")
        os.kill(answering.pid, signal.SIGSTOP)
        threading.Timer(0.7, os.kill, (answering.pid, signal.SIGCONT)).start()
        assert bytes(mesh.request("turn", b"abc", timeout=PATIENCE_S)) == b"cba"


def test_a_request_does_not_wait_for_ever_for_an_onlooker_that_never_joins(
    options: dict[str, Any], shm_dir: Path
) -> None:
    with connect(**options) as mesh, stopped(options, shm_dir) as (pid, _):
        os.kill(pid, signal.SIGSTOP)
        mesh.subscribe("t", lambda message: message.reply(bytes(message)[::-1]))
        assert bytes(mesh.request("t", b"abc", timeout=3)) == b"cba"
