"""Up to where each topic can be read: from a running writer's file of high-watermarks, or from the journal
without one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from echomesh.errors import LogDamaged, StageMissing, StorageError
from echomesh.log import catalogue, stage_copy
from echomesh.log.adopted import Adopted
from echomesh.log.holding import hold, load_state
from echomesh.log.layout import HEADER_BYTES, Paths, bases, segment_name
from echomesh.log.lock import boot_id, writer_of
from echomesh.log.state import TopicEnd
from echomesh.log.storage import Storage
from echomesh.native.log_frame import RECORDS
from echomesh.native.log_record import scan
from echomesh.native.log_water import Watermarks

_TRIES: Final = 3  # where a writer keeps coming that shows nothing here, as one in another boot or host
NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "glusterfs", "afs", "fuse.sshfs"})


@dataclass(frozen=True)
class TopicName:
    """A topic as the catalogue has it."""

    number: int
    environment: str
    name: str
    level: str


class View(Protocol):
    """What a reader may see."""

    live: bool

    @property
    def moves(self) -> int:
        """Another number as soon as a commit of stages became visible, in all of its topics at once."""

    def topics(self) -> list[TopicName]:
        """All of them, by number."""

    def find(self, environment: str, name: str) -> TopicName | None:
        """The topic of this name; None when there is none."""

    def high(self, number: int) -> int:
        """The first offset that can't be read yet."""

    def earliest(self, number: int) -> int:
        """The first offset that is still kept."""

    def bounds(self, numbers: list[int]) -> list[tuple[int, int]]:
        """(earliest, high) of each of these topics, all of one moment."""

    def patches(self, number: int, base: int) -> list[tuple[int, bytes]]:
        """(position, bytes) that belong into this segment, and may not be there yet."""

    def segments(self, number: int) -> list[tuple[int, int]]:
        """(topic, first offset) of segments that may not be there yet."""

    def staged(self, number: int) -> dict[int, Adopted]:
        """Stages that are segments of this topic, and may not stand among them yet."""

    def stale(self) -> bool:
        """Whether a newer view should be asked for."""


class LiveView:
    """What the running writer shows, on the writer's host."""

    live = True

    def __init__(self, paths: Paths, water: Watermarks) -> None:
        self.paths = paths
        self.water = water
        self.known: list[TopicName] = []
        self._behind = 0  # in the catalogue, of those that are known
        self._found: dict[tuple[str, str], TopicName] = {}

    @property
    def moves(self) -> int:
        return self.water.moves

    def topics(self) -> list[TopicName]:
        count = self.water.topics
        if len(self.known) < count:
            new = self._read(count - len(self.known))
            if len(new) < count - len(self.known) and self._behind:
                # A new writer may have begun another one, which this place does not belong to.
                self.known, self._behind, self._found = [], 0, {}
                new = self._read(count)
            self.known = self.known + new
            self._found.update(((found.environment, found.name), found) for found in new)
        return self.known

    def _read(self, count: int) -> list[TopicName]:
        try:
            found, self._behind = catalogue.read(self.paths.catalogue, count, self._behind)
        except LogDamaged:
            if not self._behind:
                raise
            return []
        return [TopicName(*entry) for entry in found]

    def find(self, environment: str, name: str) -> TopicName | None:
        self.topics()
        return self._found.get((environment, name))

    def high(self, number: int) -> int:
        return self.water.high(number)

    def earliest(self, number: int) -> int:
        return self.water.earliest(number)

    def bounds(self, numbers: list[int]) -> list[tuple[int, int]]:
        return self.water.bounds(numbers)

    def patches(self, number: int, base: int) -> list[tuple[int, bytes]]:
        return []

    def segments(self, number: int) -> list[tuple[int, int]]:
        return []

    def staged(self, number: int) -> dict[int, Adopted]:
        return {}

    def stale(self) -> bool:
        return self.water.replaced


@dataclass
class StillView:
    """What the checkpoint and a read-only replay of the journal tell when no writer runs."""

    live = False
    moves = 0
    names: list[TopicName]
    ends: dict[int, TopicEnd]
    overlay: dict[tuple[int, int], list[tuple[int, bytes]]] = field(default_factory=dict)
    stages: dict[int, dict[int, Adopted]] = field(default_factory=dict)
    settled: bool = True

    def topics(self) -> list[TopicName]:
        return self.names

    def find(self, environment: str, name: str) -> TopicName | None:
        return self._by_name.get((environment, name))

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], TopicName]:
        return {(found.environment, found.name): found for found in self.names}

    def high(self, number: int) -> int:
        return self.ends[number].next_offset

    def earliest(self, number: int) -> int:
        return self.ends[number].earliest

    def bounds(self, numbers: list[int]) -> list[tuple[int, int]]:
        return [(self.earliest(number), self.high(number)) for number in numbers]

    def patches(self, number: int, base: int) -> list[tuple[int, bytes]]:
        return self.overlay.get((number, base), [])

    def segments(self, number: int) -> list[tuple[int, int]]:
        return [key for key in self.overlay if key[0] == number]

    def staged(self, number: int) -> dict[int, Adopted]:
        return self.stages.get(number, {})

    def stale(self) -> bool:
        return True


