"""A look at all nuklei of a directory that disturbs none: files are mapped for reading alone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum

from echomesh.errors import EchomeshError, FileGone, RingDamaged
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.nukleus.control import ControlFile
from echomesh.nukleus.directory import Directory, Place
from echomesh.nukleus.links import sound


class Life(Enum):
    """Whether a process runs a nukleus."""

    ALIVE = "alive"
    DEAD = "dead"
    """One of ours whose process is gone; the next nukleus that starts removes its files."""
    FOREIGN = "foreign"
    """Another implementation's, of which nobody can tell."""


@dataclass(frozen=True, slots=True)
class RingState:
    """What a ring held at one moment. `problem` says why nothing could be read of it."""

    name: str
    capacity: int = 0
    head: int = 0
    tail: int = 0
    problem: str | None = None

    @property
    def in_flight(self) -> int:
        """Bytes written and not yet read."""
        return self.tail - self.head

    @property
    def fill(self) -> float:
        """The part of the ring that is in use, from 0 to 1."""
        return self.in_flight / self.capacity if self.capacity else 0.0


@dataclass(frozen=True, slots=True)
class NukleusState:
    """What was to be seen of a nukleus at one moment."""

    name: str
    life: Life
    pid: int | None
    """The process, where the kernel can name it."""
    silent_s: float | None = None
    """How long ago it last gave a sign of life; None for one that never did."""
    commands: RingState | None = None
    streams: tuple[RingState, ...] = ()
    counters: dict[str, int] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All nuklei of a directory at one moment."""

    directory: str
    time: float
    """Seconds of the monotonic clock, to take differences from."""
    nuklei: tuple[NukleusState, ...]


def take(directory: Directory) -> Snapshot:
    """Looks at a directory; one that is not there has no nuklei."""
    nuklei = []
    for place in directory.places():
        seen = _look(place)
        if seen is not None:
            nuklei.append(seen)
    return Snapshot(str(directory.root), time.monotonic(), tuple(nuklei))


def _look(place: Place) -> NukleusState | None:
    try:
        pid = place.owner_pid()
        life = Life.FOREIGN if place.foreign() else Life.DEAD if pid is None else Life.ALIVE
        known_pid = pid if pid is not None and pid > 0 else None
        streams = tuple(_ring(place, path.name) for path in sorted(place.streams.glob("[!.]*")))
    except OSError as error:
        problem = f"can't be looked at: {error.strerror}"
        return NukleusState(place.name, Life.FOREIGN, None, problem=problem) if place.path.exists() else None
    if not place.path.exists():
        return None
    try:
        control = ControlFile.open(place.control, writable=False)
        counters = {label: value for _, label, value in control.counters().list()}
    except EchomeshError as error:
        problem = "it has no control file" if isinstance(error, FileGone) else _reason(error)
        return NukleusState(place.name, life, known_pid, streams=streams, problem=problem)
    ring, beat_ms = control.commands, control.commands.heartbeat
    silent_s = max(0.0, time.time() - beat_ms / 1000) if beat_ms > 0 else None
    commands = RingState("commands", ring.capacity, ring.head, ring.tail)
    return NukleusState(place.name, life, known_pid, silent_s, commands, streams, counters)


def _ring(place: Place, source: str) -> RingState:
    try:
        mapping = Mapping.open(place.streams / source, writable=False)
    except EchomeshError as error:
        return RingState(source, problem=_reason(error))
    try:
        ring = Ring(mapping)
    except RingDamaged:
        return RingState(source, problem=f"not a ring: {mapping.size} bytes are none's size")
    # The head is read first: so what both say together may be a moment old, but never negative.
    head = ring.head
    tail = ring.tail
    if not sound(ring):
        return RingState(source, ring.capacity, problem="its head and tail can't be true")
    return RingState(source, ring.capacity, head, max(head, min(tail, head + ring.capacity)))


def _reason(error: EchomeshError) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    # The path is known to who reads this.
    return text.split(": ", 1)[1] if text.startswith("/") and ": " in text else text
