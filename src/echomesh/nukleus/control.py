"""The control file: a command ring, a broadcast buffer of responses, and counters, behind a header of capacities."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from echomesh.errors import BadControlFile, StorageError
from echomesh.native import broadcast, ring
from echomesh.native.broadcast import Receiver, Transmitter
from echomesh.native.counters import Counters
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring

VERSION = 1
_HEADER = struct.Struct(">5i")
_HEADER_LENGTH = 64
# Of the trailers, what says where records are: marks, tail and head of a ring; the three tails of a broadcast buffer.
_RING_STATE_LENGTH = 512
_BROADCAST_STATE_LENGTH = 24
_SMALLEST, _LARGEST = 1 << 10, 1 << 30


@dataclass(frozen=True, slots=True)
class Capacities:
    """Sizes of the parts of a control file, in bytes."""

    commands: int = 1 << 20
    responses: int = 1 << 20
    labels: int = 1 << 20
    values: int = 1 << 20

    @property
    def responses_at(self) -> int:
        """Where the responses begin."""
        return _HEADER_LENGTH + self.commands + ring.TRAILER_LENGTH

    @property
    def labels_at(self) -> int:
        """Where the labels begin."""
        return self.responses_at + self.responses + broadcast.TRAILER_LENGTH

    @property
    def values_at(self) -> int:
        """Where the values begin."""
        return self.labels_at + self.labels

    @property
    def total(self) -> int:
        """The size of the file."""
        return self.values_at + self.values

    def check(self, path: Path) -> None:
        """Raises `BadControlFile` when no control file can have these."""
        for part in ("commands", "responses"):
            size = getattr(self, part)
            if not _SMALLEST <= size <= _LARGEST or size & (size - 1):
                raise BadControlFile(f"{path}: {size} bytes of {part} are no power of two from 1 KiB to 1 GiB")
        for part in ("labels", "values"):
            size = getattr(self, part)
            if not 0 <= size <= _LARGEST or size % 128:
                raise BadControlFile(f"{path}: {size} bytes of {part} are no multiple of 128 up to 1 GiB")


# For nuklei that programs make by the dozen.
SMALL = Capacities(1 << 16, 1 << 16, 1 << 16, 1 << 16)


class ControlFile:
    """A control file in memory: `commands`, and what else one end or the other needs of it."""

    def __init__(self, mapping: Mapping, capacities: Capacities) -> None:
        self.mapping = mapping
        self.capacities = capacities
        # Commands are written by one at a time, under the command lock: so a killed writer's place can be healed.
        self.commands = Ring(mapping, _HEADER_LENGTH, capacities.commands, serial=True)

    @classmethod
    def create(cls, path: Path, capacities: Capacities) -> ControlFile:
        """Makes the file; it gets its name once it is whole, so that nobody finds half of one."""
        capacities.check(path)
        making = path.with_name(path.name + ".new")
        making.unlink(missing_ok=True)
        mapping = Mapping.create(making, capacities.total)
        fields = (VERSION, capacities.commands, capacities.responses, capacities.labels, capacities.values)
        memoryview(mapping)[: _HEADER.size] = _HEADER.pack(*fields)
        making.replace(path)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, *, writable: bool = True) -> ControlFile:
        """Maps a file that some nukleus made, ours or not; `BadControlFile` says what is wrong with it."""
        try:
            mapping = Mapping.open(path, writable=writable)
        except StorageError as error:
            if error.errno is not None and error.strerror in ("an empty file", "not a regular file"):
                raise BadControlFile(f"{path}: {error.strerror}") from None
            raise
        if mapping.size < _HEADER_LENGTH:
            raise BadControlFile(f"{path}: {mapping.size} bytes are less than a header")
        version, *sizes = _HEADER.unpack(memoryview(mapping)[: _HEADER.size])
        if version != VERSION:
            raise BadControlFile(f"{path}: version {version}, where this library knows {VERSION}")
        capacities = Capacities(*sizes)
        capacities.check(path)
        if mapping.size < capacities.total:
            raise BadControlFile(f"{path}: {mapping.size} bytes, where its header promises {capacities.total}")
        return cls(mapping, capacities)

    def empty_commands(self) -> None:
        """Begins the command ring anew, when its bytes are not what any writer wrote; correlation ids go on."""
        length = self.capacities.commands + _RING_STATE_LENGTH
        memoryview(self.mapping)[_HEADER_LENGTH : _HEADER_LENGTH + length] = bytes(length)

    def empty_responses(self) -> None:
        """Begins the responses anew, when their trailer can't be true."""
        start, length = self.capacities.responses_at, self.capacities.responses + _BROADCAST_STATE_LENGTH
        memoryview(self.mapping)[start : start + length] = bytes(length)

    def transmitter(self) -> Transmitter:
        """The nukleus's end of the responses."""
        return Transmitter(self.mapping, self.capacities.responses_at, self.capacities.responses, wakes=True)

    def receiver(self) -> Receiver:
        """A controller's end of the responses, from now on."""
        return Receiver(self.mapping, self.capacities.responses_at, self.capacities.responses)

    def counters(self) -> Counters:
        """The nukleus's numbers."""
        sizes = self.capacities
        return Counters(self.mapping, self.mapping, sizes.labels_at, sizes.values_at, sizes.labels, sizes.values)
