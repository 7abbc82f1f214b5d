"""The bytes of a state file, and what can be had from one that is damaged: see docs/format-state.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from echomesh.errors import StateTooNew
from echomesh.mesh.state_table import Key
from echomesh.native.log_sums import crc32c, flipped_bit

MAGIC: Final = b"EMSTATE\x01"
VERSION: Final = 1
MARK_BYTES: Final = 8
_HEADER: Final = struct.Struct("<8sI16s8sI")  # magic, version, log id, mark, crc
HEADER_BYTES: Final = _HEADER.size
_FRAME: Final = struct.Struct("<8sIIQ")  # mark, crc, length of the body, sequence
FRAME_BYTES: Final = _FRAME.size
_SUMMED: Final = MARK_BYTES + 4  # where a frame's sum begins
_MENDED_BYTES: Final = 1 << 16  # in larger frames a sum may be that of a flipped bit by chance

Change = tuple[Key, bytes | None]
encode: Final = msgspec.msgpack.Encoder().encode
decode: Final = msgspec.msgpack.Decoder().decode
_changes: Final = msgspec.msgpack.Decoder(list[tuple[tuple[str, ...], bytes | None]]).decode


class LostPart(NamedTuple):
    """A part of the file that can't be read, and how many frames (flushes) were in it, as far as that is known."""

    position: int
    size: int
    frames: int


@dataclass
class StateReport:
    """What was found when a state file was opened."""

    new: bool = False
    """There was none."""
    torn_bytes: int = 0
    """Of a last flush that did not get to its end: nobody was told that it was safe."""
    mended: list[int] = field(default_factory=list)
    """Where one flipped bit was put right."""
    lost: list[LostPart] = field(default_factory=list)
    """What can't be had any more. Keys that were in it have their values of before, or are gone."""
    aside: str = ""
    """Where the file was kept, as it was found, when something was lost or may have been."""
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether the file can be used on as it is."""
        return not (self.new or self.torn_bytes or self.mended or self.lost or self.notes)

    def __str__(self) -> str:
        parts = list(self.notes)
        if self.torn_bytes:
            parts.append(f"{self.torn_bytes} bytes of an unfinished write were cut off")
        if self.mended:
            parts.append(f"flipped bits were put right in {len(self.mended)} places")
        for part in self.lost:
            parts.append(f"{part.size} bytes at {part.position} are damaged ({part.frames} writes lost)")
        if self.aside:
            parts.append(f"the file as it was found is kept as {self.aside}")
        return "; ".join(parts) or "in order"


@dataclass
class Found:
    """The content of a state file."""

    report: StateReport
    mark: bytes = b""
    sequence: int = 0
    changes: list[list[Change]] = field(default_factory=list)


def header(log_id: bytes, mark: bytes) -> bytes:
    """The first bytes of a file."""
    packed = _HEADER.pack(MAGIC, VERSION, log_id, mark, 0)[:-4]
    return packed + crc32c(packed).to_bytes(4, "little")


def frame(seed: int, mark: bytes, sequence: int, body: bytes) -> bytes:
    """One write: changes that stand in a file together. `seed` is the sum of the log id."""
    packed = _FRAME.pack(mark, 0, len(body), sequence) + body
    return mark + crc32c(memoryview(packed)[_SUMMED:], seed).to_bytes(4, "little") + packed[_SUMMED:]


def read(data: bytes, path: str, log_id: bytes) -> Found:
    """All that can be had from a file; it never fails, but for a version that it does not know."""
    found = Found(StateReport())
    if _read_header(found, data, path, log_id):
        _read_frames(found, data, crc32c(log_id))
    else:
        found.report.lost.append(LostPart(0, len(data), 0))
    return found


def _read_header(found: Found, data: bytes, path: str, log_id: bytes) -> bool:
    """Finds the file's mark; whether the frames behind the header may be of use."""
    report, head = found.report, data[:HEADER_BYTES]
    if len(head) < HEADER_BYTES:
        report.notes.append(f"{len(data)} bytes are too short for a state file")
        return False
    summed, stored = head[:-4], int.from_bytes(head[-4:], "little")
    if crc32c(summed) != stored:
        fixed = _unflipped(summed, crc32c(summed) ^ stored)
        if fixed is None:
            # Frames are under the log id's sum: they tell themselves whether they belong here.
            report.notes.append("the header is damaged")
            found.mark = data[HEADER_BYTES : HEADER_BYTES + MARK_BYTES]
            return len(set(found.mark)) > 2
        report.mended.append(0)
        head = fixed + head[-4:]
    magic, version, owner, found.mark, _ = _HEADER.unpack(head)
    if magic != MAGIC:
        report.notes.append("it is no state file")
    elif version != VERSION:
        raise StateTooNew(path, version, VERSION)
    elif owner != log_id:
        report.notes.append(f"it belongs to the log {owner.hex()}, and this one is {log_id.hex()}")
    return bool(magic == MAGIC and owner == log_id)


