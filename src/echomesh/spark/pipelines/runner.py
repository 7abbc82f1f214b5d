"""Runs a pipeline in the foreground: session, checkpoints, progress, and restarts with back-off."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryListener

from echomesh.errors import EchomeshError, PipelineFailed
from echomesh.spark.pipelines import progress, queries
from echomesh.spark.pipelines.build import build, reason
from echomesh.spark.pipelines.checkpoints import prepared
from echomesh.spark.pipelines.define import Pipeline
from echomesh.spark.pipelines.failures import Failure, failure
from echomesh.spark.pipelines.metrics import served
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.registry import Entry, Figures, Registry, now
from echomesh.spark.pipelines.sessions import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S: Final = 0.2
_WRITE_S: Final = 1.0  # so often the registry is brought up to date, at most
_FIRST_S: Final = 1.0
_SETTLED_S: Final = 30.0
_INITIALIZING: Final = "Initializing sources"
_LONGEST_S: Final = 60.0
RESTARTS: Final = 10


@dataclass(frozen=True)
class RunOptions:
    """How to run a pipeline, besides where."""

    once: bool = False
    start: str | None = None  # an append time: the first run, or a new checkpoint, begins there
    new_checkpoint: bool = False
    metrics: str | None = None
    restarts: int = RESTARTS  # without a batch between them; then it is given up
    first_wait_s: float = _FIRST_S


def run(
    pipeline: Pipeline,
    place: Place,
    options: RunOptions | None = None,
    *,
    stop: threading.Event | None = None,
    tell: Callable[[Entry], None] | None = None,
) -> Entry:
    """Runs a pipeline until it is stopped, or with `once` until all that there was is written.

    `tell` is given the registry's entry whenever something changed. A second run of the same pipeline is refused with
    `PipelineBusy`; a failure that another try would not mend is `PipelineFailed`.
    """
    chosen = options or RunOptions()
    place.check(pipeline)
    registry = Registry(place.homes)
    with registry.hold(pipeline.name):
        starting = prepared(pipeline, place, chosen.start, chosen.new_checkpoint)
        entry = _entry(pipeline, place)
        registry.write(entry)
        with served(entry, chosen.metrics):
            return _Run(pipeline, place, chosen, registry, entry, stop or threading.Event(), tell).run(starting)


def _entry(pipeline: Pipeline, place: Place) -> Entry:
    return Entry(
        name=pipeline.name,
        file=pipeline.file,
        state="starting",
        pid=os.getpid(),
        host=socket.gethostname(),
        started=now(),
        updated=now(),
        master=place.master,
        checkpoint=place.checkpoints(pipeline.name),
        queries=[Figures(output=name, target=str(output)) for name, output in pipeline.outputs.items()],
    )


@dataclass
class _Job:
    """The query of one output."""

    figures: Figures
    query: StreamingQuery | None = None
    failures: int = 0  # since a batch was done
    retry_at: float = 0.0
    done: bool = False


@dataclass
class _Run:
    pipeline: Pipeline
    place: Place
    options: RunOptions
    registry: Registry
    entry: Entry
    stop: threading.Event
    tell: Callable[[Entry], None] | None
    jobs: dict[str, _Job] = field(default_factory=dict)
    written_at: float = 0.0
    changed: threading.Event = field(default_factory=threading.Event)

    def run(self, starting: Mapping[str, str] | None) -> Entry:
        """All of it, from the session on."""
        self.jobs = {figures.output: _Job(figures) for figures in self.entry.queries}
        self._show()
        try:
            with opened(self.pipeline, self.place, self.entry) as spark:
                listener = _Listener(self)
                spark.streams.addListener(listener)
                try:
                    self._loop(spark, starting)
                finally:
                    self._stop_queries()
                    _drain(spark)
                    spark.streams.removeListener(listener)
        except BaseException as error:
            # A KeyboardInterrupt is no failure, but it is the end.
            self._end("failed" if isinstance(error, Exception) else "stopped", _said(error))
            raise
        self._end("finished" if all(job.done for job in self.jobs.values()) else "stopped", "")
        return self.entry

    def _loop(self, spark: SparkSession, starting: Mapping[str, str] | None) -> None:
        self._start(spark, list(self.jobs), starting)
        while not self.stop.is_set():
            for job in self.jobs.values():
                self._look_at(job)
            if all(job.done for job in self.jobs.values()):
                return
            due = [name for name, job in self.jobs.items() if job.query is None and not job.done and job.retry_at]
            if ready := [name for name in due if self.jobs[name].retry_at <= time.monotonic()]:
                self._start(spark, ready, starting)
            self.entry.state = "waiting" if any(self.jobs[name].query is None for name in due) else "running"
            self._show()
            self.changed.wait(_LOOK_S)
            self.changed.clear()

    def _start(self, spark: SparkSession, names: list[str], starting: Mapping[str, str] | None) -> None:
        frames = build(spark, self.pipeline, self.place, starting)
        for name in names:
            job = self.jobs[name]
            try:
                job.query = queries.start(self.pipeline, name, frames[name], self.place, once=self.options.once)
            except PySparkException as error:
                raise self.pipeline.wrong(f"in {self.pipeline.name}: {reason(error)}") from error
            self._settle(job.query)

    def _settle(self, query: StreamingQuery) -> None:
        # Each query starts workers of its own; all at once they may take longer than Spark waits for one.
        until = time.monotonic() + _SETTLED_S
        while query.isActive and query.status["message"] == _INITIALIZING and time.monotonic() < until:
            self._show()
            if self.stop.wait(_LOOK_S):
                return

    def _look_at(self, job: _Job) -> None:
        query = job.query
        if query is None or job.done or query.isActive:
            return
        error = query.exception()
        job.query = None
        if error is None:
            job.done = self.options.once or self.pipeline.trigger_ms is None
            if not job.done:
                self._failed(job, Failure("", "Spark stopped the query without a reason", False))
            return
        self._failed(job, failure(str(error)))

    def _failed(self, job: _Job, what: Failure) -> None:
        job.failures += 1
        job.figures.why = str(what)
        if what.lasting or job.failures > self.options.restarts:
            raise PipelineFailed(self.pipeline.name, str(what), self.entry.log)
        wait_s = min(_LONGEST_S, self.options.first_wait_s * 2 ** (job.failures - 1))
        job.retry_at = time.monotonic() + wait_s
        job.figures.restarts += 1
        self.entry.why, self.entry.retry_s, self.entry.state = str(what), wait_s, "waiting"
        self._show(at_once=True)

    def progressed(self, said: Mapping[str, Any]) -> None:
        """Called by the listener, in a thread of its own."""
        for name, job in self.jobs.items():
            if said["name"] == queries.query_name(self.pipeline, name):
                before = job.figures.batch
                progress.update(job.figures, said)
                if job.figures.batch > before:
                    job.failures = 0
                self.changed.set()

    def _show(self, *, at_once: bool = False) -> None:
        if at_once or time.monotonic() - self.written_at >= _WRITE_S:
            self.registry.write(self.entry)
            self.written_at = time.monotonic()
        if self.tell is not None:
            self.tell(self.entry)

    def _stop_queries(self) -> None:
        for job in self.jobs.values():
            if job.query is not None:
                job.query.stop()

    def _end(self, state: Any, why: str) -> None:
        self.entry.state, self.entry.retry_s = state, 0.0
        self.entry.why = why or (self.entry.why if state == "failed" else "")
        self._show(at_once=True)


class _Listener(StreamingQueryListener):
    """Hands the progress of our queries on; others of the session are not ours."""

    def __init__(self, run: _Run) -> None:
        self.run = run

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing: it was us who started it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done, or nothing came for a while."""
        self.run.progressed(json.loads(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The loop is to look why."""
        self.run.changed.set()


def _drain(spark: SparkSession) -> None:
    # Progress comes over a queue of the JVM: what was done before the end belongs to the figures. A machine that is too
    # busy to say it within Spark's ten seconds has stopped all the same, and not failed.
    if spark._jvm is not None and spark._jsc is not None:
        with contextlib.suppress(Py4JJavaError):
            spark._jsc.sc().listenerBus().waitUntilEmpty()


def _said(error: BaseException) -> str:
    if isinstance(error, PipelineFailed):
        return error.reason
    return str(error) if isinstance(error, EchomeshError) else f"{type(error).__name__}: {error}"
