"""The faces of the log for those who write: `TopicLog` for threads, `AsyncTopicLog` for asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from echomesh.events import Event
from echomesh.log.active import ActiveTopic
from echomesh.log.closing import Closing
from echomesh.log.core import LogCore
from echomesh.log.options import LogOptions
from echomesh.log.reader import LogReader
from echomesh.log.recovery import Report
from echomesh.log.staging import AsyncStageWriter, Committed, StageWriter
from echomesh.native.log_appends import ENVIRONMENT, Appends
from echomesh.native.log_fill import FULL


def _bytes(event: Buffer | Event) -> Buffer:
    return event.encode() if isinstance(event, Event) else event


class _Face:
    """What both faces share."""

    def __init__(self, directory: str | os.PathLike[str], options: LogOptions | None = None) -> None:
        self.core = LogCore(directory, options or LogOptions())

    @property
    def log_id(self) -> bytes:
        """The directory's own: offsets are worth nothing beside another one."""
        return self.core.log_id

    @property
    def report(self) -> Report:
        """What was found when the log was opened."""
        return self.core.report

    @property
    def shrunk_windows(self) -> list[tuple[str, str]]:
        """(environment, topic) where duplicates are recognized for less long than was asked, for want of memory."""
        return self.core.shrunk_windows()

    def _create(self, environment: str, topic: str, level: str) -> None:
        made = self.core.topic(environment, topic, level)
        with self.core.slow:
            made.be_born()
            born = made.born
        self.core.commits.wait(born)
        self.core.check(born)

    def reader(self) -> LogReader:
        """A reader of this directory."""
        return LogReader(self.core.paths.root, storage=self.core.storage)


class TopicLog(_Face, Closing):
    """The log of a data directory, open for writing, for any number of threads.

    An append returns when the event is on disk; threads that append at the same time share one sync.
    """

    def create(self, topic: str, *, level: str = "disk", environment: str = ENVIRONMENT) -> None:
        """Makes a topic of this level: `disk`, `os` (in the page cache) or `none` (in memory); known for
        good afterwards.
        """
        self._create(environment, topic, level)

    def append(
        self,
        topic: str,
        event: Buffer | Event,
        *,
        environment: str = ENVIRONMENT,
        origin: bytes | None = None,
    ) -> int:
        """Appends an event, encoded as on the wire; its offset."""
        core = self.core
        found = core.topics.get((environment, topic))
        if found is None or not found.journaled or core.closed:
            origins = None if origin is None else (origin,)
            return self.append_many(topic, (event,), environment=environment, origins=origins)[0]
        data = _bytes(event)
        while (offset := core.commits.append(found, data, core.options.clock(), origin)) == FULL:
            self._make_way(found)
        return offset

    def append_many(
        self,
        topic: str,
        events: Sequence[Buffer | Event],
        *,
        environment: str = ENVIRONMENT,
        origins: Sequence[bytes | None] | None = None,
    ) -> list[int]:
        """Appends events one behind the other; their offsets. They share one sync, but not one fate in a
        crash.
        """
        core = self.core
        core.check_open()
        found = core.topic(environment, topic)
        now = core.options.clock()
        if found.level != "disk":
            return core.add_loose(found, [bytes(_bytes(event)) for event in events], now, origins)
        offsets: list[int] = []
        failures = core.failures
        for i, event in enumerate(events):
            data = _bytes(event)
            origin = origins[i] if origins is not None else None
            while (offset := core.commits.add(found, data, now, origin)) == FULL:
                self._make_way(found)
            offsets.append(offset)
        if offsets and max(offsets) >= found.done[2]:
            core.commits.wait(found.ticket)
        if core.failures is not failures:
            # Something was rolled back meanwhile, perhaps these; then others may have their offsets by now.
            core.commits.raise_last()
        return offsets

    def _make_way(self, topic: ActiveTopic) -> None:
        core = self.core
        if not core.commits.idle:
            core.commits.wait(core.commits.done + 1)
        elif core.options.background:
            core.commits.wait_for_room(0.05)
        else:
            core.keeper.care()

    def stage(self, writer: str, epoch: int, run: str, part: int = 0) -> StageWriter:
        """Begins a stage: rows that belong to no topic until `commit` names it."""
        return self.core.stages.stage(writer, epoch, run, part)

    def commit(self, writer: str, epoch: int, run: str, stages: Sequence[str]) -> Committed:
        """Makes these stages part of their topics, all or none; the same epoch again answers as the first
        time.
        """
        return self.core.stages.commit(writer, epoch, run, list(stages))

    def abort(self, writer: str, epoch: int) -> None:
        """Drops the stages of an epoch that was not committed."""
        self.core.stages.abort(writer, epoch)

    def close(self) -> None:
        """Leaves the directory in order, for the next writer."""
        self.core.close()


class AsyncTopicLog(Appends, _Face):
    """The log of a data directory, open for writing, for an event loop.

    `append` gives a future at once, so that any number may be in flight; they are on disk, and answered, in
    order. Whoever does not wait for answers is refused with `LogBusy` when too much waits.
    """

    def __init__(self, directory: str | os.PathLike[str], options: LogOptions | None = None) -> None:
        _Face.__init__(self, directory, options)
        self._loop = asyncio.get_running_loop()
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.attach(self.core, self._loop, self._signal, self.core.options.line_bytes)
        self._loop.add_reader(self._signal, self._harvest)
        self.core.commits.signal(self._signal)
        self._thread = threading.Thread(target=self.core.commits.run, name="echomesh-log-commit", daemon=True)
        self._thread.start()

    async def create(self, topic: str, *, level: str = "disk", environment: str = ENVIRONMENT) -> None:
        """Makes a topic of this level: `disk`, `os` (in the page cache) or `none` (in memory); known for
        good afterwards.
        """
        await asyncio.to_thread(self._create, environment, topic, level)

    async def room(self) -> None:
        """Waits until every append so far has its place in a commit."""
        await self.when_room()

    async def stage(self, writer: str, epoch: int, run: str, part: int = 0) -> AsyncStageWriter:
        """Begins a stage: rows that belong to no topic until `commit` names it."""
        return AsyncStageWriter(await asyncio.to_thread(self.core.stages.stage, writer, epoch, run, part))

    async def commit(self, writer: str, epoch: int, run: str, stages: Sequence[str]) -> Committed:
        """Makes these stages part of their topics, all or none; the same epoch again answers as the first
        time.
        """
        return await asyncio.to_thread(self.core.stages.commit, writer, epoch, run, list(stages))

    async def abort(self, writer: str, epoch: int) -> None:
        """Drops the stages of an epoch that was not committed."""
        await asyncio.to_thread(self.core.stages.abort, writer, epoch)

    async def close(self) -> None:
        """Answers what waits, and leaves the directory in order for the next writer."""
        if self.core.closed:
            return
        await self.when_idle()
        self.detach()
        self.core.commits.stop()
        await asyncio.to_thread(self._finish)
        self._loop.remove_reader(self._signal)
        self.core.commits.signal(-1)
        os.close(self._signal)

    def _finish(self) -> None:
        self._thread.join()
        self.core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
