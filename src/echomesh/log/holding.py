"""What the log holds: the checkpoint, carried on by the journal, and what the segments and the file of
high-watermarks know beyond. Reads only: recovery and readers without a writer both begin with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from echomesh.errors import LogDamaged, StorageError
from echomesh.log import rebuild, replay, state
from echomesh.log.adopted import adopted
from echomesh.log.layout import HEADER_BYTES, Paths, check_segment_header, segment_name
from echomesh.log.lock import boot_id
from echomesh.log.replay import Replay
from echomesh.log.state import CommitNote, LeaseNote, State, TopicEnd, TopicNote
from echomesh.log.storage import Storage
from echomesh.native.log_frame import NOTE, RECORDS
from echomesh.native.log_record import find_record, scan
from echomesh.native.log_water import Watermarks

_MAX_CLAIM: Final = 1 << 24
_READS: Final = 8  # of a journal that changes meanwhile

Range = tuple[str, int, int]  # topic, first and last offset


@dataclass(frozen=True)
class Hole:
    """Offsets of a topic that the journal should have and has not, and where their records should stand."""

    topic: TopicEnd
    first: int
    until: int
    base: int
    position: int


@dataclass
class Holding:
    """The state after the last commit, and what was found on the way."""

    state: State
    replay: Replay
    commits: list[CommitNote] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    corrupt: list[Range] = field(default_factory=list)  # acknowledged, and nowhere whole
    kept: list[Range] = field(default_factory=list)  # not in the journal any more, but whole in the segments
    doubtful: list[Range] = field(default_factory=list)  # of a last commit that is not whole: perhaps acknowledged
    notes: list[str] = field(default_factory=list)
    settled: bool = True  # else one checkpoint after the other was written meanwhile: it may be of no one moment

    @property
    def leases_lost(self) -> bool:
        """Whether offsets may have been leased that nothing tells of any more."""
        return bool(self.replay.missing or self.corrupt or self.state.rebuilt)


def hold(storage: Storage, paths: Paths, log_id: bytes) -> Holding:
    """All that the files of the log tell."""
    reads = 0
    while True:
        found, notes = load_state(storage, paths, log_id)
        journal = replay.read(storage, paths.journal, log_id, found.number)
        reads += 1
        # A writer that came meanwhile uses journal files again once its checkpoint has what was in them.
        newest, _ = _checkpoint(storage, paths, log_id)
        settled = newest is None or newest.number <= found.number
        if settled or reads == _READS:
            break
    holding = Holding(found, journal, notes=notes, settled=settled)
    _Carrying(storage, paths, holding).run()
    return holding


def load_state(storage: Storage, paths: Paths, log_id: bytes) -> tuple[State, list[str]]:
    """The newest whole checkpoint, or what the segments themselves tell when there is none."""
    found, notes = _checkpoint(storage, paths, log_id)
    if found is None and (found := rebuild.rebuild(storage, paths, log_id)) is not None:
        notes.append(
            "no checkpoint: topics and their ends are those of the segments; what transactional writers "
            "committed before the journal is forgotten"
        )
        first = replay.read(storage, paths.journal, log_id, 0).frames[:1]
        found.number = first[0].number - 1 if first else 0
    return found or State(log_id), notes


def _checkpoint(storage: Storage, paths: Paths, log_id: bytes) -> tuple[State | None, list[str]]:
    found: State | None = None
    notes: list[str] = []
    for path in (paths.checkpoint, paths.checkpoint_copy):
        try:
            read = state.load(storage, path)
            if read is not None and read.log_id != log_id:
                raise LogDamaged(path, "it belongs to another log")
            if read is not None and (found is None or read.number > found.number):
                found = read
        except LogDamaged as error:
            notes.append(f"{error}; it is made anew from what else there is")
    return found, notes


class _Carrying:
    """Carries the state on by the journal's frames, and then by what else is known."""

    def __init__(self, storage: Storage, paths: Paths, holding: Holding) -> None:
        self.storage = storage
        self.paths = paths
        self.holding = holding
        self.state = holding.state
        self.topics = {topic.number: topic for topic in self.state.topics}

    def run(self) -> None:
        for frame in self.holding.replay.frames:
            if frame.mended:
                self.holding.notes.append(f"journal: a flipped bit in commit {frame.number} was put right")
            for kind, number, base, position, start, size, end in frame.entries():
                if kind == NOTE:
                    self._note(frame.data[start : start + size], frame.number)
                elif kind == RECORDS:
                    first = int.from_bytes(frame.data[start + 8 : start + 16], "little")
                    time_ns = _last_time(frame.data, start, size, first)
                    self._advance(number, first, base, position + size, end, time_ns)
                else:
                    length = apart_bytes(frame.data, start)
                    self._advance(number, end - 1, base, position + length, end, -1)
            self.state.number = frame.number
        for first, last in self.holding.replay.missing:
            self.holding.notes.append(f"journal: commits {first} to {last} are missing")
            self.state.number = max(self.state.number, last)
        # Where commits are missing, one of them may have been a topic's first.
        there = rebuild.numbers(self.storage, self.paths) if self.holding.replay.doubtful else set()
        for number in range(max([*self.topics, *there], default=-1) + 1):
            self._topic(number)
        self._settle()
        self.state.topics = [self.topics[number] for number in sorted(self.topics)]

    def _topic(self, number: int) -> TopicEnd:
        # One that is unknown was born in a commit that is missing.
        if number not in self.topics:
            self.topics[number] = found = rebuild.topic_of(self.storage, self.paths, number)
            self.holding.notes.append(f"topic {number}: its birth is missing in the journal; it is {found.name!r}")
        return self.topics[number]

    def _note(self, data: bytes, number: int) -> None:
        try:
            note = state.decode_note(data)
        except msgspec.MsgspecError as error:
            self.holding.notes.append(f"journal: commit {number} has a note that can't be read: {error}")
            return
        if isinstance(note, TopicNote):
            known = self.topics.get(note.number)
            if known is None or known.name.startswith(rebuild.LOST + "/"):
                made = TopicEnd(note.number, note.environment, note.name, note.level)
                self.topics[note.number] = made
        elif isinstance(note, LeaseNote):
            topic = self._topic(note.number)
            topic.lease = max(topic.lease, note.upto)
        else:
            state.remember(self.state.writers, note)
            self.holding.commits.append(note)
            for share in note.shares:
                base, position = share.runs[-1].end
                end = share.first + share.count
                self._advance(share.number, share.first, base, position, end, note.time_ns)

    def _advance(self, number: int, first: int, base: int, position: int, end: int, time_ns: int) -> None:
        topic = self._topic(number)
        if end <= topic.next_offset:
            return
        if first > topic.next_offset:
            self.holding.holes.append(Hole(topic, topic.next_offset, first, topic.base, topic.position))
        topic.base, topic.position, topic.next_offset = base, position, end
        topic.last_time = max(topic.last_time, time_ns)

    def _settle(self) -> None:
        # Segments are written before the journal is synced, and high-watermarks go up behind that: where the
        # journal is damaged at its end, they tell what it held.
        acknowledged = _acknowledged(self.paths, self.state.log_id)
        claimed = dict(self.holding.replay.claims)
        for topic in list(self.topics.values()):
            if topic.level != "disk":
                continue
            high = acknowledged.get(topic.number, 0)
            before = topic.next_offset
            if self.holding.replay.doubtful:
                self._follow(topic, high, unbounded=True)
            elif high > before:
                self._follow(topic, high, unbounded=False)
            if topic.next_offset < high:
                self.holding.corrupt.append((topic.name, topic.next_offset, high - 1))
                topic.base = topic.next_offset = high
                topic.position = 0
            if topic.next_offset < claimed.get(topic.number, 0) <= topic.next_offset + _MAX_CLAIM:
                self.holding.doubtful.append((topic.name, topic.next_offset, claimed[topic.number] - 1))

    def _follow(self, topic: TopicEnd, high: int, *, unbounded: bool) -> None:
        # Whole records at the place where the topic goes on.
        while topic.next_offset < high or unbounded:
            if self._adopt(topic):
                continue
            started = topic.position > 0
            data = self._rest(topic, topic.base if started else topic.next_offset)
            records = scan(data, 0, topic.next_offset, -1 if unbounded else high)
            if len(records) and records.time_ns(0) >= topic.last_time:
                self.holding.kept.append((topic.name, topic.next_offset, records.next_offset - 1))
                self._go_on(topic, records.next_position, records.next_offset, records.time_ns(len(records) - 1))
                continue
            found, number = find_record(data, 0, topic.next_offset)
            if found >= 0 and number < high:
                self.holding.corrupt.append((topic.name, topic.next_offset, number - 1))
                self._go_on(topic, found, number, topic.last_time)
            elif started and len(scan(self._rest(topic, topic.next_offset), 0, topic.next_offset, max_records=1)):
                topic.base, topic.position = topic.next_offset, 0
            else:
                return

    def _adopt(self, topic: TopicEnd) -> bool:
        # A stage that was given to the topic as its next segment.
        directory = self.paths.topic(topic.number, topic.level, self.state.log_id)
        found = adopted(directory, self.storage.names(directory)).get(topic.next_offset)
        if found is None:
            return False
        self.holding.kept.append((topic.name, found.base, found.end - 1))
        topic.base = topic.next_offset = found.end
        topic.position, topic.last_time = 0, max(topic.last_time, found.time_ns)
        return True

    def _go_on(self, topic: TopicEnd, length: int, offset: int, time_ns: int) -> None:
        if topic.position == 0:
            topic.base, topic.position = topic.next_offset, HEADER_BYTES
        topic.position += length
        topic.next_offset, topic.last_time = offset, time_ns

    def _rest(self, topic: TopicEnd, base: int) -> bytes:
        # The bytes of the segment behind the topic's end; all records when it begins with this one.
        directory = self.paths.topic(topic.number, topic.level, self.state.log_id)
        path = f"{directory}/{segment_name(base)}"
        position = topic.position if base == topic.base and topic.position else 0
        if not self.storage.exists(path):
            return b""
        handle = self.storage.open(path)
        try:
            head = self.storage.pread(handle, HEADER_BYTES, 0)
            check_segment_header(head, path, self.state.log_id, topic.number, base)
            position = max(position, HEADER_BYTES)
            return self.storage.pread(handle, max(0, self.storage.size(handle) - position), position)
        except LogDamaged:
            return b""
        finally:
            self.storage.close(handle)


def _acknowledged(paths: Paths, log_id: bytes) -> dict[int, int]:
    """High-watermarks of the last writer, if it ran since the machine was started."""
    try:
        water = Watermarks.open(paths.water)
    except (StorageError, OSError, LogDamaged):
        return {}
    if water.log_id != log_id or water.boot_id != boot_id():
        return {}
    return {number: water.high(number) for number in range(min(water.topics, water.slots))}


def apart_bytes(data: bytes, start: int) -> int:
    """The bytes of a record that was written apart, with its padding, from what the journal has of it."""
    return (int.from_bytes(data[start : start + 4], "little") + 7) & ~7


def _last_time(data: bytes, start: int, size: int, first: int) -> int:
    records = scan(memoryview(data)[start : start + size], 0, first)
    return records.time_ns(len(records) - 1) if len(records) else -1
