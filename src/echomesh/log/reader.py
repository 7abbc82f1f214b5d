"""Readers: any number, in any process. They see what is on disk, and never wait for the writer nor it for
them.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from echomesh.errors import FileGone, UnknownTopic
from echomesh.log import layout, state
from echomesh.log.closing import Closing
from echomesh.log.lock import writer_of
from echomesh.log.storage import RealStorage, Storage
from echomesh.log.tail import LOOK_S, Place, Watcher
from echomesh.log.topic_reader import TopicReader
from echomesh.log.view import LiveView, TopicName, View, on_network, open_view, sealed, signature
from echomesh.native.log_record import Records
from echomesh.topics import parse_topic

ENVIRONMENT = "TST"
MAX_HANDLES = 128
SETTLING_S = 2.5  # file systems count time in steps of up to two seconds


class LogReader(Closing):
    """Reads a data directory, while a writer runs or not."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        storage: Storage | None = None,
        sealed_only: bool | None = None,
    ) -> None:
        # On a network file system neither the lock nor the map of high-watermarks tells anything of the writer.
        self.storage: Storage = storage or RealStorage()
        self.paths = layout.paths(Path(directory))
        found = state.read_whole(self.storage, self.paths.log_id)
        if found is None or len(found) < 16:
            raise FileGone(2, "no log in this directory", self.paths.root)
        self.log_id = found[:16]
        self.handles: OrderedDict[str, int] = OrderedDict()
        self.max_handles = MAX_HANDLES
        self.sealed_only = on_network(self.paths.root) if sealed_only is None else sealed_only
        self.signature: tuple[object, ...] = ()  # of the files that the last look found
        self.unchanged_since = 0.0
        self.settled = False
        self.view: View = self._open_view()

    def _open_view(self) -> View:
        if self.sealed_only:
            return sealed(self.storage, self.paths, self.log_id)
        return open_view(self.storage, self.paths, self.log_id)

    def refresh(self) -> None:
        """Looks anew whether a writer runs, and without one at the journal."""
        self.view = self._open_view()

    def look(self) -> None:
        """`refresh`, unless nothing has changed for so long that there is nothing new for sure."""
        now = monotonic()
        found = signature(self.storage, self.paths)
        writer = found[0] and not self.sealed_only
        if found != self.signature or writer:
            self.signature, self.unchanged_since, self.settled = found, now, False
        elif self.settled:
            return
        # A write in the moment of the look may have left the file's time as it was.
        self.settled = now - self.unchanged_since > SETTLING_S
        self.refresh()

    def current(self) -> View:
        """The view, replaced when the writer has come, gone or begun a new file."""
        if self.view.live and self.view.stale():
            self.refresh()
        return self.view

    def topics(self) -> list[TopicName]:
        """The topics there are."""
        return self.current().topics()

    def bounds(self, numbers: Callable[[], list[int]]) -> list[tuple[int, int]]:
        """(earliest, end) of each of these topics, all of one moment.

        What one commit of stages wrote to several topics is in all of them or in none. `numbers` is asked again when a
        commit came meanwhile, which may have made topics.
        """
        while True:
            view = self.current()
            moves = view.moves
            wanted = numbers()
            if view is self.view:
                found = view.bounds(wanted)
                if view.moves == moves:
                    return found

    def topic(self, name: str, *, environment: str = ENVIRONMENT) -> TopicReader:
        """A reader of one topic; `UnknownTopic` when there is none."""
        name = parse_topic(name)
        found = self.current().find(environment, name)
        if found is None:
            raise UnknownTopic(name, environment)
        return TopicReader(self, found)

    def wait(self, number: int, offset: int, timeout: float) -> bool:
        """Sleeps until the topic has an event at `offset`, or the time is over."""
        view = self.current()
        if view.high(number) > offset:
            return True
        if isinstance(view, LiveView):
            # Not longer than a second: a writer that was killed wakes nobody, and has not shown its last commit.
            if not view.water.wait(number, offset, min(timeout, 1.0)) and writer_of(self.paths.lock) == 0:
                self.refresh()
        else:
            sleep(min(timeout, LOOK_S))
            self.look()
        return self.current().high(number) > offset

    async def wait_async(self, places: Sequence[Place], timeout: float | None = None) -> bool:
        """Waits until one of these topics, by number, has an event at its offset; the event loop goes on
        meanwhile.
        """
        if self._reached(places):
            return True
        waiter = Watcher.add(self, places)
        try:
            # What came before the watcher knew of us is seen here.
            if self._reached(places):
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await waiter.future
        finally:
            Watcher.remove(self, waiter)
        if not self.view.live:
            self.look()
        return self._reached(places)

    def _reached(self, places: Sequence[Place]) -> bool:
        view = self.current()
        return any(view.high(number) > offset for number, offset in places)

    async def tail(
        self, offsets: Mapping[str, int], *, environment: str = ENVIRONMENT, timeout: float | None = None
    ) -> AsyncIterator[tuple[str, Records]]:
        """(topic, batch) of these topics from these offsets on, and of what comes later, until nothing came
        for `timeout` seconds.
        """
        topics = {name: self.topic(name, environment=environment) for name in offsets}
        places = dict(offsets)
        while True:
            idle = True
            for name, topic in topics.items():
                records = topic.read(places[name])
                if len(records):
                    idle = False
                    places[name] = records.next_offset
                    yield name, records
            if idle and not await self.wait_async([(topics[name].number, at) for name, at in places.items()], timeout):
                return

    def again(self) -> LogReader:
        """Another reader of the same directory."""
        return LogReader(self.paths.root, storage=self.storage, sealed_only=self.sealed_only)

    def handle(self, path: str) -> int:
        """An open file, kept for the next read."""
        found = self.handles.pop(path, None)
        if found is None:
            found = self.storage.open(path)
        self.handles[path] = found
        if len(self.handles) > self.max_handles:
            self.storage.close(self.handles.popitem(last=False)[1])
        return found

    def drop(self, path: str) -> None:
        """Closes a file that is gone or no longer wanted."""
        if path in self.handles:
            self.storage.close(self.handles.pop(path))

    def close(self) -> None:
        """Closes its files."""
        for handle in self.handles.values():
            self.storage.close(handle)
        self.handles.clear()

    def __del__(self) -> None:
        # Handles are numbers: nobody else closes them for who forgot to.
        if hasattr(self, "handles"):
            self.close()
