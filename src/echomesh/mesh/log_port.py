"""The topic log as a server has it: appends through the writer, reads through a reader of the same directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from typing_extensions import Buffer

from echomesh.errors import UnknownTopic
from echomesh.log import AsyncTopicLog, LogReader
from echomesh.log.stretch import Stretch
from echomesh.log.topic_reader import TopicReader
from echomesh.log.view import TopicName
from echomesh.mesh.ports import Pending, Staging
from echomesh.native.log_pieces import Pieces
from echomesh.native.log_recent import recent
from echomesh.native.log_record import Records

LAST_NS = (1 << 63) - 1


class LogReads:
    """Reads by environment and topic, with a reader kept for each topic that is in use."""

    KEPT = 4096

    def __init__(self, reader: LogReader) -> None:
        self.reader = reader
        self._names: dict[tuple[str, str], TopicName] = {}
        self._topics: dict[tuple[str, str], TopicReader] = {}

    def _name(self, environment: str, topic: str) -> TopicName | None:
        for new in self.reader.topics()[len(self._names) :]:
            self._names[new.environment, new.name] = new
        return self._names.get((environment, topic))

    def _topic(self, environment: str, topic: str) -> TopicReader:
        found = self._topics.get((environment, topic))
        if found is None:
            name = self._name(environment, topic)
            if name is None:
                raise UnknownTopic(topic, environment)
            found = TopicReader(self.reader, name)
            if len(self._topics) >= self.KEPT:
                del self._topics[next(iter(self._topics))]
            self._topics[environment, topic] = found
        return found

    def topics(self) -> list[TopicName]:
        """All topics of all environments."""
        return self.reader.topics()

    @property
    def moves(self) -> int:
        """Another number as soon as a commit of stages became visible, in all of its topics at once."""
        return self.reader.current().moves

    def bounds(self, environment: str, topic: str) -> tuple[int, int] | None:
        """(earliest, end), None for a topic that is not there."""
        name = self._name(environment, topic)
        if name is None:
            return None
        view = self.reader.current()
        return view.earliest(name.number), view.high(name.number)

    def read(self, environment: str, topic: str, offset: int, *, max_bytes: int, max_records: int = 1 << 40) -> Records:
        """Records from the offset on."""
        return self._topic(environment, topic).read(offset, max_bytes=max_bytes, max_records=max_records)

    def stretch(self, environment: str, topic: str, offset: int, until: int, most: int) -> Stretch | None:
        """The same where they stand, unchecked; None where they have to be read."""
        return self._topic(environment, topic).stretch(offset, until, most)

    def offset_at(self, environment: str, topic: str, time_ns: int) -> int:
        """The first offset that was appended at this time or later."""
        return self._topic(environment, topic).offset_at(min(max(time_ns, 0), LAST_NS))


class AsyncLogPort(LogReads):
    """The log of an event loop's server. `settled` is called in the loop whenever something was answered."""

    def __init__(self, log: AsyncTopicLog, settled: Callable[[], None]) -> None:
        super().__init__(log.reader())
        self.log = log
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._beside = ThreadPoolExecutor(1, "echomesh-mesh-disk")
        self.append = log.append
        log.on_pass = settled

    def _topic(self, environment: str, topic: str) -> TopicReader:
        found = super()._topic(environment, topic)
        found.writer = self.log.core.topics.get((environment, topic))
        return found

    def _name(self, environment: str, topic: str) -> TopicName | None:
        # The writer knows them all, and is quicker than a reader to hear of new ones.
        found = self.log.core.topics.get((environment, topic))
        return None if found is None else TopicName(found.number, environment, topic, found.level)

    def bounds(self, environment: str, topic: str) -> tuple[int, int] | None:
        """(earliest, end), None for a topic that is not there."""
        found = self.log.core.topics.get((environment, topic))
        if found is None:
            return None
        view = self.reader.current()
        return view.earliest(found.number), view.high(found.number)

    def read(self, environment: str, topic: str, offset: int, *, max_bytes: int, max_records: int = 1 << 40) -> Records:
        """Records from the offset on; the last ones from the memory that they were written from."""
        writer = self.log.core.topics.get((environment, topic))
        if writer is not None and offset >= writer.earliest:
            found = recent(self.log.core.commits, writer, offset, max_bytes, max_records)
            if found is not None:
                return found
        return super().read(environment, topic, offset, max_bytes=max_bytes, max_records=max_records)

    @property
    def log_id(self) -> bytes:
        """Names the data directory."""
        return self.log.log_id

    @property
    def staging(self) -> Staging:
        """Staged appends."""
        return self.log.core.stages

    def append_many(
        self,
        topic: str,
        events: Sequence[Buffer] | Pieces,
        *,
        environment: str,
        origins: Sequence[bytes] | bytes | None = None,
    ) -> Pending:
        """Appends events one behind the other."""
        return self.log.append_many(topic, events, environment=environment, origins=origins)

    def beside(self, work: Callable[[], object]) -> Pending:
        """Does work that waits for the disk in a thread of its own, one after the other."""
        future: Future[object] = self._beside.submit(work)
        future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._settled))
        return future

    def close(self) -> None:
        """Ends what was begun beside."""
        self.log.on_pass = None
        self._beside.shutdown()
        self.reader.close()
