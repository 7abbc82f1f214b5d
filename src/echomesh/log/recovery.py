"""After any stop: the checkpoint and the journal say what the log holds, and the segments are made to hold
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from echomesh.errors import StageMissing
from echomesh.log import rebuild, replay, stage_copy, state
from echomesh.log.adopted import Adopted, adopted
from echomesh.log.holding import Hole, Range, apart_bytes, hold
from echomesh.log.index import Index
from echomesh.log.layout import (
    HEADER_BYTES,
    Paths,
    adopted_name,
    bases,
    converted,
    index_name,
    segment_header,
    segment_name,
)
from echomesh.log.state import CommitNote, State, TopicEnd
from echomesh.log.storage import Storage
from echomesh.native.log_frame import APART, RECORDS
from echomesh.native.log_record import find_record, scan

RollForward = Callable[[State, CommitNote, Callable[[int, int, int, bytes], None]], None]
LEAP: Final = 1 << 32  # more offsets than anybody leases: where a lease was lost, numbering goes on behind these


@dataclass
class Report:
    """What was found when the log was opened."""

    replayed_frames: int = 0
    clean: bool = True
    torn_tails: list[tuple[str, int, int]] = field(default_factory=list)  # topic, offset, bytes cut off
    lost: list[Range] = field(default_factory=list)  # holes of topics below the level `disk`
    corrupt: list[Range] = field(default_factory=list)  # acknowledged, and can't be read any more
    kept: list[Range] = field(default_factory=list)  # in no whole commit of the journal, but whole in the segments
    doubtful: list[Range] = field(default_factory=list)  # dropped with a torn commit: hardly, but perhaps acknowledged
    notes: list[str] = field(default_factory=list)


@dataclass
class Recovered:
    """The log's state after recovery."""

    state: State
    sequence: int
    report: Report


