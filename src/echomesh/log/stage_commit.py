"""One commit of stages: room for the rows, their offsets and places, the journal's word for it, and the copy.

Others append meanwhile. What takes long, room on disk and the copy, happens while nothing is held; offsets are
taken under `slow`, in a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import TYPE_CHECKING, Final

from echomesh.errors import LogError, LogReadOnly, StageMissing
from echomesh.log import duplicates, rebuild, stage_copy, state
from echomesh.log.layout import HEADER_BYTES, adopted_name, segment_header
from echomesh.log.stage_copy import Key, Stage
from echomesh.log.stage_plan import StagePlan, room_of
from echomesh.log.state import CommitNote, Run, Share
from echomesh.native.log_stage import Layout
from echomesh.native.log_staged import CoveredWindow

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore

_NO_HOLD: Final = (1 << 63) - 1
_ROOM_BYTES: Final = 4 << 20  # of a segment that others append to, reserved at once
_SETTLE_ROWS: Final = 4096
_COPY_HANDLES: Final = 64


class StageCommit:
    """The rows of some stages on their way into their topics."""

    def __init__(self, log: LogCore, note: CommitNote, stages: list[tuple[str, Stage]], *, told: bool = False) -> None:
        self.log = log
        self.note = note
        plan = StagePlan(log, stages, note.time_ns, told=told)
        self.stages = plan.stages
        self.whole = plan.whole
        self.layouts = plan.layouts
        self.rooms = plan.links  # files that become segments
        self.rows = plan.windows
        try:
            note.rows = sum(layout.count for layout in self.layouts.values())
            self.topics = {key: log.topic(*key) for key in self.layouts}
            for topic in self.topics.values():
                if topic.level != "disk":
                    raise LogError(f"topic {topic.name!r} has the level {topic.level!r}: only `disk` takes staged rows")
        except BaseException:
            self._clear(list(self.rooms))
            raise

    @property
    def offsets(self) -> dict[Key, tuple[int, int]]:
        """The first offset and the number of rows for each topic."""
        return {key: (share.first, share.count) for key, share in zip(self.topics, self.note.shares, strict=True)}

    def journal(self) -> None:
        """Takes offsets and places; the journal says so afterwards."""
        log, ticket = self.log, None
        try:
            while ticket is None:
                self._prepare()
                with log.slow:
                    ticket = self._take() if self._is_prepared() else None
        except OSError as error:
            raise log.refused(error, sum(layout.bytes for layout in self.layouts.values())) from error
        finally:
            self._clear([key for key in self.rooms if key not in self.whole or ticket is None])
        log.commits.wait(ticket)
        try:
            log.check(ticket)
        except LogError:
            self._let_go()
            self._clear(list(self.whole))
            raise

    def _clear(self, keys: list[Key]) -> None:
        # Files that became no segments.
        for path in [path for key in keys for path in self.rooms[key]]:
            self.log.storage.unlink(path)

    # Room on disk

    def _fits(self, key: Key) -> bool:
        # Whether the rows go on in the topic's segment; else they get segments of their own.
        topic = self.topics[key]
        return (
            key not in self.whole
            and topic.exists
            and topic.position + self.layouts[key].bytes <= self.log.options.segment_bytes
        )

    def _prepare(self) -> None:
        for key, topic in self.topics.items():
            self._open_window(topic)
            if key in self.whole:
                self._make_directory(topic)
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

    def _make_directory(self, topic: ActiveTopic) -> None:
        self.log.storage.mkdir(topic.directory)
        rebuild.write_name(self.log.storage, self.log.paths, topic.number, topic.environment, topic.name, topic.level)

    def _make_rooms(self, key: Key) -> None:
        storage, layout = self.log.storage, self.layouts[key]
        made = self.rooms[key] = []
        self._make_directory(self.topics[key])
        for _, size in layout.pieces if isinstance(layout, Layout) else ():
            made.append(room_of(self.log.paths))
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
        if isinstance(layout, Layout):
            pieces = [(HEADER_BYTES, rows, size, "") for rows, size in layout.pieces]
        else:
            stages = [(name, self.stages[name]) for name in self.whole[key]]
            pieces = [(0, stage.ending.rows, stage.end, name) for name, stage in stages]
        runs: list[Run] = []
        for position, rows, size, stage in pieces:
            runs.append(Run(at, position, at, rows, size, stage))
            at += rows
        return Share(topic.number, first, layout.count, runs)

    def _place(self) -> None:
        # The files get their names, now that they are known.
        storage = self.log.storage
        try:
            for (key, topic), share in zip(self.topics.items(), self.note.shares, strict=True):
                if key in self.whole:
                    continue  # what they hold must not be seen before the journal says so
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
            for run in share.runs if key in self.rooms and key not in self.whole else ():
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
            base, position = run.end
            if key in self.rooms:
                topic.turn_to(base)
            topic.reserve(position, run.count, self.note.time_ns)
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
            self._adopt()
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
            log.water.move([(topic.number, min(topic.done[2], topic.hold)) for topic in self.topics.values()])
        finally:
            log.commits.lead_no_more()

    def _adopt(self) -> None:
        for key, names in self.whole.items():
            topic, first = self.topics[key], self.offsets[key][0]
            for path, name in zip(self.rooms[key], names, strict=True):
                stage = self.stages[name]
                made = adopted_name(first, self.note.time_ns, stage.ending.rows)
                self.log.storage.rename(path, f"{topic.directory}/{made}")
                topic.marks.extend((first, first + row - 1, at, self.note.time_ns) for row, at in stage.ending.marks)
                first += stage.ending.rows

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
