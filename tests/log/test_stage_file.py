"""Stages that another process writes: the log's writer lets them be, and commits them like its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomesh.errors import StageMissing
from echomesh.events import Event
from echomesh.log import LogReader, TopicLog
from echomesh.log.stage_file import drop_stage, stage_beside
from echomesh.native.log_record import encode


def rows(first: int, *topics: int) -> bytes:
    made = [Event(type="t", source="/s", id=str(first + at), data=b"x") for at in range(len(topics))]
    return b"".join(
        encode(first + at, topic, None, event.encode())
        for at, (topic, event) in enumerate(zip(topics, made, strict=True))
    )


def test_rows_that_were_staged_beside_the_writer_are_committed_by_it(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log:
        stage = stage_beside(tmp_path, "w", 1, "r", 0)
        stage.put_rows(rows(1, 0, 1, 0), 3, [("TST", "a"), ("TST", "b")])
        log.core.stages.expire(log.core.options.clock())  # it is being written, and stays
        stage.put_rows(rows(4, 1), 1, [])
        staged = stage.finish()
        assert staged.rows == 4
        done = log.core.stages.commit("w", 1, "r", [staged.stage], sums=[(staged.rows, staged.checksum)])
        assert done.offsets == {("TST", "a"): (0, 2), ("TST", "b"): (0, 2)}
    with LogReader(tmp_path) as reader:
        assert [Event.decode(event).id for event in reader.topic("a").read(0).events()] == ["1", "3"]
        assert [Event.decode(event).id for event in reader.topic("b").read(0).events()] == ["2", "4"]


def test_a_stage_that_was_dropped_is_missing_and_one_that_was_not_finished_is_gone(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log:
        stage = stage_beside(tmp_path, "w", 1, "r", 0)
        stage.put_rows(rows(1, 0), 1, [("TST", "a")])
        staged = stage.finish()
        drop_stage(tmp_path, staged.stage)
        drop_stage(tmp_path, staged.stage)
        with pytest.raises(StageMissing):
            log.core.stages.commit("w", 1, "r", [staged.stage])
        stage_beside(tmp_path, "w", 1, "r", 1).drop()
        assert list((tmp_path / "staging").iterdir()) == []


def test_stages_of_runs_that_began_beside_the_writer_count_for_fencing_when_it_opens(tmp_path: Path) -> None:
    with TopicLog(tmp_path):
        pass
    stages = []
    for run in ("older", "newer"):
        stage = stage_beside(tmp_path, "w", 1, run, 0)
        stage.put_rows(rows(1, 0), 1, [("TST", "a")])
        stages.append(stage.finish())
    with TopicLog(tmp_path) as log:
        assert log.core.stages.commit("w", 1, "newer", [stages[1].stage]).rows == 1
        assert log.core.stages.commit("w", 1, "older", [stages[0].stage]).repeated
        assert list((tmp_path / "staging").glob(f"{stages[0].stage}*")) == []


def test_what_a_failed_or_repeated_epoch_left_goes_by_run(tmp_path: Path) -> None:
    with TopicLog(tmp_path) as log:
        names = []
        for run in ("one", "two"):
            stage = stage_beside(tmp_path, "w", 5, run, 0)
            stage.put_rows(rows(1, 0), 1, [("TST", "a")])
            names.append(stage.finish().stage)
        log.core.stages.abort("w", 5, "one")
        left = [path.name for path in (tmp_path / "staging").iterdir()]
        assert left == [f"{names[1]}.stage"]
