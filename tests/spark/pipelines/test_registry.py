"""What is known of pipelines that run: entries that are whole, and a lock that one process has."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from echomesh.errors import BusyError, DamagedError, PipelineBusy, UnknownPipeline
from echomesh.spark.pipelines.registry import FILE, Entry, Figures, Registry, now

PATIENCE_S = 60.0


def entry(name: str = "big", **changes: object) -> Entry:
    given = {
        "name": name, "file": "big.py", "state": "running", "pid": os.getpid(), "host": socket.gethostname(),
        "started": now(), "updated": now(), "master": "local[*]", "checkpoint": "c",
        "queries": [Figures(output="out", target="topic alerts", rows=7)], **changes,
    }  # fmt: skip
    return Entry(**given)  # type: ignore[arg-type]


def holding(home: Path, pipe: Connection, deaf: bool) -> None:
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    registry = Registry(home)
    with registry.hold("big"):
        registry.write(entry())
        pipe.send("held")
        pipe.recv()


class Holder:
    """A process that runs a pipeline, as far as others can tell."""

    def __init__(self, home: Path, deaf: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=holding, args=(home, theirs, deaf))
        self.process.start()
        assert self.pipe.recv() == "held"

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()


def test_a_second_instance_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with (
        Holder(tmp_path) as holder,
        pytest.raises(PipelineBusy, match=f"big runs already: process {holder.process.pid} on"),
        Registry(tmp_path).hold("big"),
    ):
        pass
    with Registry(tmp_path).hold("big"), pytest.raises(PipelineBusy), Registry(tmp_path).hold("big"):
        pass


def test_a_killed_pipeline_shows_as_died(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    with Holder(tmp_path):
        assert registry.entry("big").state == "running"
    assert registry.entry("big").state == "died"
    with registry.hold("big"):
        registry.write(entry(state="stopped"))
    assert registry.entry("big").state == "stopped"


def test_stop_asks_the_process_and_waits_for_its_end(tmp_path: Path) -> None:
    with Holder(tmp_path) as holder:
        assert Registry(tmp_path).stop("big", PATIENCE_S).state == "died"  # it had no time to say more
        holder.process.join(PATIENCE_S)
        assert holder.process.exitcode == -signal.SIGTERM


def test_a_pipeline_that_does_not_stop_in_time_is_told(tmp_path: Path) -> None:
    with Holder(tmp_path, deaf=True), pytest.raises(BusyError, match="has not stopped within 0 s"):
        Registry(tmp_path).stop("big", 0.0)


def test_a_pipeline_of_another_host_is_left_alone(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    with registry.hold("big"):
        registry.write(entry(host="elsewhere"))
    assert registry.entry("big").state == "running", "nobody here can tell"
    with pytest.raises(BusyError, match="runs on elsewhere"):
        registry.stop("big", 1.0)


def test_entries_are_listed_and_unknown_or_damaged_ones_told(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    with pytest.raises(UnknownPipeline, match=r"no pipeline big in .*: none has run yet"):
        registry.entry("big")
    for name in ("small", "big"):
        with registry.hold(name):
            registry.write(entry(name, state="finished"))
    assert [found.name for found in registry.entries()] == ["big", "small"]
    assert registry.entry("big").queries[0].rows == 7
    with pytest.raises(UnknownPipeline, match="there is big, small"):
        registry.entry("huge")
    (tmp_path / "big" / FILE).write_text("{")
    with pytest.raises(DamagedError, match="is no entry of a pipeline"):
        registry.entry("big")
