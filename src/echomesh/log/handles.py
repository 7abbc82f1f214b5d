"""File handles of segments: as many as are allowed stay open, those used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore


class Handles:
    """The segments that are open for writing.

    A handle stays open while a frame that is kept in memory may be written to it again.
    """

    def __init__(self, log: LogCore, limit: int) -> None:
        self.log = log
        self.limit = limit
        self.topics: OrderedDict[int, ActiveTopic] = OrderedDict()
        self.retired: list[tuple[int, int]] = []
        self.lock = threading.Lock()  # the keeper closes what the writers retire

    def __len__(self) -> int:
        return len(self.topics) + len(self.retired)

    def used(self, topic: ActiveTopic) -> None:
        """The topic's segment is open, and was used just now."""
        self.topics[topic.number] = topic
        self.topics.move_to_end(topic.number)
        if len(self) > self.limit:
            self.close_some(topic)

    def retire(self, handle: int, ticket: int) -> None:
        """The segment is full: it is closed when the frame of that ticket is synced in it."""
        with self.lock:
            self.retired.append((handle, ticket))

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
            self.log.keeper.sync()
            self._close(spared)

    def _close(self, spared: ActiveTopic) -> int:
        released = self.log.commits.released_ticket
        self.close_retired(released)
        closed = 0
        for number, topic in list(self.topics.items()):
            if len(self) <= self.limit * 3 // 4:
                break
            if topic.ticket <= released and topic is not spared:
                del self.topics[number]
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
        """After a roll-back: every topic opens its segment again when it needs it."""
        # Not closed at once: frames that are kept may have to be written there again.
        for topic in self.topics.values():
            if topic.fd >= 0:
                self.retire(topic.fd, topic.ticket)
                topic.fd = -1
        self.topics.clear()

    def close(self) -> None:
        """Closes all of them."""
        self.forget()
        for handle, _ in self.retired:
            self.log.storage.close(handle)
        self.retired.clear()
