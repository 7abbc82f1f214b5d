"""What has time: indexes that are gone are made again, and old segments become Parquet files.

A thread of its own does it in short turns with pauses between them, so that neither appends nor the keeper wait
for it, and at most a quarter of one processor is used.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from echomesh.errors import EchomeshError
from echomesh.log.adopted import marks_of
from echomesh.log.conversion import Conversions
from echomesh.log.index import Mark
from echomesh.log.index_mending import Mending
from echomesh.log.layout import index_name
from echomesh.log.segments import Segments, index_of, listed

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore

TURN_S: Final = 0.05
PAUSE: Final = 3  # times as long as the turn was
FIRST_S: Final = 1.0  # after the log was opened: those who opened it have something to do
ROUND_S: Final = 300.0  # from the end of a round over all topics to the next one
_log = logging.getLogger(__name__)


class Upkeep:
    """Goes round all topics, one segment at a step."""

    def __init__(self, log: LogCore) -> None:
        self.log = log
        self.conversions = Conversions(log, self._is_stopping)
        self.checked: dict[int, set[int]] = {}  # by topic, the segments whose indexes were found whole or made so
        self.opened: set[int] = set()  # topics whose last segment was looked at since the log was opened
        self.rounds = 0
        self.round_done = threading.Condition()
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Works from now on, in a thread."""
        self.thread = threading.Thread(target=self._run, name="echomesh-log-upkeep", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Ends the thread, which drops the segment it has in hand."""
        self.stopping.set()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join()
            self.thread = None

    def _is_stopping(self) -> bool:
        return self.stopping.is_set()

    def _run(self) -> None:
        wait_s = FIRST_S
        while not self.stopping.wait(wait_s):
            for worked_s in self._turns():
                if self.stopping.wait(PAUSE * worked_s):
                    return
            wait_s = ROUND_S

    def _turns(self) -> Iterator[float]:
        # How long each turn took.
        began = monotonic()
        for _ in self._steps():
            sleep(0)  # who wants the interpreter gets it now, and not after 5 ms
            if monotonic() - began >= TURN_S:
                yield monotonic() - began
                began = monotonic()

    def round(self) -> None:
        """All that there is to do, at once."""
        for _ in self._steps():
            pass

    def _steps(self) -> Iterator[None]:
        for topic in list(self.log.numbered):
            # Most topics of ten thousand have nothing that is full.
            if topic.earliest >= topic.done[0] and not self._resumed(topic):
                continue
            try:
                yield from self._care_for(topic)
            except (OSError, EchomeshError) as error:
                # Whoever appends or reads finds out by himself; this can wait for the next round.
                _log.warning("topic %s: upkeep goes on later: %s", topic.name, error)
            if self.stopping.is_set():
                return
        with self.round_done:
            self.rounds += 1
            self.round_done.notify_all()

    def wait_for_round(self, number: int, timeout: float) -> bool:
        """Waits until all topics were looked after so many times."""
        with self.round_done:
            return self.round_done.wait_for(lambda: self.rounds >= number, timeout)

    def _care_for(self, topic: ActiveTopic) -> Iterator[None]:
        active = topic.done[0]
        found = listed(self.log.storage, topic.directory)
        checked = self.checked.setdefault(topic.number, set())
        checked &= {base for base in found.firsts if index_name(base) in found.names}
        unchecked = [base for base in found.firsts if topic.earliest <= base < active and base not in checked]
        if unchecked:
            with self.log.keeper.turn:
                topic.flush_index()  # entries that were only not written yet are not missing
        for base in unchecked:
            self._mend(topic, base, found)
            checked.add(base)
            yield
        if self._resumed(topic) and active in found.firsts:
            self.opened.add(topic.number)
            self._mend(topic, active, found)
        yield
        yield from self.conversions.steps(topic, found)

    def _resumed(self, topic: ActiveTopic) -> bool:
        # Whether an earlier writer began the last segment. Entries of one's own are in memory until they are written.
        return topic.resumed == topic.done[0] and topic.number not in self.opened

    def _mend(self, topic: ActiveTopic, base: int, found: Segments) -> None:
        index = index_of(self.log, topic, base)
        marks, whole = index.read()
        if base in found.converted:
            made = None if whole and marks else self.conversions.marks(topic, base)
            end = 1 << 62
        elif base in found.adopted:
            made = None if whole and marks else marks_of(self.log.storage, found.adopted[base])
            end = 1 << 62
        else:
            try:
                handle = self.log.storage.open(topic.path(base))
            except FileNotFoundError:
                return  # retention or a conversion was quicker
            try:
                _, position, _, _ = done = topic.done
                end = position if base == done[0] else self.log.storage.size(handle)
                made = Mending(self.log.storage, handle, base, end).missing(marks)
            finally:
                self.log.storage.close(handle)
        if made is None and not whole:
            made = marks
        if made:
            self._replace(topic, base, made, end)

    def _replace(self, topic: ActiveTopic, base: int, marks: list[Mark], end: int) -> None:
        index = index_of(self.log, topic, base)
        # The keeper adds entries of its own.
        with self.log.keeper.turn:
            index.replace([*marks, *(mark for mark in index.load() if mark.position >= end)])
        if base < topic.earliest:
            self.log.storage.unlink(index.path)
