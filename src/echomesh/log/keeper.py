"""The keeper: syncs segments in the background, writes checkpoints, and has the next journal file ready."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from echomesh.log import state
from echomesh.log.state import State
from echomesh.log.upkeep import Upkeep

if TYPE_CHECKING:
    from echomesh.log.core import LogCore

# A thousand indexes with one mark more in each second are more work than all else that the thread does.
MARKS_TOGETHER: Final = 16


class Keeper:
    """What happens beside the appends, by a thread of its own or when somebody calls `care`."""

    def __init__(self, log: LogCore) -> None:
        self.log = log
        self.synced = log.commits.last_number
        self.turn = threading.RLock()
        self.thread: threading.Thread | None = None
        self.stopping = False
        self.started = 0  # syncs that began, and
        self.syncs = 0  # the last of them that was done
        self.marks_together = 1  # for an index, before they are written
        self.upkeep = Upkeep(log)

    def start(self) -> None:
        """Cares from now on, in a thread."""
        self.thread = threading.Thread(target=self._run, name="echomesh-log-keeper", daemon=True)
        self.marks_together = MARKS_TOGETHER
        self.thread.start()
        self.upkeep.start()

    def stop(self) -> None:
        """Ends the thread."""
        self.stopping = True
        if self.thread is not None:
            self.log.commits.call_for_care()
            self.thread.join()
            self.thread = None
            self.marks_together = 1
        self.upkeep.stop()

    def _run(self) -> None:
        interval_s = self.log.options.sync_interval_s
        due = monotonic() + interval_s
        while not self.stopping:
            wanted = self.log.commits.wait_for_care(max(0.0, due - monotonic()))
            if self.stopping:
                return
            # First of all: a commit that finds no journal file has to make one.
            self._attempt(self.offer)
            if wanted or monotonic() >= due:
                due = monotonic() + interval_s
                self._attempt(self.care)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.log.give_up(error)

    def care(self) -> None:
        """Syncs what was written, makes full journal files free again, and offers the next one."""
        with self.turn:
            self.collect()
            if self.log.commits.last_number > self.synced or self.log.stages.copies:
                self.sync()
            if self.log.journal.needs_checkpoint() or self.log.stages.copies:
                self.checkpoint()
            self.log.retain()
            self.log.stages.care(self.log.options.clock())
            self.offer()
            if not self.log.options.background:
                self.upkeep.round()

    def collect(self) -> None:
        """Takes note of the journal files that got full."""
        for handle, _, last_number in self.log.commits.take_filled():
            self.log.journal.filled(handle, last_number)

    def sync(self) -> None:
        """Makes sure that the segments have all that was committed, and forgets the frames kept for it."""
        with self.turn:
            log = self.log
            self.started += 1
            number = log.commits.last_number
            for topic in list(log.topics.values()):
                if len(topic.marks) >= self.marks_together:
                    topic.flush_index()
            try:
                log.storage.sync_all(log.paths.root)
            except OSError:
                # The page cache may have dropped what it could not write: only memory still has it for sure.
                log.commits.take_leadership()
                try:
                    number = log.commits.last_number
                    log.commits.rewrite_segments()
                finally:
                    log.commits.lead_no_more()
                log.storage.sync_all(log.paths.root)
            self.synced = number
            self.syncs = self.started
            log.commits.release(number)
            log.handles.close_retired(log.commits.released_ticket)

    def checkpoint(self, *, clean: bool = False) -> None:
        """Writes each topic's end, so that the journal up to here is no longer needed."""
        with self.turn:
            log = self.log
            number = log.stages.limit(self.synced, self.syncs)
            ends = [topic.end() for topic in list(log.topics.values())]
            saved = State(log.log_id, number, log.journal.sequence, clean, ends, dict(log.writers))
            state.save(log.storage, log.paths, saved)
            log.journal.recycle(number)
            if number == self.synced:
                log.stages.copied(self.syncs)

    def offer(self) -> None:
        """Has a journal file ready for when the current one is full."""
        with self.log.journal.lock:
            if not self.log.commits.ready:
                self.log.commits.offer_journal(*self.log.journal.take(0))
