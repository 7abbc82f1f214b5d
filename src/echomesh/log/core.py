"""The log as its one writer has it open: topics, commits, and what keeps them. The faces for users stand on
it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from echomesh.errors import DiskFull, LogError, LogReadOnly, StorageError, UsageError
from echomesh.log import catalogue, layout, state
from echomesh.log.active import ActiveTopic
from echomesh.log.handles import Handles
from echomesh.log.journal import FREE_FILES, FULL_CODES, JournalFile, JournalFiles
from echomesh.log.keeper import Keeper
from echomesh.log.lock import WriterLock, boot_id
from echomesh.log.options import LogOptions
from echomesh.log.recovery import Recovery, Report
from echomesh.log.retention import Retention
from echomesh.log.staging import Stages
from echomesh.log.state import LeaseNote, TopicEnd, TopicNote
from echomesh.native.log_commit import NEED_JOURNAL, Commits
from echomesh.native.log_water import Watermarks
from echomesh.native.log_window import WindowBudget
from echomesh.topics import parse_topic


class _LogCommits(Commits):
    log: LogCore

    def on_failure(self, first: int, last: int, error: Exception) -> Exception | None:
        return self.log.rolled_back(first, last, error)

    def raise_last(self) -> None:
        raise self.log.failures[-1][2]


class LogCore:
    """Opens a data directory for writing: recovers it, and appends to it until `close`."""

    def __init__(self, directory: str | os.PathLike[str], options: LogOptions) -> None:
        self.options = options
        self.storage = options.storage
        self.paths = layout.paths(Path(directory))
        Path(self.paths.root).mkdir(parents=True, exist_ok=True)
        self.lock = WriterLock(self.paths.lock)
        try:
            self._open()
        except BaseException:
            self.lock.close()
            raise

    def _open(self) -> None:
        for path in (self.paths.root, self.paths.journal, self.paths.topics, self.paths.staging):
            self.storage.mkdir(path)
        for path in (self.paths.topics, self.paths.staging):
            self.storage.keep_no_access_times(path)
        self.log_id = self._load_log_id()
        self.stages = Stages(self)
        recovered = Recovery(
            self.storage, self.paths, self.log_id, self.stages.roll_forward, self.options.clock()
        ).run()
        self.report: Report = recovered.report
        self.slow = threading.RLock()  # who commits may wait for it, so nobody who has it waits for a commit
        self.growing = threading.Lock()
        self.writers = recovered.state.writers
        self.closed = False
        self.failures: list[tuple[int, int, Exception]] = []
        self.must_rewrite = False
        self.journal = JournalFiles(self.storage, self.paths.journal, recovered.sequence, self.options.journal_bytes)
        self._adopt_journal()
        self.water = self._new_water(max(1024, 2 * len(recovered.state.topics)))
        self.commits = _LogCommits(
            self.storage, self.water, self.log_id, self._trouble, recovered.state.number,
            frame_limit=self.options.frame_bytes, kept_limit=self.options.kept_bytes,
        )  # fmt: skip
        self.commits.log = self
        self.handles = Handles(self, self.options.open_segments)
        self.budget = WindowBudget(self.options.duplicate_bytes)
        self.topics: dict[tuple[str, str], ActiveTopic] = {}
        self.numbered: list[ActiveTopic] = []
        self.keeper = Keeper(self)
        self.retention = Retention(self)
        catalogue.start(self.paths.catalogue)
        for end in sorted(recovered.state.topics, key=lambda end: end.number):
            catalogue.add(self.paths.catalogue, end.number, end.environment, end.name, end.level)
            self._enter(end)
        self.water.install(self.paths.water)
        self.water.topics = len(self.numbered)
        self.lock.announce()
        self.stages.open(self.options.clock())
        if self.options.background:
            self.keeper.start()

    def _load_log_id(self) -> bytes:
        found = state.read_whole(self.storage, self.paths.log_id)
        if found is not None and len(found) >= 16:
            return found[:16]
        if self.storage.exists(self.paths.checkpoint):
            raise StorageError(errno.ENOENT, "the log id is gone: restore it from a backup", self.paths.log_id)
        made = os.urandom(16)
        state.write_whole(self.storage, self.paths.log_id, made)
        return made

    def _adopt_journal(self) -> None:
        # The checkpoint of the recovery has all that is in them.
        for name in self.storage.names(self.paths.journal):
            path = f"{self.paths.journal}/{name}"
            handle = self.storage.open(path)
            size = self.storage.size(handle)
            # One that was not made to the end is no good: its blocks may not be there.
            if name.endswith(".jnl") and size >= self.journal.wanted and len(self.journal.free) < FREE_FILES:
                file = JournalFile(path, handle, size)
                self.journal.open[handle] = file
                self.journal.free.append(file)
            else:
                self.storage.close(handle)
                self.storage.unlink(path)

    def _new_water(self, slots: int) -> Watermarks:
        return Watermarks.create(self.paths.water, self.log_id, boot_id(), slots)

    def _enter(self, end: TopicEnd) -> ActiveTopic:
        topic = ActiveTopic(self, end)
        topic.bind(self.water)
        self.water.set_earliest(end.number, end.earliest)
        self.water.set_high(end.number, end.next_offset)
        self.numbered.append(topic)
        self.topics[end.environment, end.name] = topic
        return topic

    def _grow(self) -> None:
        # A slot for the next topic's high-watermark. Not with `slow`: whoever commits may wait for that.
        with self.growing:
            if len(self.numbered) < self.water.slots:
                return
            grown = self._new_water(self.water.slots * 2)
            self.commits.rebind(grown, self.numbered)
            # Commits show what they did in the new file now, which readers do not know yet.
            self.commits.take_leadership()
            try:
                with self.slow:
                    for topic in self.numbered:
                        grown.set_earliest(topic.number, topic.earliest)
                        grown.set_high(topic.number, min(topic.done[2], topic.hold))
                    grown.topics = len(self.numbered)
                    self.water = grown
                    grown.install(self.paths.water)
            finally:
                self.commits.lead_no_more()

    def topic(self, environment: str, name: str, level: str | None = None) -> ActiveTopic:
        """The topic, made when it is new; `level` says how durable it is (`disk` when new)."""
        found = self.topics.get((environment, name))
        if found is None:
            found = self.topics.get((environment, parse_topic(name))) or self._make(environment, name, level)
        if level is not None and found.level != level:
            raise UsageError(f"topic {name!r} has the level {found.level!r} already, not {level!r}")
        return found

    def _make(self, environment: str, name: str, level: str | None) -> ActiveTopic:
        level = level or "disk"
        if level not in layout.LEVELS:
            raise UsageError(f"{level!r} is not a level: use {', '.join(layout.LEVELS)}")
        name = parse_topic(name)
        self.check_open()
        while True:
            self._grow()
            with self.slow:
                if (environment, name) in self.topics:
                    return self.topics[environment, name]
                if len(self.numbered) < self.water.slots:
                    return self._be_made(TopicEnd(len(self.numbered), environment, name, level))

    def _be_made(self, end: TopicEnd) -> ActiveTopic:
        try:
            listed = catalogue.add(self.paths.catalogue, end.number, end.environment, end.name, end.level)
        except OSError as error:
            raise self.refused(error, 0) from error
        try:
            ticket = self.note_topic(end)
        except LogError:
            catalogue.cut(self.paths.catalogue, listed)
            raise
        topic = self._enter(end)
        topic.born = ticket
        # Readers can find the topic from here on.
        self.water.topics = len(self.numbered)
        return topic

    def note_topic(self, end: TopicEnd) -> int:
        """Puts the topic's birth into the journal; the ticket."""
        return self.commits.note(state.encode_note(TopicNote(end.number, end.environment, end.name, end.level)))

    def check_open(self) -> None:
        """Raises when the log was closed or takes no appends."""
        if self.closed:
            raise LogError(f"the log in {self.paths.root} is closed")

    def add_loose(
        self, topic: ActiveTopic, events: list[bytes], now: int, origins: Sequence[bytes | None] | None = None
    ) -> list[int]:
        """Appends to a topic of level `os` or `none`; done when this returns. The offsets."""
        while True:
            with self.slow:
                wanted = topic.next_offset + len(events)
                if topic.lease_ticket and topic.lease_ticket <= self.commits.done:
                    topic.lease, topic.lease_ticket = topic.lease_wanted, 0
                if not topic.lease_ticket and topic.lease - wanted < self.options.lease_offsets // 2:
                    self._lease(topic, wanted)
                if wanted <= topic.lease:
                    try:
                        return self.commits.add_loose(topic, events, now, None if origins is None else list(origins))
                    except OSError as error:
                        self.handles.lost(topic)
                        raise self.refused(error, sum(map(len, events))) from error
                ticket = topic.lease_ticket
            # Not with the lock: whoever commits may need it.
            self.commits.wait(ticket)
            self.check(ticket)

    def _lease(self, topic: ActiveTopic, wanted: int) -> None:
        topic.be_born()
        topic.lease_wanted = wanted + self.options.lease_offsets
        topic.lease_ticket = self.commits.note(state.encode_note(LeaseNote(topic.number, topic.lease_wanted)))

    def shrunk_windows(self) -> list[tuple[str, str]]:
        """(environment, name) of topics whose duplicate window is smaller than it should be, for want of memory."""
        return [key for key, topic in self.topics.items() if topic.window is not None and topic.window.shrunk]

    def check(self, ticket: int) -> None:
        """Raises what kept the frame of this ticket from the disk, if anything did."""
        for first, last, error in self.failures:
            if first <= ticket <= last:
                raise error

    # When the disk fails

    def _trouble(self, status: int) -> None:
        # The leader's: a commit that can't go on gets a new journal file, or an error.
        failed = status != NEED_JOURNAL or self.must_rewrite
        needed = self.commits.needed_bytes(failed)
        if status in FULL_CODES:
            raise DiskFull(self.paths.root, needed)
        try:
            with self.journal.lock:
                self._turn(needed, failed=failed)
        except OSError as error:
            self.commits.use_journal(-1, 0, 0)
            raise self.refused(error, needed) from error

    def _turn(self, needed: int, *, failed: bool) -> None:
        self.must_rewrite = failed
        before = self.commits.current
        # Files are in the order of their sequences: one that stands ready was numbered before the one taken now.
        if (ready := self.commits.take_next()) is not None:
            self.journal.give_back(ready[0])
        self.keeper.collect()
        if before >= 0:
            leave = self.journal.abandon if failed else self.journal.filled
            leave(before, self.commits.last_number)
        self.commits.use_journal(*self.journal.take(needed, fresh=failed))
        if not failed:
            return
        try:
            self.commits.rewrite()
        except OSError:
            self.journal.abandon(self.commits.current, self.commits.last_number)
            raise
        self.must_rewrite = False

    def refused(self, error: OSError, wanted: int) -> LogError:
        """What a failure of the file system means for whoever wanted to append."""
        if error.errno in FULL_CODES:
            return DiskFull(self.paths.root, wanted)
        return LogReadOnly(self.paths.root, f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, '?')})")

    def rolled_back(self, first: int, last: int, error: Exception) -> Exception | None:
        """What waited was given up: topics go back to what is on disk. The error that later appends get, if
        any.
        """
        with self.slow:
            self.failures = [*self.failures[-63:], (first, last, error)]
            self.handles.forget()
            for topic in self.numbered:
                # Notes that were lost with the frame are made again before the next append.
                if first <= topic.born <= last:
                    topic.born = -1
                if first <= topic.lease_ticket <= last:
                    topic.lease_ticket = 0
                if topic.level == "disk":
                    if topic.window is not None:
                        topic.window.drop_from(topic.done[2])
                    topic.marks[:] = [mark for mark in topic.marks if mark[1] < topic.done[2]]
                    topic.roll_back()
        return None if isinstance(error, DiskFull) else error

    def give_up(self, error: Exception) -> None:
        """The keeper failed: without synced segments the journal can't be used again, so appends are
        refused.
        """
        if isinstance(error, OSError):
            if error.errno in FULL_CODES:
                return
            self.commits.refusal = self.refused(error, 0)
        else:
            self.commits.refusal = LogReadOnly(self.paths.root, repr(error))

    def sync_names(self, topic: ActiveTopic) -> None:
        """The names of the topic's directory and segment are on disk afterwards."""
        for path in (topic.directory, self.paths.topics, self.paths.root):
            self.storage.sync_directory(path)

    def open_segment(self, topic: ActiveTopic, base: int) -> int:
        """A handle on a segment that is there."""
        return self.storage.open(topic.path(base))

    def retain(self) -> None:
        """Removes what is older or more than should be kept."""
        self.retention.run(self.options.clock())

    def close(self) -> None:
        """Commits what waits, syncs, and says in the checkpoint that all was left in order."""
        if self.closed:
            return
        self.closed = True
        try:
            self.keeper.stop()
            if self.commits.refusal is None:
                self.commits.wait_idle()
                self.handles.trim()
                self.keeper.sync()
                self.keeper.checkpoint(clean=True)
                for topic in self.numbered:
                    topic.remove_memory()
        except OSError as error:
            # All that was acknowledged is in the journal, from which the next writer goes on.
            raise self.refused(error, 0) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Lets go of everything without another write, as a crash would."""
        self.closed = True
        self.keeper.stop()
        with suppress(OSError, KeyError):
            self.handles.close()
            self.journal.close()
        self.water.retire()
        self.lock.close()
