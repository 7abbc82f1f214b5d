"""Writes of Spark: rows are staged by tasks, and become part of their topics with one commit of the driver.

A stage is (writer, epoch, run, partition, fresh name). For a stream the writer is the query and the epoch its batch;
for a batch they are `txnAppId` and `txnVersion`, or names that nobody else has.
"""

from __future__ import annotations

import logging
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from echomesh.errors import EchomeshError, UsageError
from echomesh.spark import sink_options
from echomesh.spark.rows import Rows
from echomesh.spark.sink_options import SinkOptions
from echomesh.spark.staging import About, Finished, Staging, committer_for, staging_for

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Done(WriterCommitMessage):
    """What a task tells the driver: its stages, if it had rows, and what they are for."""

    about: About
    stages: tuple[Finished, ...]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """A batch write."""
    if overwrite:
        raise UsageError("a log is never overwritten: write with mode('append')")
    chosen = sink_options.parse(options, streaming=False)
    sink_options.check_columns(schema, chosen)
    return BatchWriter(chosen)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """A streaming write. In output mode `complete` each batch is appended as it is."""
    chosen = sink_options.parse(options, streaming=True)
    sink_options.check_columns(schema, chosen)
    return StreamWriter(chosen)


class _Writer:
    """What both have."""

    def __init__(self, chosen: SinkOptions) -> None:
        self.options = chosen
        self.staging: Staging | None = None

    def __getstate__(self) -> dict[str, Any]:
        # It is about to go to tasks: only now they need a way, and each batch gets a ticket of its own.
        if self.staging is None:
            self.staging = staging_for(self.options)
        return self.__dict__.copy()

    def stage(self, about: About, prefix: str, batches: Iterator[pa.RecordBatch]) -> Done:
        """Stages the rows of one task."""
        assert self.staging is not None
        rows = Rows(self.options.topic, about.writer, prefix)
        stage = None
        try:
            for block in rows.blocks(batches):
                stage = stage or self.staging.begin(about)
                if stage.put(block):
                    rows.restart()
            return Done(about, () if stage is None else stage.finish())
        except BaseException:
            if stage is not None:
                _quietly(stage.abort)
            raise

    def conclude(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits what the tasks staged."""
        done = [message for message in messages if isinstance(message, Done)]
        if not done:
            return  # there were no partitions, so there are no rows
        about = done[0].about
        if {message.about[:3] for message in done} != {about[:3]}:
            raise UsageError("the tasks of one batch staged for different writers, epochs or runs")
        stages = [stage for message in done for stage in message.stages]
        committer = committer_for(self.options)
        try:
            outcome = committer.commit(about, stages, self.options.republish)
        finally:
            committer.close()
        rows = sum(stage.rows for stage in stages)
        if outcome.repeated and outcome.rows != rows:
            text = (
                f"{about.writer} epoch {about.epoch} was committed before with {outcome.rows} rows, and now has "
                f"{rows}: nothing was written. A batch that is run again should have the same rows"
            )
            _log.warning(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def give_up(self, messages: Sequence[WriterCommitMessage | None], about: About | None = None) -> None:
        """Drops what the tasks staged and what some still stage: Spark does not wait for those that it kills."""
        done = [message for message in messages if isinstance(message, Done)]
        about = done[0].about if done else about
        if about is not None:
            _quietly(lambda: self._abort(about, [stage for message in done for stage in message.stages]))

    def _abort(self, about: About, stages: Sequence[Finished]) -> None:
        committer = committer_for(self.options)
        try:
            committer.abort(about, stages)
        finally:
            committer.close()


def _quietly(action: Any) -> None:
    # What failed before is what has to be told.
    try:
        action()
    except (EchomeshError, OSError) as error:
        _log.warning("a stage could not be dropped, and will expire: %s", error)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:  # type: ignore[override]
        """Stages the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        run = context.getLocalProperty("spark.jobGroup.id")
        if not query or batch is None or not run:
            raise UsageError("Spark does not say which query and batch this is")
        about = About(query, int(batch), run, context.partitionId())
        return self.stage(about, f"{query}-{batch}-{about.part}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commits the batch."""
        self.conclude(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drops what was staged of the batch."""
        self.give_up(messages)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The sink of a batch write."""

    def __init__(self, chosen: SinkOptions) -> None:
        super().__init__(chosen)
        self.run = uuid.uuid4().hex
        app = chosen.txn_app_id
        # A transaction counts for its topic, as Delta's counts for its table.
        self.writer = self.run if app is None else app if chosen.topic is None else f"{app}:{chosen.topic}"

    def about(self, part: int) -> About:
        """What the stage of a partition is for."""
        return About(self.writer, self.options.txn_version, self.run, part)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:  # type: ignore[override]
        """Stages the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        about = self.about(context.partitionId())
        return self.stage(about, f"{self.run}-{about.epoch}-{about.part}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the write."""
        self.conclude(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drops what was staged."""
        self.give_up(messages, self.about(0))