class _Frame(NamedTuple):
    size: int
    sequence: int
    changes: list[Change]


def _read_frames(found: Found, data: bytes, seed: int) -> None:
    report, position = found.report, HEADER_BYTES
    bad: list[int] = []  # where the pieces begin that can't be read, since the last that could
    while position < len(data):
        # A mark is random: where it stands a frame begins, and none reaches beyond the next one.
        limit = data.find(found.mark, position + MARK_BYTES)
        piece = data[position : limit if limit >= 0 else len(data)]
        frame = _whole(piece, found.mark, seed)
        if frame is None and (frame := _mended(piece, seed)) is not None:
            report.mended.append(position)
        if frame is None or frame.sequence <= found.sequence:
            bad.append(position)
            position += len(piece)
            continue
        missing = frame.sequence - found.sequence - 1
        if bad or missing:
            begin = bad[0] if bad else position
            report.lost.append(LostPart(begin, position - begin, missing))
            bad.clear()
        found.sequence = frame.sequence
        found.changes.append(frame.changes)
        position += frame.size
    if bad and len(bad) == 1 and _is_torn(data[bad[0] :]):
        report.torn_bytes = len(data) - bad[0]
    elif bad:
        report.lost.append(LostPart(bad[0], len(data) - bad[0], len(bad)))


def _is_torn(piece: bytes) -> bool:
    if len(piece) < FRAME_BYTES or not piece.strip(b"\0"):
        return True
    _, _, length, _ = _FRAME.unpack_from(piece)
    return FRAME_BYTES + int(length) > len(piece)


def _whole(piece: bytes, mark: bytes, seed: int) -> _Frame | None:
    if len(piece) < FRAME_BYTES:
        return None
    stands, crc, length, sequence = _FRAME.unpack_from(piece)
    size = FRAME_BYTES + length
    if stands != mark or size > len(piece) or crc32c(memoryview(piece)[_SUMMED:size], seed) != crc:
        return None
    return _decoded(size, sequence, piece[FRAME_BYTES:size])


def _mended(piece: bytes, seed: int) -> _Frame | None:
    """The frame that this piece was before one of its bits was flipped."""
    if not FRAME_BYTES <= len(piece) <= _MENDED_BYTES:
        return None
    summed = piece[_SUMMED:]
    difference = crc32c(summed, seed) ^ int.from_bytes(piece[MARK_BYTES:_SUMMED], "little")
    fixed = _unflipped(summed, difference) if difference else summed  # none but the mark is damaged
    if fixed is None:
        return None
    length, sequence = struct.unpack_from("<IQ", fixed)
    if FRAME_BYTES + length != len(piece):
        return None
    return _decoded(len(piece), sequence, fixed[FRAME_BYTES - _SUMMED :])


def _unflipped(data: bytes, difference: int) -> bytes | None:
    if difference.bit_count() == 1:
        return data  # it is the sum itself that is damaged
    bit = flipped_bit(len(data), difference)
    if bit < 0:
        return None
    fixed = bytearray(data)
    fixed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(fixed)


def _decoded(size: int, sequence: int, body: bytes) -> _Frame | None:
    try:
        changes = _changes(body)
        for key, value in changes:
            if not key:
                return None
            if value is not None:
                decode(value)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return _Frame(size, sequence, changes)
