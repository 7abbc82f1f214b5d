"""The journal read again: every commit that it holds, in order, a flipped bit put right, and what is wrong with
the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from echomesh.log.storage import Storage
from echomesh.native.log_frame import FRAME_HEADER_BYTES, NOTE, RECORDS, SECTOR_BYTES, entries, read_frame
from echomesh.native.log_record import scan
from echomesh.native.log_sums import crc32c, flipped_bit

Entry = tuple[int, int, int, int, int, int, int]

_LARGEST_FRAME: Final = 1 << 27


@dataclass(frozen=True)
class Frame:
    """One commit as it stands in bytes of a journal file."""

    sequence: int
    number: int
    data: bytes
    position: int  # in `data`
    length: int
    place: int  # in the file
    mended: bool = False

    def entries(self) -> list[Entry]:
        """(kind, topic, base, position, start, size, end) of each of its entries."""
        return entries(self.data, self.position, self.length)

    @property
    def end(self) -> int:
        """Where the next frame of the file stands."""
        return self.place + -(-self.length // SECTOR_BYTES) * SECTOR_BYTES


@dataclass
class Replay:
    """What the journal files hold, in order, and what was wrong with them."""

    frames: list[Frame] = field(default_factory=list)
    sequence: int = 0
    torn: list[str] = field(default_factory=list)  # files that end in a commit that is not whole
    missing: list[tuple[int, int]] = field(default_factory=list)  # numbers of frames with others behind them
    claims: list[tuple[int, int]] = field(default_factory=list)  # topic and end, as the torn commit has it

    @property
    def doubtful(self) -> bool:
        """Whether commits may have been acknowledged that are not among the frames."""
        return bool(self.torn or self.missing)


@dataclass
class _File:
    name: str
    frames: list[Frame]
    sequence: int
    torn: bool
    claims: list[tuple[int, int]]


def read(storage: Storage, directory: str, log_id: bytes, after: int) -> Replay:
    """The frames with numbers over `after`. Reads only, so any process may do it at any time."""
    files: list[_File] = []
    found = Replay()
    for name in storage.names(directory):
        if not name.endswith(".jnl"):
            continue
        handle = storage.open(f"{directory}/{name}")
        try:
            data = storage.pread(handle, storage.size(handle), 0)
        finally:
            storage.close(handle)
        frames = list(_frames(data, log_id))
        found.sequence = max([found.sequence, *(frame.sequence for frame in frames)])
        current = [f for f in frames if f.sequence == frames[0].sequence] if frames else []
        sequence, torn = _ending(data, current, {frame.place for frame in frames}, log_id)
        if current or torn:
            files.append(_File(name, current, sequence, torn, _claims(data, current) if torn else []))
    files.sort(key=lambda file: file.sequence)
    found.frames = [frame for frame in _join([file.frames for file in files]) if frame.number > after]
    # A bad end of an earlier file is one that was abandoned, or its frame is missing before the next file's.
    found.torn = [file.name for file in files[-1:] if file.torn]
    found.claims = [claim for file in files[-1:] for claim in file.claims]
    expected = after + 1
    for frame in found.frames:
        if frame.number != expected:
            found.missing.append((expected, frame.number - 1))
        expected = frame.number + 1
    return found


def _frames(data: bytes, log_id: bytes) -> Iterator[Frame]:
    # Every true frame of the file, those of its earlier uses included; behind damage at any sector.
    place = 0
    while place < len(data):
        head = read_frame(data, place, log_id)
        if head is not None:
            sequence, number, length = head
            frame = Frame(sequence, number, data, place, length, place)
        elif (mended := mend(data, place, log_id)) is not None:
            frame = mended
        else:
            place += SECTOR_BYTES
            continue
        yield frame
        place = frame.end


def mend(data: bytes, place: int, log_id: bytes) -> Frame | None:
    """The frame at this place with its one flipped bit put right; None when there is none, or more is wrong.

    The sum of the frame tells which bit it is, and those of the records that it is true. So a flipped bit of a
    commit that was acknowledged is not mistaken for a commit that was never written to the end.
    """
    head = data[place : place + FRAME_HEADER_BYTES]
    if len(head) < FRAME_HEADER_BYTES or not _ours(head, log_id):
        return None
    length = int.from_bytes(head[:4], "little")
    for candidate in [length, *(length ^ 1 << bit for bit in range(32))]:
        if not FRAME_HEADER_BYTES <= candidate <= min(len(data) - place, _LARGEST_FRAME):
            continue
        body = bytearray(data[place : place + candidate])
        body[:4] = candidate.to_bytes(4, "little")
        difference = _sum(body) ^ int.from_bytes(body[4:8], "little")
        if candidate == length and difference:
            bit = flipped_bit(candidate - 4, difference)
            if bit >= 0:
                byte = bit // 8 if bit < 32 else bit // 8 + 4  # the sum itself stands behind the length
                body[byte] ^= 1 << bit % 8
            elif difference.bit_count() == 1:
                body[4:8] = _sum(body).to_bytes(4, "little")
        found = read_frame(body, 0, log_id)
        if found is not None and _whole(body, candidate):
            return Frame(found[0], found[1], bytes(body), 0, candidate, place, mended=True)
    return None


def _ours(head: bytes, log_id: bytes) -> bool:
    # One bit may be wrong, and it may be here.
    return (int.from_bytes(head[24:32], "little") ^ int.from_bytes(log_id[:8], "little")).bit_count() <= 1


def _sum(body: bytearray) -> int:
    return crc32c(memoryview(body)[8:], crc32c(memoryview(body)[:4]))


def _whole(body: bytearray, length: int) -> bool:
    for kind, _, _, _, start, size, end in entries(body, 0, length):
        if kind == RECORDS:
            first = int.from_bytes(body[start + 8 : start + 16], "little")
            records = scan(memoryview(body)[start : start + size], 0, first, end)
            if records.next_position != size or records.next_offset != end:
                return False
    return True


def _ending(data: bytes, frames: list[Frame], starts: set[int], log_id: bytes) -> tuple[int, bool]:
    # (sequence of the file, whether what follows its last frame was meant to be another one)
    last = frames[-1] if frames else None
    end = last.end if last else 0
    sequence = last.sequence if last else 0
    head = data[end : end + FRAME_HEADER_BYTES]
    if end in starts or not any(head[:8]):
        return sequence, False
    found, number = int.from_bytes(head[8:16], "little"), int.from_bytes(head[16:24], "little")
    if last is None:
        return found, _ours(head, log_id)
    return sequence, found == sequence or (_ours(head, log_id) and number == last.number + 1)


def _claims(data: bytes, frames: list[Frame]) -> list[tuple[int, int]]:
    # What the bad frame would have given to topics, if that much of it can be believed.
    start = frames[-1].end if frames else 0
    length = min(int.from_bytes(data[start : start + 4], "little"), len(data) - start)
    found = entries(data, start, length) if length >= FRAME_HEADER_BYTES else []
    return [(number, end) for kind, number, _, _, _, _, end in found if kind != NOTE]


def _join(files: list[list[Frame]]) -> list[Frame]:
    # A later file that begins with a number again takes the place of what earlier files have from there on.
    joined: list[Frame] = []
    for frames in files:
        while joined and frames and joined[-1].number >= frames[0].number:
            joined.pop()
        joined.extend(frames)
    return joined
