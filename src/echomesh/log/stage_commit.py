"""One commit of stages: room for the rows, their offsets and places, the journal's word for it, and the copy.

Others append meanwhile. What takes long, room on disk and the copy, happens while nothing is held; offsets are
taken under `slow`, in a moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from time import sleep
from typing import TYPE_CHECKING, Final

from echomesh.errors import LogError, LogReadOnly, StageMissing
from echomesh.log import duplicates, rebuild, stage_copy, state
from echomesh.log.layout import HEADER_BYTES, segment_header
from echomesh.log.stage_copy import Ending, Key
from echomesh.log.state import CommitNote, Run, Share
from echomesh.native.log_staged import CoveredWindow
from echomesh.native.log_window import Window

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore

_NO_HOLD: Final = (1 << 63) - 1
_ROOM_BYTES: Final = 4 << 20  # of a segment that others append to, reserved at once
_SETTLE_ROWS: Final = 4096
_COPY_HANDLES: Final = 64


class StageCommit:
    """The rows of some stages on their way into their topics."""

    def __init__(self, log: LogCore, note: CommitNote, stages: list[tuple[str, Ending]]) -> None:
        self.log = log
        self.note = note
        self.stages = dict(stages)
        self.rows: dict[Key, Window] = {}  # hashes of the rows, against duplicates
        self.layouts = stage_copy.lay_out(
            log.storage, log.paths, stages, log.options.segment_bytes, note.time_ns, self._window
        )
        note.rows = sum(layout.count for layout in self.layouts.values())
        self.topics = {key: log.topic(*key) for key in self.layouts}
        for topic in self.topics.values():
            if topic.level != "disk":
                raise LogError(f"topic {topic.name!r} has the level {topic.level!r}: only `disk` takes staged rows")
        self.rooms: dict[Key, list[str]] = {}  # files that become segments

    @property
    def offsets(self) -> dict[Key, tuple[int, int]]:
        """The first offset and the number of rows for each topic."""
        return {key: (share.first, share.count) for key, share in zip(self.topics, self.note.shares, strict=True)}

    def _window(self, key: Key) -> Window | None:
        options = self.log.options
        if options.duplicate_bytes <= 0 or options.duplicate_events <= 0:
            return None
        age_ns = int(options.duplicate_s * 1e9)
        made = self.rows[key] = Window(self.log.budget, self.log.log_id, options.duplicate_events, age_ns)
        return made

    def journal(self) -> None:
        """Takes offsets and places; the journal says so afterwards."""
        log = self.log
        try:
            ticket = None
            while ticket is None:
                self._prepare()
                with log.slow:
                    ticket = self._take() if self._is_prepared() else None
        except OSError as error:
            raise log.refused(error, sum(layout.bytes for layout in self.layouts.values())) from error
        finally:
            for path in [path for paths in self.rooms.values() for path in paths]:
                log.storage.unlink(path)
        log.commits.wait(ticket)
        try:
            log.check(ticket)
        except LogError:
            self._let_go()
            raise

    # Room on disk

    def _fits(self, key: Key) -> bool:
        # Whether the rows go on in the topic's segment; else they get segments of their own.
        topic = self.topics[key]
        return topic.exists and topic.position + self.layouts[key].bytes <= self.log.options.segment_bytes

    def _prepare(self) -> None:
        for key, topic in self.topics.items():
            self._open_window(topic)
            if key in self.rooms:
                continue
            self._extend(key)
            if not self._fits(key):
                self._make_rooms(key)

    def _open_window(self, topic: ActiveTopic) -> None:
        # Before there are rows that it would not find in the segments yet.
        if not topic.windowed:
            made = duplicates.window(self.log, topic, self.log.options.clock())
            with self.log.slow:
                if not topic.windowed:
                    topic.windowed, topic.window = True, made

    def _extend(self, key: Key) -> None:
        # In steps: others who need `slow` come in between.
        more = True
        while more:
            with self.log.slow:
                more = self._fits(key) and not self._has_room(key)

    def _has_room(self, key: Key) -> bool:
        # Whether the topic's segment has blocks for the rows now; a step at a time.
        storage, topic = self.log.storage, self.topics[key]
        wanted = topic.position + self.layouts[key].bytes
        handle = self.log.open_segment(topic, topic.base)
        try:
            there = storage.size(handle)
            if there < wanted:
                storage.allocate(handle, min(wanted, there + _ROOM_BYTES))
            return there + _ROOM_BYTES >= wanted
        finally:
            storage.close(handle)

    def _make_rooms(self, key: Key) -> None:
        storage, topic = self.log.storage, self.topics[key]
        made = self.rooms[key] = []
        storage.mkdir(topic.directory)
        rebuild.write_name(storage, self.log.paths, topic.number, topic.environment, topic.name, topic.level)
        for _, size in self.layouts[key].pieces:
            made.append(f"{self.log.paths.staging}/{uuid.uuid4().hex}.room")
            handle = storage.open(made[-1], create=True)
            try:
                storage.allocate(handle, HEADER_BYTES + size)
            finally:
                storage.close(handle)

    # Offsets and places, under `slow`

    def _is_prepared(self) -> bool:
        # From here on nobody else appends to these topics: who wants to must get `slow`.
        for topic in self.topics.values():
            topic.limit = 0
        return all(key in self.rooms or (self._fits(key) and self._has_room(key)) for key in self.topics)

    def _take(self) -> int:
        log, note, topics = self.log, self.note, list(self.topics.values())
        for topic in topics:
            topic.be_born()
        note.time_ns = max([note.time_ns, *(topic.last_time for topic in topics)])
        note.shares = [self._share(key) for key in self.topics]
        ends = [(topic.base, topic.position, topic.next_offset, topic.last_time) for topic in topics]
        self._place()
        try:
            for key, share in zip(self.topics, note.shares, strict=True):
                self._reserve(key, share)
            if log.stages.uncopied is None:
                log.stages.uncopied = log.commits.last_number
            return log.commits.note(state.encode_note(note), list(topics))
        except BaseException:
            self._undo(ends)
            raise

    def _share(self, key: Key) -> Share:
        topic, layout = self.topics[key], self.layouts[key]
        first = at = topic.next_offset
        if key not in self.rooms:
            run = Run(topic.base, topic.position, first, layout.count, layout.bytes)
            return Share(topic.number, first, layout.count, [run])
        runs: list[Run] = []
        for rows, size in layout.pieces:
            runs.append(Run(at, HEADER_BYTES, at, rows, size))
            at += rows
        return Share(topic.number, first, layout.count, runs)

    def _place(self) -> None:
        # The files get their names, now that they are known.
        storage = self.log.storage
        try:
            for (key, topic), share in zip(self.topics.items(), self.note.shares, strict=True):
                for path, run in zip(self.rooms.get(key, ()), share.runs, strict=key in self.rooms):
                    handle = storage.open(path)
                    try:
                        storage.pwrite(handle, segment_header(self.log.log_id, topic.number, run.base), 0)
                    finally:
                        storage.close(handle)
                    storage.rename(path, topic.path(run.base))
        except OSError:
            self._remove_placed()
            raise

    def _remove_placed(self) -> None:
        for (key, topic), share in zip(self.topics.items(), self.note.shares, strict=True):
            for run in share.runs if key in self.rooms else ():
                # A segment that the topic had begun, and written nothing to, has been replaced by one like it.
                if run.base == topic.base and topic.exists:
                    self.log.handles.let_go(topic)
                else:
                    self.log.storage.unlink(topic.path(run.base))

    def _reserve(self, key: Key, share: Share) -> None:
        topic = self.topics[key]
        holds = self.log.stages.holds.setdefault(topic, [])
        holds.append(share.first)
        topic.hold = min(holds)
        for run in share.runs:
            if key in self.rooms:
                topic.turn_to(run.base)
            topic.reserve(run.position + run.bytes, run.count, self.note.time_ns)
        topic.limit = 0
        if topic.window is not None and key in self.rows:
            topic.window = CoveredWindow(topic.window, self.rows[key], share.first, self.note.time_ns)

    def _undo(self, ends: list[tuple[int, int, int, int]]) -> None:
        # Topics end where they did before, and the segments that were meant for the rows go.
        self._let_go()
        for topic, (base, position, offset, time_ns) in zip(self.topics.values(), ends, strict=True):
            self.log.handles.let_go(topic)
            topic.roll(-1, base, position, 0)
            topic.reserve(position, offset - topic.next_offset, time_ns)
        self._remove_placed()

    def _let_go(self) -> None:
        for topic, share in zip(self.topics.values(), self.note.shares, strict=True):
            holds = self.log.stages.holds.get(topic, [])
            if share.first in holds:
                holds.remove(share.first)
            topic.hold = min(holds, default=_NO_HOLD)
            if isinstance(topic.window, CoveredWindow):
                topic.window = topic.window.own

    # The copy

    def copy(self) -> None:
        """Copies the rows to their places; readers see them afterwards."""
        log = self.log
        try:
            self._write()
        except (OSError, StageMissing) as error:
            # It is committed, and recovery will copy it; until then readers wait before it.
            refusal = log.refused(error, 0) if isinstance(error, OSError) else LogReadOnly(log.paths.root, str(error))
            log.commits.refusal = refusal
            raise refusal from error
        log.stages.copies.append((log.keeper.started, list(self.note.stages)))
        for topic in self.topics.values():
            while isinstance(topic.window, CoveredWindow) and not topic.window.settle(_SETTLE_ROWS):
                sleep(0)
        log.commits.take_leadership()  # nobody else shows anything meanwhile
        try:
            self._let_go()
            for topic in self.topics.values():
                log.water.set_high(topic.number, min(topic.done[2], topic.hold))
        finally:
            log.commits.lead_no_more()

    def _write(self) -> None:
        log = self.log
        handles: dict[tuple[int, int], int] = {}

        def mark(number: int, base: int, offset: int, position: int) -> None:
            log.numbered[number].marks.append((base, offset, position, self.note.time_ns))

        try:
            for number, base, position, data in self._copies(mark):
                if (number, base) not in handles:
                    if len(handles) >= _COPY_HANDLES:
                        log.storage.close(handles.pop(next(iter(handles))))
                    handles[number, base] = log.open_segment(log.numbered[number], base)
                log.storage.pwrite(handles[number, base], data, position)
        finally:
            for handle in handles.values():
                log.storage.close(handle)

    def _copies(self, mark: stage_copy.Mark) -> Iterator[tuple[int, int, int, bytes]]:
        keys = {topic.number: key for key, topic in self.topics.items()}
        return stage_copy.copies(self.log.storage, self.log.paths, self.note, keys, mark, self.stages)
