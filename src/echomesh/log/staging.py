"""Staged appends: rows wait in files of their own, and one record of the journal makes them part of their
topics.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import Buffer

from echomesh.errors import FencedWriter, StageMissing, StaleWriter
from echomesh.log import stage_copy, state
from echomesh.log.stage_commit import StageCommit
from echomesh.log.stage_copy import Purpose, Stage
from echomesh.log.stage_file import BESIDE, Staged, StageFile
from echomesh.log.state import CommitNote, State

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore

_EXPIRY_STEP_NS: Final = 60 * 10**9
_MOST_GIVEN_UP: Final = 4096
GIVEN_UP: Final = "this run of its epoch was aborted"


class Committed(NamedTuple):
    """What a commit did: the first offset and the number of rows for each (environment, topic)."""

    rows: int
    offsets: dict[tuple[str, str], tuple[int, int]]
    repeated: bool


class StageWriter(StageFile):
    """Rows for one (writer, epoch, run, part): on disk after `close`, and in no topic before their commit."""

    def __init__(self, log: LogCore, purpose: Purpose) -> None:
        key = log.log_id if log.options.knows_duplicates else None
        super().__init__(log.storage, log.paths, purpose, key=key)
        self.log = log
        self.purpose = purpose
        self.expired = False

    def add(self, topic: str, event: Buffer, *, environment: str = "TST") -> None:
        """Adds a row."""
        if self.put(topic, event, environment):
            self.flush()

    def _write(self, data: Buffer) -> None:
        if self.expired:
            raise StageMissing(self.name, "it was never closed, and expired")
        try:
            super()._write(data)
        except OSError as error:
            raise self.log.refused(error, memoryview(data).nbytes) from error

    def close(self) -> Staged:
        """Ends the stage; it is on disk afterwards."""
        try:
            staged = self.finish()
        except OSError as error:
            raise self.log.refused(error, self.position) from error
        finally:
            self.log.stages.writing.pop(self.name, None)
        # Looked at behind the rename, while `abort` marks before it looks for files: one of the two sees the other.
        if self.log.stages.is_given_up(self.purpose):
            self.log.storage.unlink(self.path)
            raise StageMissing(self.name, GIVEN_UP)
        return staged

    def abort(self) -> None:
        """Drops the rows."""
        if self.log.stages.writing.pop(self.name, None) is not None:
            self.drop()


class AsyncStageWriter:
    """The same for an event loop, which never waits for the disk."""

    def __init__(self, writer: StageWriter) -> None:
        self.writer = writer
        self.name = writer.name

    async def add(self, topic: str, event: Buffer, *, environment: str = "TST") -> None:
        """Adds a row."""
        if self.writer.put(topic, event, environment):
            await asyncio.to_thread(self.writer.flush)

    async def close(self) -> Staged:
        """Ends the stage; it is on disk afterwards."""
        return await asyncio.to_thread(self.writer.close)

    async def abort(self) -> None:
        """Drops the rows."""
        await asyncio.to_thread(self.writer.abort)


class Stages:
    """The stages of a log, and their commits."""

    def __init__(self, log: LogCore) -> None:
        self.log = log
        self.turn = threading.Lock()
        self.holds: dict[ActiveTopic, list[int]] = {}
        self.uncopied: int | None = None  # the last frame before the oldest commit whose copy is not synced yet
        self.copies: list[tuple[int, list[str]]] = []  # syncs before the copy was done, and its stages
        self.writing: dict[str, StageWriter] = {}
        self.runs: dict[str, dict[str, int]] = {}  # of each writer, in the order in which they began
        self.begun = 0
        self.given_up: dict[tuple[str, int, str], None] = {}  # the last ones: a task may not know of it yet
        self.expired_ns = 0

    def stage(self, writer: str, epoch: int, run: str, part: int) -> StageWriter:
        """Begins a stage."""
        self.log.check_open()
        purpose = Purpose(writer, epoch, run, part, self.log.options.clock())
        if self.is_given_up(purpose):
            raise StageMissing("", GIVEN_UP)
        try:
            made = StageWriter(self.log, purpose)
        except OSError as error:
            raise self.log.refused(error, 0) from error
        self.writing[made.name] = made
        self._began(writer, run)
        return made

    def _began(self, writer: str, run: str) -> None:
        self.begun += 1
        self.runs.setdefault(writer, {}).setdefault(run, self.begun)

    def commit(
        self,
        writer: str,
        epoch: int,
        run: str,
        stages: list[str],
        *,
        sums: Sequence[tuple[int, int]] | None = None,
        republish: bool = False,
    ) -> Committed:
        """Makes the named stages of this epoch part of their topics, all of them or none.

        `sums` are the rows and the checksum that each stage has to have. With `republish` an epoch that is older than
        the writer's last one is not refused: the writer goes on from there under a new name, and with it all that
        follows.
        """
        with self.turn:
            log = self.log
            log.check_open()
            rows = None if sums is None else sum(count for count, _ in sums)
            name = self._name(writer, epoch, run, rows, republish)
            if (before := self._before(name, epoch, run)) is not None:
                self._drop(writer, epoch, set())
                return before
            read = [(stage, self._read(stage, writer, epoch, run)) for stage in stages]
            _check_sums(read, sums)
            note = CommitNote(name, epoch, run, 0, log.options.clock(), stages, [], self._older(writer, run))
            commit = StageCommit(log, note, read, told=sums is not None)
            commit.journal()
            state.remember(log.writers, note)
            for older in note.older_runs:
                self.runs[writer].pop(older, None)
            commit.copy()
            self._drop(writer, epoch, set(stages))
            return Committed(note.rows, commit.offsets, False)

    def _names(self, writer: str) -> list[str]:
        # All names that the writer has taken; the epochs of all but the last say nothing any more.
        names = [writer]
        while (following := f"{writer}~{len(names)}") in self.log.writers:
            names.append(following)
        return names

    def _name(self, writer: str, epoch: int, run: str, rows: int | None, republish: bool) -> str:
        names, writers = self._names(writer), self.log.writers
        last = writers.get(names[-1])
        if last is None:
            return writer
        for name in names[:-1]:
            before = writers[name]
            if run != last.run and (run == before.run or before.replaced(run)):
                raise FencedWriter(writer, run, last.run)
        # The last epoch with other rows is not a repetition, where the writer may have been put back.
        older = epoch < last.epoch or (epoch == last.epoch and rows not in (None, last.rows))
        again = republish and older and not last.replaced(run)
        return f"{writer}~{len(names)}" if again else names[-1]

    def _older(self, writer: str, run: str) -> list[str]:
        # Runs that staged something before this one did, and have not committed: they may not come behind it.
        known = self.runs.get(writer, {})
        return [other for other, order in known.items() if order < known.get(run, 0)]

    def _before(self, writer: str, epoch: int, run: str) -> Committed | None:
        last = self.log.writers.get(writer)
        if last is None:
            return None
        if epoch == last.epoch:
            named = {self.log.numbered[int(number)]: share for number, share in last.offsets.items()}
            offsets = {(topic.environment, topic.name): share for topic, share in named.items()}
            return Committed(last.rows, offsets, True)
        if last.replaced(run):
            raise FencedWriter(writer, run, last.run)
        if epoch < last.epoch:
            raise StaleWriter(writer, epoch, last.epoch)
        return None

    def _read(self, stage: str, writer: str, epoch: int, run: str) -> Stage:
        found = stage_copy.look(self.log.storage, self.log.paths, stage)
        meant = (found.purpose.writer, found.purpose.epoch, found.purpose.run)
        if meant != (writer, epoch, run):
            raise StageMissing(stage, f"it is of writer, epoch and run {meant}, not {(writer, epoch, run)}")
        return found

    def _drop(self, writer: str, epoch: int, winners: set[str], run: str | None = None) -> None:
        winners = winners.union(*(stages for _, stages in self.copies))
        for name in self.log.storage.names(self.log.paths.staging):
            stage, path = name.partition(".")[0], f"{self.log.paths.staging}/{name}"
            if stage in winners or not name.endswith(".stage"):
                continue
            purpose = stage_copy.read_purpose(self.log.storage, path)
            meant = purpose is not None and purpose.writer == writer and purpose.epoch <= epoch
            if purpose is not None and meant and run in (None, purpose.run):
                self.log.storage.unlink(path)

    def abort(self, writer: str, epoch: int, run: str | None = None) -> None:
        """Drops the stages of this epoch, or of one run in it, that were not committed.

        A run that is named stages nothing more for this epoch: what its tasks still write is dropped when it ends.
        """
        with self.turn:
            if run:
                self.given_up[writer, epoch, run] = None
                if len(self.given_up) > _MOST_GIVEN_UP:
                    del self.given_up[next(iter(self.given_up))]
            last = self.log.writers.get(self._names(writer)[-1])
            if last is None or last.epoch != epoch:
                self._drop(writer, epoch, set(), run)

    def is_given_up(self, purpose: Purpose) -> bool:
        """Whether nobody will commit what a stage of this purpose holds."""
        return (purpose.writer, purpose.epoch, purpose.run) in self.given_up

    def copied(self, synced_at: int) -> None:
        """Drops stages whose copies were synced by a sync that began behind them; the checkpoint is
        written.
        """
        for copy in [copy for copy in self.copies if copy[0] < synced_at]:
            self.copies.remove(copy)
            for stage in copy[1]:
                self.log.storage.unlink(stage_copy.path_of(self.log.paths, stage))

    def limit(self, number: int, synced_at: int) -> int:
        """How far a checkpoint may go: not over a commit whose copy is not synced."""
        if self.uncopied is None:
            return number
        if not any(self.holds.values()) and all(copy[0] < synced_at for copy in self.copies):
            self.uncopied = None
            return number
        return min(number, self.uncopied)

    def roll_forward(self, found: State, note: CommitNote, write: stage_copy.Write) -> None:
        """Copies a commit's rows again, after a crash."""
        names = stage_copy.names(found.topics)
        for number, base, position, data in stage_copy.copies(self.log.storage, self.log.paths, note, names):
            write(number, base, position, data)

    def open(self, now: int) -> None:
        """After recovery: knows again which runs have begun."""
        self.expire(now)
        found: list[Purpose] = []
        for name in self.log.storage.names(self.log.paths.staging):
            purpose = stage_copy.read_purpose(self.log.storage, f"{self.log.paths.staging}/{name}")
            if purpose is not None:
                found.append(purpose)
        for purpose in sorted(found, key=lambda purpose: purpose.made_ns):
            last = self.log.writers.get(purpose.writer)
            if last is None or not last.replaced(purpose.run):
                self._began(purpose.writer, purpose.run)

    def care(self, now: int) -> None:
        """Lets stages expire, now and then."""
        if now - self.expired_ns >= _EXPIRY_STEP_NS and self.turn.acquire(blocking=False):
            try:
                self.expire(now)
            finally:
                self.turn.release()

    def expire(self, now: int) -> None:
        """Drops stages that nobody committed in time, and what was never closed."""
        self.expired_ns = now
        oldest = now - int(self.log.options.stage_expiry_s * 1e9)
        committed = {stage for _, stages in self.copies for stage in stages}
        for name in self.log.storage.names(self.log.paths.staging):
            stage, path = name.partition(".")[0], f"{self.log.paths.staging}/{name}"
            writer = self.writing.get(stage)
            if writer is not None:
                writer.expired = made_late = writer.made_ns < oldest
            else:
                ours = name.endswith((".stage", BESIDE))
                purpose = stage_copy.read_purpose(self.log.storage, path) if ours else None
                made_late = purpose is None or purpose.made_ns < oldest
            if made_late and stage not in committed:
                self.log.storage.unlink(path)


def _check_sums(found: Sequence[tuple[str, Stage]], sums: Sequence[tuple[int, int]] | None) -> None:
    if sums is None:
        return
    if len(sums) != len(found):
        raise StageMissing(found[0][0] if found else "", f"{len(found)} stages are named, with {len(sums)} checksums")
    for (name, stage), (rows, checksum) in zip(found, sums, strict=True):
        has = stage.ending
        if (has.rows, has.checksum) != (rows, checksum):
            raise StageMissing(
                name, f"it has {has.rows} rows and checksum {has.checksum:08x}, not {rows} and {checksum:08x}"
            )