def open_view(storage: Storage, paths: Paths, log_id: bytes) -> View:
    """The view of this moment."""
    tries = 0
    while True:
        if (live := _live(paths, log_id)) is not None:
            return live
        view = still(storage, paths, log_id)
        tries += 1
        # A writer that has come meanwhile may have overwritten what was not read yet; what it has in the journal but
        # not committed would be seen now and be gone in the next view. It shows itself what there is.
        if (view.settled and writer_of(paths.lock) == 0) or tries == _TRIES:
            return view


def signature(storage: Storage, paths: Paths) -> tuple[object, ...]:
    """What changes with everything that a view without a writer stands on: cheap to ask for, again and again."""
    files = [f"{paths.journal}/{name}" for name in storage.names(paths.journal)]
    files += [paths.checkpoint, paths.checkpoint_copy]  # which every writer that comes replaces
    return writer_of(paths.lock), *((path, storage.stamp(path)) for path in files)


def sealed(storage: Storage, paths: Paths, log_id: bytes) -> StillView:
    """Only segments that were full and synced when the checkpoint was written: all that another host can trust."""
    found, _ = load_state(storage, paths, log_id)
    topics = [topic for topic in found.topics if topic.level != "none"]
    for topic in topics:
        topic.next_offset = topic.base if topic.position else topic.next_offset
        topic.earliest = min(topic.earliest, topic.next_offset)
    names = [TopicName(t.number, t.environment, t.name, t.level) for t in topics]
    return StillView(names, {topic.number: topic for topic in topics})


def on_network(directory: str) -> bool:
    """Whether the directory is on a file system that other hosts write to."""
    with suppress(OSError):
        device = Path(directory).stat().st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split(" ")
            if fields[2] == wanted:
                return line.partition(" - ")[2].split(" ")[0] in NETWORK
    return False


def _live(paths: Paths, log_id: bytes) -> LiveView | None:
    if writer_of(paths.lock) == 0:
        return None
    try:
        water = Watermarks.open(paths.water)
    except (StorageError, LogDamaged):
        return None
    if water.log_id != log_id or water.boot_id != boot_id() or water.replaced:
        return None
    return LiveView(paths, water)


def still(storage: Storage, paths: Paths, log_id: bytes) -> StillView:
    """Reads the checkpoint and the journal; changes nothing."""
    holding = hold(storage, paths, log_id)
    found, frames = holding.state, holding.replay.frames
    clean = found.clean and not frames
    ends = {topic.number: topic for topic in found.topics}
    names = [TopicName(t.number, t.environment, t.name, t.level) for t in found.topics]
    view = StillView(names, ends, settled=holding.settled)
    for frame in frames:
        for kind, number, base, position, start, size, end in frame.entries():
            if kind == RECORDS and end > ends[number].earliest:
                view.overlay.setdefault((number, base), []).append((position, frame.data[start : start + size]))
    for note in holding.commits:
        # Without its stages a commit has been copied, or what is missing is found when it is read.
        with suppress(StageMissing):
            for number, base, position, data in stage_copy.copies(storage, paths, note, stage_copy.names(found.topics)):
                view.overlay.setdefault((number, base), []).append((position, data))
        for number, segment in stage_copy.adoptions(paths, note):
            view.stages.setdefault(number, {})[segment.base] = segment
    for topic in found.topics:
        if topic.level == "none":
            topic.next_offset = topic.earliest = max(topic.lease, topic.next_offset)
        elif topic.level == "os" and not clean:
            topic.next_offset = _followed(storage, paths, topic, log_id)
    return view


def _followed(storage: Storage, paths: Paths, topic: TopicEnd, log_id: bytes) -> int:
    # An `os` topic's records are not in the journal: they reach as far as they can be followed.
    directory = paths.topic(topic.number, topic.level, log_id)
    expected = topic.next_offset
    for base in bases(storage.names(directory)):
        start = topic.position if base == topic.base and topic.position else HEADER_BYTES
        if base == expected or (start != HEADER_BYTES and base < expected):
            handle = storage.open(f"{directory}/{segment_name(base)}")
            try:
                expected = scan(storage.pread(handle, storage.size(handle), 0), start, expected).next_offset
            finally:
                storage.close(handle)
    return expected
