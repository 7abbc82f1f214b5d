"""Where the rows of a write wait for their commit, and who commits: a server, or a data directory of this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from echomesh.errors import LogLocked, RateLimited, UsageError
from echomesh.log import LogOptions, TopicLog
from echomesh.log.layout import Paths
from echomesh.log.lock import writer_of
from echomesh.log.stage_file import StageFile, drop_stage, stage_beside
from echomesh.mesh.bodies import Abort, Commit, CommittedStages, Stage, Staged
from echomesh.mesh.codes import Command, Purpose
from echomesh.native.log_stage import check_rows
from echomesh.spark.remote import Pass, carried, connect, session_of, ticket_for
from echomesh.spark.rows import Block, judge
from echomesh.spark.sink_options import SinkOptions

STAGE_BYTES: Final = 32 << 20  # a commit makes segments of stages that are neither tiny nor larger than a segment
LOCKED_S: Final = 5.0  # another query may be committing to the same directory
PAUSE_S: Final = 0.05


class About(NamedTuple):
    """What a stage is for."""

    writer: str
    epoch: int
    run: str
    part: int


class Finished(NamedTuple):
    """A stage that is on disk."""

    stage: str
    rows: int
    checksum: int


class Outcome(NamedTuple):
    """What a commit did; `rows` are those of the first time."""

    rows: int
    repeated: bool


class Open(Protocol):
    """The stages of a task, of which the last one is being written."""

    def put(self, block: Block) -> bool:
        """Adds rows; True when the next ones begin another stage."""

    def finish(self) -> tuple[Finished, ...]:
        """They are on disk afterwards."""

    def abort(self) -> None:
        """Nobody wants them."""


class Staging(Protocol):
    """What a task carries to stage its rows: small, picklable, and with nothing secret in its `repr`."""

    def begin(self, about: About) -> Open:
        """The first stage of a task."""


class Committer(Protocol):
    """Commits stages, in the driver."""

    def commit(self, about: About, stages: Sequence[Finished], republish: bool) -> Outcome:
        """All of them, or none."""

    def abort(self, about: About, stages: Sequence[Finished]) -> None:
        """Drops what this run has staged and not committed."""

    def close(self) -> None:
        """Lets go of it all."""


# A data directory of this machine


@dataclass(frozen=True)
class LocalStaging:
    """Tasks write their stages into the data directory themselves."""

    directory: str
    environment: str

    def begin(self, about: About) -> LocalStage:
        """The first stage of a task."""
        return LocalStage(self.directory, self.environment, about)


class LocalStage:
    """Stages in files of this task's own."""

    def __init__(self, directory: str, environment: str, about: About) -> None:
        self._directory = directory
        self._environment = environment
        self._about = about
        self._file: StageFile | None = None
        self._finished: list[Finished] = []

    def _begin(self) -> StageFile:
        try:
            return stage_beside(self._directory, *self._about)
        except FileNotFoundError:
            raise UsageError(
                f"{self._directory} is no data directory on this machine: with a cluster, write over a server"
            ) from None

    def put(self, block: Block) -> bool:
        """Adds rows; True when the next ones begin another stage."""
        rows, count, topics = block
        file = self._file = self._file or self._begin()
        check_rows(rows, file.rows + 1, len(file.topics) + len(topics), judge)
        file.put_rows(rows, count, [(self._environment, topic) for topic in topics])
        if file.position < STAGE_BYTES:
            return False
        self._end()
        return True

    def _end(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._finished.append(Finished(*file.finish()))

    def finish(self) -> tuple[Finished, ...]:
        """They are on disk afterwards."""
        self._end()
        return tuple(self._finished)

    def abort(self) -> None:
        """Nobody wants them."""
        if self._file is not None:
            self._file.drop()
        for stage in self._finished:
            drop_stage(self._directory, stage.stage)


class LocalCommitter:
    """Is the log's writer for as long as a commit takes."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._log: TopicLog | None = None

    def check(self) -> None:
        """Raises when somebody else writes there for longer than a commit takes; makes the directory if need be."""
        if writer_of(Paths(self.directory).lock) or not Path(self.directory, "log-id").exists():
            self._open()
            self.close()

    def _open(self) -> TopicLog:
        # Rows of a commit are not looked for among earlier ones, so no time is spent to remember those.
        until = time.monotonic() + LOCKED_S
        while self._log is None:
            try:
                self._log = TopicLog(self.directory, LogOptions(duplicate_events=0))
            except LogLocked as locked:
                if time.monotonic() > until:
                    raise UsageError(
                        f"{locked}; a sink with path writes to it itself. Where a node runs, write through it: "
                        "option server instead of path"
                    ) from None
                time.sleep(PAUSE_S)
        return self._log

    def commit(self, about: About, stages: Sequence[Finished], republish: bool) -> Outcome:
        """All of them, or none."""
        done = self._open().core.stages.commit(
            about.writer,
            about.epoch,
            about.run,
            [stage.stage for stage in stages],
            sums=[(stage.rows, stage.checksum) for stage in stages],
            republish=republish,
        )
        return Outcome(done.rows, done.repeated)

    def abort(self, about: About, stages: Sequence[Finished]) -> None:
        """Drops what this run has staged and not committed. Nobody else knows these names, so it needs no writer."""
        for stage in stages:
            drop_stage(self.directory, stage.stage)

    def close(self) -> None:
        """Others may write now."""
        if self._log is not None:
            self._log.close()
            self._log = None


# A server


@dataclass(frozen=True)
class ServerStaging(Pass):
    """Tasks send their rows to a server, with a ticket."""

    def begin(self, about: About) -> ServerStage:
        """The first stage of a task."""
        return ServerStage(self, about)


class ServerStage:
    """Stages of a server. It works on a block while the next one is made."""

    def __init__(self, known: Pass, about: About) -> None:
        self._session = session_of(known, Purpose.PUBLISH)
        self._about = about
        self._name: str | None = None
        self._sent: tuple[str, Stage] | None = None
        self._rows = self._bytes = 0
        self._finished: list[Finished] = []

    def put(self, block: Block) -> bool:
        """Adds rows; True when the next ones begin another stage."""
        records, count, topics = block
        self._rows += count
        self._bytes += len(records)
        self._send(records, topics, done=False)
        if self._bytes < STAGE_BYTES:
            return False
        self._end()
        return True

    def _send(self, records: bytes, topics: list[str], *, done: bool) -> None:
        self._settle()
        body = Stage("", "", *self._about, stage=self._name, topics=topics, records=records, done=done)
        if self._name is None:
            self._begin(body)
        else:
            self._sent = (self._session.send(Command.STAGE_REQUEST, body), body)

    def _begin(self, body: Stage) -> None:
        # The connection may be gone since the task before; only the first request of a stage may be sent twice.
        while True:
            try:
                staged: Staged = self._session.ask(Command.STAGE_REQUEST, body)
            except RateLimited:
                time.sleep(PAUSE_S)
            else:
                self._name = staged.stage
                return

    def _settle(self) -> Staged | None:
        while self._sent is not None:
            seq, body = self._sent
            try:
                staged: Staged = self._session.receive(seq)
            except RateLimited:
                # The client's limit is for all its tasks together.
                time.sleep(PAUSE_S)
                self._sent = (self._session.send(Command.STAGE_REQUEST, body), body)
            else:
                self._sent = None
                return staged
        return None

    def _end(self) -> None:
        self._send(b"", [], done=True)
        staged = self._settle()
        assert staged is not None
        if staged.rows != self._rows:
            raise UsageError(f"stage {staged.stage} has {staged.rows} rows at the server, and {self._rows} were sent")
        self._finished.append(Finished(staged.stage, staged.rows, staged.checksum or 0))
        self._name, self._rows, self._bytes = None, 0, 0

    def finish(self) -> tuple[Finished, ...]:
        """They are on disk afterwards."""
        if self._name is not None:
            self._end()
        return tuple(self._finished)

    def abort(self) -> None:
        """Nobody wants them: a stage that is not finished ends with its connection, the others with their batch."""
        self._session.close()


class ServerCommitter:
    """Asks the server to commit, as the client itself."""

    def __init__(self, chosen: SinkOptions) -> None:
        self._session = connect(chosen, Purpose.PUBLISH)

    def commit(self, about: About, stages: Sequence[Finished], republish: bool) -> Outcome:
        """All of them, or none; asked again as often as the connection breaks, as that changes nothing."""
        body = Commit(
            "",
            "",
            about.writer,
            about.epoch,
            about.run,
            [stage.stage for stage in stages],
            [stage.rows for stage in stages],
            [stage.checksum for stage in stages],
            republish,
        )
        done: CommittedStages = self._session.ask(Command.COMMIT_REQUEST, body)
        return Outcome(done.rows, done.repeated)

    def abort(self, about: About, stages: Sequence[Finished]) -> None:
        """Drops what this run has staged and not committed."""
        self._session.ask(Command.ABORT_REQUEST, Abort("", "", about.writer, about.epoch, about.run))

    def close(self) -> None:
        """Lets go of the connection."""
        self._session.close()


def staging_for(chosen: SinkOptions) -> Staging:
    """What tasks carry; for a server it has a ticket, which the driver gets here."""
    if chosen.server is None:
        directory = str(Path(chosen.path or "").absolute())
        LocalCommitter(directory).check()
        return LocalStaging(directory, chosen.environment)
    session = connect(chosen, Purpose.PUBLISH)
    try:
        filters = None if chosen.topic is None else [chosen.topic]
        ticket = ticket_for(session, "stage", filters)
    finally:
        session.close()
    return ServerStaging(*carried(chosen, chosen.topic or "", ticket))


def committer_for(chosen: SinkOptions) -> Committer:
    """Who commits."""
    if chosen.server is None:
        return LocalCommitter(str(Path(chosen.path or "").absolute()))
    return ServerCommitter(chosen)
