"""Where the files of a data directory are, and what their headers say: see docs/format-log.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from echomesh.errors import LogDamaged
from echomesh.native.log_sums import crc32c

SEGMENT_MAGIC: Final = b"EMSEGMT\x01"
SEGMENT_HEADER: Final = struct.Struct("<8s16sIIQ16sI4x")  # magic, log id, version, topic, base, spare, crc
HEADER_BYTES: Final = SEGMENT_HEADER.size
VERSION: Final = 1
_SUMMED: Final = HEADER_BYTES - 8

LEVELS: Final = ("disk", "os", "none")
MEMORY: Final = "/dev/shm"


@dataclass(frozen=True)
class Paths:
    """The files of one data directory."""

    root: str

    @property
    def log_id(self) -> str:
        """16 random bytes, made with the directory."""
        return f"{self.root}/log-id"

    @property
    def lock(self) -> str:
        """Held by the writer."""
        return f"{self.root}/lock"

    @property
    def water(self) -> str:
        """The mapped high-watermarks."""
        return f"{self.root}/watermarks"

    @property
    def catalogue(self) -> str:
        """The topics that a running writer has."""
        return f"{self.root}/catalogue"

    @property
    def checkpoint(self) -> str:
        """Each topic's end, up to which the journal is no longer needed."""
        return f"{self.root}/checkpoint"

    @property
    def checkpoint_copy(self) -> str:
        """The same again: while one is damaged, the other is whole."""
        return f"{self.root}/checkpoint.copy"

    @property
    def journal(self) -> str:
        """The directory of the journal files."""
        return f"{self.root}/journal"

    @property
    def topics(self) -> str:
        """The directory of the topics' directories."""
        return f"{self.root}/topics"

    @property
    def staging(self) -> str:
        """The directory of stages that wait for their commit."""
        return f"{self.root}/staging"

    def name(self, number: int) -> str:
        """The file with a topic's name."""
        return f"{self.topics}/{number:08d}.name"

    def topic(self, number: int, level: str, log_id: bytes) -> str:
        """The directory of a topic's segments; in memory for the level `none`."""
        if level == "none":
            return f"{MEMORY}/echomesh-log-{log_id.hex()}/{number:08d}"
        return f"{self.topics}/{number:08d}"


def paths(directory: str | Path) -> Paths:
    """The files of this data directory."""
    return Paths(str(Path(directory).absolute()))


def segment_name(base: int) -> str:
    """The file name of the segment that begins with this offset."""
    return f"{base:020d}.seg"


def index_name(base: int) -> str:
    """The file name of that segment's index."""
    return f"{base:020d}.idx"


def parquet_name(base: int) -> str:
    """The file name of the segment that begins with this offset, once it was converted."""
    return f"{base:020d}.parquet"


def adopted_name(base: int, time_ns: int, count: int) -> str:
    """The file name of a stage that became the segment with this first offset, as it was."""
    return f"{base:020d}-{time_ns}-{count}.rows"


def converted(names: list[str]) -> list[int]:
    """The first offsets of the segments that were converted to Parquet, among these file names, in order."""
    return sorted(int(name[:-8]) for name in names if name.endswith(".parquet") and name[:-8].isdecimal())


def bases(names: list[str]) -> list[int]:
    """The first offsets of the segments among these file names, in order."""
    return sorted(int(name[:-4]) for name in names if name.endswith(".seg") and name[:-4].isdecimal())


def segment_header(log_id: bytes, topic: int, base: int) -> bytes:
    """The first bytes of a segment."""
    packed = SEGMENT_HEADER.pack(SEGMENT_MAGIC, log_id, VERSION, topic, base, bytes(16), 0)
    return packed[:_SUMMED] + struct.pack("<I4x", crc32c(packed[:_SUMMED]))


def header_sum(log_id: bytes, topic: int, base: int) -> int:
    """The sum in a segment's header. One over the header with its sum would be the same for all segments."""
    return crc32c(segment_header(log_id, topic, base)[:_SUMMED])


def check_segment_header(data: bytes, path: str, log_id: bytes, topic: int, base: int) -> None:
    """Raises `LogDamaged` unless these are the first bytes of that segment."""
    if data[:HEADER_BYTES] != segment_header(log_id, topic, base):
        raise LogDamaged(path, "the header is not the one of this segment")
