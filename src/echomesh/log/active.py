"""A topic as the writer has it open: its segment, and how the next one is made."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from echomesh.log import duplicates, index, rebuild
from echomesh.log.journal import FULL_CODES
from echomesh.log.layout import HEADER_BYTES, bases, segment_header, segment_name
from echomesh.log.state import TopicEnd
from echomesh.native.log_record import SHORT, scan
from echomesh.native.log_topic import Topic

if TYPE_CHECKING:
    from echomesh.log.core import LogCore

FIRST_BYTES: Final = 4096
SMALL_BYTES: Final = 256 << 10
LARGE_BYTES: Final = 64 << 10


class ActiveTopic(Topic):
    """Where the next record goes, the segments that are there, and what is known of the topic."""

    def __init__(self, log: LogCore, end: TopicEnd) -> None:
        self.log = log
        self.environment = end.environment
        self.name = end.name
        self.level = end.level
        self.journaled = end.level == "disk"
        self.number = end.number
        self.lease = end.lease
        self.lease_wanted = end.lease  # asked for in the frame of `lease_ticket`
        self.lease_ticket = 0
        self.born = 0  # the ticket of the frame that makes it known for good
        self.earliest = end.earliest
        self.directory = log.paths.topic(end.number, end.level, log.log_id)
        self.windowed = False
        self.named = True  # whether the segment's name is on disk
        self.resumed = end.base if end.position else -1  # the segment that an earlier writer had begun
        self.place(end.base, end.position, end.next_offset, end.last_time)

    @property
    def exists(self) -> bool:
        """Whether there is a segment yet: its header is behind the first bytes."""
        return self.position > 0

    def end(self) -> TopicEnd:
        """The topic as of the last commit, for a checkpoint."""
        base, position, offset, last_time = self.done
        return TopicEnd(
            self.number, self.environment, self.name, self.level,
            base, position, offset, last_time, max(self.lease, self.lease_wanted), self.earliest,
        )  # fmt: skip

    def segments(self) -> list[int]:
        """The first offsets of the segments that are there."""
        return bases(self.log.storage.names(self.directory))

    def first_time(self, base: int) -> int:
        """When the first record of a segment was appended; far in the future when there is none yet."""
        handle = self.log.open_segment(self, base)
        try:
            records = scan(self.log.storage.pread(handle, FIRST_BYTES, HEADER_BYTES), 0, base, max_records=1)
            if records.stopped == SHORT:
                records = scan(
                    self.log.storage.pread(handle, self.log.storage.size(handle), HEADER_BYTES), 0, base, max_records=1
                )
        finally:
            self.log.storage.close(handle)
        return records.time_ns(0) if len(records) else 1 << 62

    def path(self, base: int) -> str:
        """The segment's file."""
        return f"{self.directory}/{segment_name(base)}"

    def make_room(self, needed: int) -> None:
        """Opens, extends or begins a segment, so that so many bytes have a place at `position`."""
        with self.log.slow:
            if self.fd >= 0 and self.position + needed <= self.limit:
                return
            self.be_born()
            try:
                if not self.windowed:
                    self.windowed = True
                    self.window = duplicates.window(self.log, self, self.log.options.clock())
                self._make_room(needed)
            except OSError as error:
                raise self.log.refused(error, needed) from error
            if needed > LARGE_BYTES and not self.named:
                # A large record's only copy is in the segment, so the segment's name must last as well.
                self.log.sync_names(self)
                self.named = True

    def be_born(self) -> None:
        """Puts the topic into the journal again when the frame that made it known was lost."""
        if self.born < 0:
            self.born = self.log.note_topic(self.end())

    def _make_room(self, needed: int) -> None:
        if (
            self.exists and self.position + needed > max(self.log.options.segment_bytes, HEADER_BYTES + needed)
        ) or not self.exists:
            self._begin(needed)
        elif self.fd < 0:
            self.fd = self.log.open_segment(self, self.base)
            self.limit = 0
        if self.position + needed > self.limit:
            self._extend(needed)
        self.log.handles.used(self)

    def _extend(self, needed: int) -> None:
        # In larger steps while it is small: the file system has work with each of them.
        least, steps = self.position + needed, 4 if self.position < SMALL_BYTES else 2
        wanted = max(least, min(steps * self.position, self.log.options.segment_bytes))
        try:
            self._allocate(max(FIRST_BYTES, wanted))
        except OSError as error:
            if error.errno not in FULL_CODES or wanted == least:
                raise
            # There may be room for this one all the same.
            self._allocate(least)

    def _allocate(self, size: int) -> None:
        size = -(-size // 4096) * 4096
        self.log.storage.allocate(self.fd, size)
        self.limit = size

    def _begin(self, needed: int) -> None:
        # A smaller record of another thread, which still fits into the old segment, must not take the offset.
        self.limit = 0
        base, size = self.next_offset, -(-(HEADER_BYTES + needed) // 4096) * 4096
        storage = self.log.storage
        storage.mkdir(self.directory)
        rebuild.write_name(storage, self.log.paths, self.number, self.environment, self.name, self.level)
        handle = storage.open(self.path(base), create=True)
        try:
            storage.truncate(handle, 0)
            storage.pwrite(handle, segment_header(self.log.log_id, self.number, base), 0)
            storage.allocate(handle, size)
        except OSError:
            storage.close(handle)
            storage.unlink(self.path(base))
            raise
        self.named = False
        self._leave()
        self.roll(handle, base, HEADER_BYTES, size)

    def _leave(self) -> None:
        # The old segment ends with its last record.
        if self.fd >= 0:
            self.log.storage.truncate(self.fd, self.position)
            self.log.handles.retire(self.fd, self.ticket)
            self.fd = -1

    def turn_to(self, base: int) -> None:
        """Goes on in a segment that was prepared; it is opened when it is needed."""
        self._leave()
        self.log.handles.let_go(self)
        self.roll(-1, base, HEADER_BYTES, 0)
        self.named = False

    def remove_memory(self) -> None:
        """Removes the segments of a `none` topic."""
        if self.level == "none":
            for name in self.log.storage.names(self.directory):
                self.log.storage.unlink(f"{self.directory}/{name}")
            with suppress(OSError):
                Path(self.directory).rmdir()
                Path(self.directory).parent.rmdir()

    def flush_index(self) -> None:
        """Writes the entries that were collected for the index."""
        count = len(self.marks)
        taken, self.marks[:count] = self.marks[:count], []
        by_base: dict[int, list[index.Mark]] = {}
        done = self.done[2]
        for base, offset, position, time_ns in taken:
            if offset < done:
                by_base.setdefault(base, []).append(index.Mark(offset, time_ns, position))
            else:
                self.marks.append((base, offset, position, time_ns))
        for base, marks in by_base.items():
            index.Index(self.log.storage, self.directory, self.log.log_id, self.number, base).extend(marks)
