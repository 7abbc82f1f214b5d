"""File handles of segments: as many as are allowed stay open, those used last."""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from echomesh.log.layout import index_name

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore

FEWEST: Final = 16
WIPED_BYTES: Final = 16  # a record without a length is none


def allowed(wanted: int, part: int = 4) -> int:
    """How many segments may be open, of those wanted: this part of the files that the process may open.

    Where that is less, the process's limit goes up as far as its hard limit lets it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = part * wanted
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, raised), hard))
        wanted = min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // part)
    return max(FEWEST, wanted)


@contextmanager
def _let_go_of(lock: threading.RLock) -> Iterator[None]:
    # As a condition does it while it waits: however often this thread holds the lock.
    saved = lock._release_save()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        lock._acquire_restore(saved)  # type: ignore[attr-defined]


class Handles:
    """The segments that are open for writing.

    A handle stays open while a frame that is kept in memory may be written to it again.
    """

    def __init__(self, log: LogCore, limit: int) -> None:
        self.log = log
        self.limit = allowed(limit)
        self.topics: OrderedDict[int, ActiveTopic] = OrderedDict()
        self.opened: dict[int, int] = {}  # their handles, which a roll-back takes from the topics
        self.retired: list[tuple[int, int]] = []
        self.spared: list[ActiveTopic] = []  # somebody is about to write to them
        self.lock = threading.Lock()  # the keeper closes what the writers retire

    def __len__(self) -> int:
        return len(self.topics) + len(self.retired)

    def used(self, topic: ActiveTopic) -> None:
        """The topic's segment is open, and was used just now."""
        self.topics[topic.number] = topic
        self.opened[topic.number] = topic.fd
        self.topics.move_to_end(topic.number)
        if len(self) > self.limit:
            self.close_some(topic)

    def retire(self, handle: int, ticket: int) -> None:
        """The segment is full: it is closed when the frame of that ticket is synced in it."""
        with self.lock:
            self.retired.append((handle, ticket))

    def let_go(self, topic: ActiveTopic) -> None:
        """The topic's segment is used no longer; it is closed once its frames are synced in it."""
        self.topics.pop(topic.number, None)
        self.opened.pop(topic.number, None)
        if topic.fd >= 0:
            self.retire(topic.fd, topic.ticket)
            topic.fd = -1

    def close_retired(self, released: int) -> None:
        """Closes full segments whose frames are no longer kept."""
        with self.lock:
            done = [handle for handle, ticket in self.retired if ticket <= released]
            self.retired = [entry for entry in self.retired if entry[1] > released]
        for handle in done:
            self.log.storage.close(handle)

    def close_some(self, spared: ActiveTopic) -> None:
        """Makes room for a quarter of the limit; syncs the segments first when all of them are still
        needed.
        """
        if self._close(spared) == 0:
            self.spared.append(spared)
            try:
                # Who syncs may have to wait for whoever commits, who may wait for `slow`.
                with _let_go_of(self.log.slow):
                    self.log.keeper.sync()
            finally:
                self.spared.remove(spared)
            self._close(spared)

    def _close(self, spared: ActiveTopic) -> int:
        released = self.log.commits.released_ticket
        self.close_retired(released)
        closed = 0
        for number, topic in list(self.topics.items()):
            if len(self) <= self.limit * 3 // 4:
                break
            if topic.ticket <= released and topic is not spared and topic not in self.spared:
                del self.topics[number], self.opened[number]
                self.log.storage.close(topic.fd)
                topic.fd = -1
                closed += 1
        return closed

    def trim(self) -> None:
        """Gives back the room behind each segment's last record."""
        for topic in self.topics.values():
            self.log.storage.truncate(topic.fd, topic.position)
            topic.limit = 0

    def forget(self) -> None:
        """Before a roll-back: every journaled topic opens its segment again when it needs it, and what was begun
        since the last commit goes.
        """
        for topic in self.log.numbered:
            if topic.journaled:
                # Not closed at once: frames that are kept may have to be written there again.
                self.let_go(topic)
                base, position, _, _ = topic.done
                if topic.exists and (topic.base != base or not position):
                    self._drop_begun(topic)
                if position and (topic.base != base or topic.position > position):
                    self._wipe(topic)

    def lost(self, topic: ActiveTopic) -> None:
        """After a failed write to a topic that is not journaled, which was rolled back."""
        if topic.fd < 0 <= self.opened.get(topic.number, -1):
            del self.topics[topic.number]
            self.log.storage.close(self.opened.pop(topic.number))
            self._drop_begun(topic)

    def _wipe(self, topic: ActiveTopic) -> None:
        # What is refused must not be read. Its offsets go to others, which may be the first of a new segment: a reader
        # that does not know of that one yet looks for them here.
        base, position, _, _ = topic.done
        with suppress(OSError):
            handle = self.log.open_segment(topic, base)
            try:
                left = self.log.storage.size(handle) - position
                self.log.storage.pwrite(handle, bytes(min(max(left, 0), WIPED_BYTES)), position)
            finally:
                self.log.storage.close(handle)

    def _drop_begun(self, topic: ActiveTopic) -> None:
        # Segments without anything that was committed: readers would look there for events that will stand in
        # the segment before.
        base, position, _, _ = topic.done
        for other in topic.segments():
            if other > base or (other == base and not position):
                self.log.storage.unlink(topic.path(other))
                self.log.storage.unlink(f"{topic.directory}/{index_name(other)}")

    def close(self) -> None:
        """Closes all of them."""
        for topic in list(self.topics.values()):
            self.let_go(topic)
        for handle, _ in self.retired:
            self.log.storage.close(handle)
        self.retired.clear()