class Recovery:
    """Brings the segments to what the checkpoint and the journal say. Doing it twice changes nothing."""

    def __init__(self, storage: Storage, paths: Paths, log_id: bytes, roll_forward: RollForward, now: int = 0) -> None:
        self.storage = storage
        self.paths = paths
        self.log_id = log_id
        self.roll_forward = roll_forward
        self.now = now
        self.report = Report()
        self.handles: dict[tuple[int, int], int] = {}
        self.topics: dict[int, TopicEnd] = {}
        self.converted: dict[int, set[int]] = {}  # the segments of a topic that are Parquet files, whole and synced
        self.adopted: dict[int, dict[int, Adopted]] = {}  # those that are stages

    def run(self) -> Recovered:
        """All of it; on disk, and in a new checkpoint, afterwards."""
        holding = hold(self.storage, self.paths, self.log_id)
        found, report = holding.state, self.report
        clean = found.clean and not holding.replay.frames
        report.clean = clean or not (found.topics or holding.replay.frames)
        report.replayed_frames = len(holding.replay.frames)
        report.notes += holding.notes
        report.notes += [f"journal file {name} ends in a torn commit" for name in holding.replay.torn]
        report.corrupt += holding.corrupt
        report.kept += holding.kept
        report.doubtful += holding.doubtful
        self.topics = {topic.number: topic for topic in found.topics}
        for frame in holding.replay.frames:
            self._write(frame)
        for note in holding.commits:
            self._copy(found, note)
        for hole in holding.holes:
            self._check(hole)
        for topic in found.topics:
            if topic.level == "disk":
                self._cut(topic)
            else:
                self._resume(topic, clean, holding.leases_lost)
        self._sweep()
        for handle in self.handles.values():
            self.storage.close(handle)
        found.clean = found.rebuilt = False
        found.sequence = max(found.sequence, holding.replay.sequence)
        if self.storage.exists(self.paths.topics):
            self.storage.sync_all(self.paths.root)
        state.save(self.storage, self.paths, found)
        for note in holding.commits:
            for stage in note.stages:
                self.storage.unlink(stage_copy.path_of(self.paths, stage))
        return Recovered(found, found.sequence, report)

    def directory(self, number: int) -> str:
        """Of a topic's segments."""
        return self.paths.topic(number, self.topics[number].level, self.log_id)

    def segment(self, number: int, base: int) -> int:
        """The segment's handle; it is made when the crash took it."""
        if (number, base) not in self.handles:
            if len(self.handles) >= 256:
                self.storage.close(self.handles.pop(next(iter(self.handles))))
            self.storage.mkdir(self.directory(number))
            handle = self.storage.open(f"{self.directory(number)}/{segment_name(base)}", create=True)
            header = segment_header(self.log_id, number, base)
            if self.storage.pread(handle, HEADER_BYTES, 0) != header:
                self.storage.pwrite(handle, header, 0)
            self.handles[number, base] = handle
        return self.handles[number, base]

    def _is_converted(self, number: int, base: int) -> bool:
        if number not in self.converted:
            self.converted[number] = set(converted(self.storage.names(self.directory(number))))
        return base in self.converted[number]

    def _adopted(self, number: int) -> dict[int, Adopted]:
        if number not in self.adopted:
            directory = self.directory(number)
            self.adopted[number] = adopted(directory, self.storage.names(directory))
        return self.adopted[number]

    def _adopt(self, number: int, stage: Adopted) -> None:
        # What retention has removed since does not come back.
        known = self._adopted(number)
        if stage.base in known or self._is_converted(number, stage.base) or stage.end <= self.topics[number].earliest:
            return
        if not self.storage.exists(stage.path):
            self.report.corrupt.append((self.topics[number].name, stage.base, stage.end - 1))
            return
        self.storage.mkdir(self.directory(number))
        path = f"{self.directory(number)}/{adopted_name(stage.base, stage.time_ns, stage.count)}"
        self.storage.link(stage.path, path)
        known[stage.base] = replace(stage, path=path)

    def _put(self, number: int, base: int, position: int, data: bytes) -> None:
        if self._is_converted(number, base):
            return
        self.storage.pwrite(self.segment(number, base), data, position)

    def _write(self, frame: replay.Frame) -> None:
        for kind, number, base, position, start, size, end in frame.entries():
            # What retention has removed since does not come back.
            if kind not in (RECORDS, APART) or end <= self.topics[number].earliest:
                continue
            if self._is_converted(number, base):
                continue
            if kind == RECORDS:
                self.storage.pwrite(self.segment(number, base), frame.data[start : start + size], position)
                continue
            topic, length = self.topics[number], apart_bytes(frame.data, start)
            data = self.storage.pread(self.segment(number, base), length, position)
            records = scan(data, 0, end - 1)
            if data[:8] == frame.data[start : start + 8] and len(records) == 1:
                topic.last_time = max(topic.last_time, records.time_ns(0))
            else:
                self.report.corrupt.append((topic.name, end - 1, end - 1))

    def _copy(self, found: State, note: CommitNote) -> None:
        for number, stage in stage_copy.adoptions(self.paths, note):
            self._adopt(number, stage)
        try:
            self.roll_forward(found, note, self._put)
        except StageMissing as error:
            # It was copied before, or it is lost: the segments tell.
            self.report.notes.append(f"commit {note.epoch} of writer {note.writer!r} can't be copied again: {error}")
            for share in note.shares:
                for run in [run for run in share.runs if not run.stage]:
                    topic = self.topics[share.number]
                    self._check(Hole(topic, run.first, run.first + run.count, run.base, run.position))

    def _check(self, hole: Hole) -> None:
        # Whether the segments have what the journal should have had; the ranges that they have not are reported.
        expected, base, position = hole.first, hole.base, hole.position
        directory = self.directory(hole.topic.number)
        while expected < hole.until:
            if (stage := self._adopted(hole.topic.number).get(base if position else expected)) is not None:
                base, position, expected = 0, 0, max(stage.end, expected + 1)
                continue
            if self._is_converted(hole.topic.number, base if position else expected):
                # It was whole when it was converted; go on in the one behind it.
                behind = [other for other in bases(self.storage.names(directory)) if other > expected]
                base, position, expected = 0, 0, min([*behind, hole.until])
                continue
            path = f"{directory}/{segment_name(base if position else expected)}"
            data = state.read_whole(self.storage, path) or b""
            records = scan(data, position or HEADER_BYTES, expected, hole.until)
            at, following = records.next_position, records.next_offset
            if following == expected:
                if position and self._begins(hole.topic.number, expected):
                    position = 0
                    continue
                at, following = find_record(data, min(at, len(data)), expected)
                following = min(following, hole.until) if at >= 0 else hole.until
                self.report.corrupt.append((hole.topic.name, expected, following - 1))
            base, position, expected = (base if position else expected), max(at, 0), following

    def _begins(self, number: int, offset: int) -> bool:
        # Whether a segment of any kind begins there.
        if offset in self._adopted(number) or self._is_converted(number, offset):
            return True
        return self.storage.exists(f"{self.directory(number)}/{segment_name(offset)}")

    def _cut(self, topic: TopicEnd) -> None:
        # What stands behind the end was never acknowledged.
        directory = self.directory(topic.number)
        for stage in self._adopted(topic.number).values():
            if stage.base >= topic.next_offset:
                self.storage.unlink(stage.path)
                self.storage.unlink(f"{directory}/{index_name(stage.base)}")
        for base in bases(self.storage.names(directory)):
            if base > topic.base or (topic.position == 0 and base == topic.base):
                self.storage.unlink(f"{directory}/{segment_name(base)}")
                self.storage.unlink(f"{directory}/{index_name(base)}")
        if topic.position == 0:
            return
        handle = self.segment(topic.number, topic.base)
        size = self.storage.size(handle)
        if size > topic.position:
            tail = self.storage.pread(handle, size - topic.position, topic.position).rstrip(b"\0")
            if tail:
                self.report.torn_tails.append((topic.name, topic.next_offset, len(tail)))
                Index(self.storage, directory, self.log_id, topic.number, topic.base).cut(topic.position)
            self.storage.truncate(handle, topic.position)

    def _sweep(self) -> None:
        # Topics that were begun and never committed leave nothing to those who get their numbers. Without any journal
        # file it is not known what was committed: then it is put where nobody takes it for something else.
        known = any(name.endswith(".jnl") for name in self.storage.names(self.paths.journal))
        for number in sorted(rebuild.numbers(self.storage, self.paths) - set(self.topics)):
            directory = self.paths.topic(number, "disk", self.log_id)
            left = [f"{directory}/{name}" for name in self.storage.names(directory)]
            if self.storage.exists(self.paths.name(number)):
                left.append(self.paths.name(number))
            aside = f"{self.paths.root}/aside/{number:08d}"
            if left and not known:
                self.storage.mkdir(aside)
                self.report.notes.append(f"topic {number}: no journal tells whether it was begun; it is in {aside}")
            for path in left:
                if known:
                    self.storage.unlink(path)
                else:
                    self.storage.rename(path, f"{aside}/{path.rpartition('/')[2]}")

    def _resume(self, topic: TopicEnd, clean: bool, leases_lost: bool) -> None:
        # Numbering goes on behind the lease: no offset is given twice, whatever was lost.
        if clean and topic.level == "os":
            topic.lease = topic.next_offset
            return
        if leases_lost:
            topic.lease = max(topic.lease, topic.next_offset) + LEAP
            # When not even the last lease is known, time is: more than a million events a second would be needed.
            topic.lease = max(topic.lease, self.now // 1000)
        if topic.level == "none":
            directory = self.directory(topic.number)
            for name in self.storage.names(directory):
                self.storage.unlink(f"{directory}/{name}")
            topic.earliest = topic.next_offset = max(topic.lease, topic.next_offset)
            topic.base = topic.position = 0
        else:
            end = self._surviving(topic)
            if end < topic.lease:
                self.report.lost.append((topic.name, end, topic.lease - 1))
            topic.next_offset = max(topic.lease, end)
            topic.base, topic.position = topic.next_offset, 0
        topic.lease = topic.next_offset

    def _surviving(self, topic: TopicEnd) -> int:
        # How far an `os` topic's records can be followed, on from the last checkpoint.
        directory = self.directory(topic.number)
        expected = topic.next_offset
        for base in bases(self.storage.names(directory)):
            start = topic.position if base == topic.base and topic.position else HEADER_BYTES
            if base > expected:
                self.storage.unlink(f"{directory}/{segment_name(base)}")
            elif base == expected or start != HEADER_BYTES:
                handle = self.segment(topic.number, base)
                records = scan(self.storage.pread(handle, self.storage.size(handle), 0), start, expected)
                self.storage.truncate(handle, records.next_position)
                expected = records.next_offset
        return expected
