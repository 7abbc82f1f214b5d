"""Where a pipeline goes on: at its checkpoint, or at a time with a new one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from echomesh.errors import UsageError
from echomesh.spark.pipelines.define import Pipeline
from echomesh.spark.pipelines.place import Place, is_local

_OLD: Final = "old"


def prepared(pipeline: Pipeline, place: Place, start: str | None, new: bool) -> dict[str, str] | None:
    """Where a source begins, if not where the pipeline says; an old checkpoint is put aside if that is wanted."""
    where = place.checkpoints(pipeline.name)
    there = is_local(where) and Path(where.removeprefix("file:")).exists()
    if there and new:
        _put_aside(Path(where.removeprefix("file:")), place.directory(pipeline.name) / _OLD)
        there = False
    elif new and not is_local(where):
        raise UsageError(f"--new-checkpoint is for local checkpoints: give another --checkpoint than {where}")
    if start is None:
        return None
    if there:
        raise UsageError(
            f"pipeline {pipeline.name} has a checkpoint in {where} and would go on there: with --new-checkpoint it "
            f"begins at {start}, and writes again what it wrote since then"
        )
    return {"startingTimestamp": start}


def _put_aside(checkpoint: Path, old: Path) -> None:
    old.mkdir(parents=True, exist_ok=True)
    checkpoint.rename(old / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ"))
