"""Sets of offsets as ranges, and which events of other servers this one has already."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from echomesh.errors import DamagedError, LogBehind, LogCorrupt, OffsetsLost, UnknownTopic, UsageError

if TYPE_CHECKING:
    from echomesh.mesh.ports import StatePort
    from echomesh.native.log_record import Records

LARGEST: Final = (1 << 63) - 1  # no offset is as large
LOG_ID_BYTES: Final = 16
RANGES: Final = "ranges"

Range = tuple[int, int]


class RangeSet:
    """A set of offsets, kept as ranges [first, end) that do not touch: 16 bytes each, however long they are."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts = array("q")
        self._ends = array("q")
        for first, end in ranges:
            self.add(first, end)

    def add(self, first: int, end: int) -> None:
        """Puts [first, end) in."""
        _check(first, end)
        if first == end:
            return
        # The ranges from `low` up to `high` overlap or touch the new one, and become one with it.
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
        self._replace(low, high, [(first, end)])

    def discard(self, first: int, end: int) -> None:
        """Takes [first, end) out, as far as it is in."""
        _check(first, end)
        low = bisect_right(self._ends, first)
        high = bisect_left(self._firsts, end)
        if first == end or low >= high:
            return
        before, behind = (self._firsts[low], first), (end, self._ends[high - 1])
        self._replace(low, high, [left for left in (before, behind) if left[0] < left[1]])

    def _replace(self, low: int, high: int, ranges: list[Range]) -> None:
        if len(ranges) == high - low == 1:
            self._firsts[low], self._ends[low] = ranges[0]
            return
        self._firsts[low:high] = array("q", [first for first, _ in ranges])
        self._ends[low:high] = array("q", [end for _, end in ranges])

    def __contains__(self, offset: int) -> bool:
        return self.contains(offset, offset + 1)

    def contains(self, first: int, end: int) -> bool:
        """Whether all of [first, end) is in."""
        at = bisect_right(self._firsts, first) - 1
        return first >= end or (at >= 0 and end <= self._ends[at])

    def touches(self, first: int, end: int) -> bool:
        """Whether any of [first, end) is in."""
        return first < end and bisect_right(self._ends, first) < bisect_left(self._firsts, end)

    def missing(self, first: int, end: int) -> list[Range]:
        """The parts of [first, end) that are not in, in order."""
        found: list[Range] = []
        at = bisect_right(self._ends, first)
        while first < end:
            if at == len(self._firsts) or self._firsts[at] >= end:
                found.append((first, end))
                break
            if first < self._firsts[at]:
                found.append((first, self._firsts[at]))
            first = self._ends[at]
            at += 1
        return found

    def first_gap(self, at: int = 0) -> int:
        """The first offset from `at` on that is not in."""
        place = bisect_right(self._firsts, at) - 1
        return max(at, self._ends[place]) if place >= 0 else at

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._firsts, self._ends, strict=True)))

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._firsts == other._firsts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)!r})" if len(self) <= 8 else f"<RangeSet of {len(self)} ranges>"

    def encode(self) -> bytes:
        """Two numbers for each range, the gap before it and its length, seven bits to a byte (LEB128)."""
        out = bytearray()
        place = 0
        for first, end in zip(self._firsts, self._ends, strict=True):
            for number in (first - place, end - first):
                while number > 0x7F:
                    out.append(number & 0x7F | 0x80)
                    number >>= 7
                out.append(number)
            place = end
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes) -> RangeSet:
        """The set that was encoded so; `DamagedError` for bytes that are none."""
        numbers = _numbers(data)
        if len(numbers) % 2:
            raise DamagedError("encoded ranges end in the middle of one")
        made = cls()
        place = 0
        for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
            first, end = place + gap, place + gap + length
            if length == 0 or (gap == 0 and place) or end > LARGEST:
                raise DamagedError(f"encoded ranges have an impossible one, [{first}, {end})")
            made._firsts.append(first)
            made._ends.append(end)
            place = end
        return made


def _check(first: int, end: int) -> None:
    if not 0 <= first <= end <= LARGEST:
        raise UsageError(f"[{first}, {end}) is no range of offsets")


def _numbers(data: bytes) -> list[int]:
    numbers: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
        elif shift > 63:
            raise DamagedError("encoded ranges have a number that is too large")
    if shift:
        raise DamagedError("encoded ranges end in the middle of a number")
    return numbers


class _Topic:
    """One topic here: the offsets that each origin has for its events."""

    __slots__ = ("accepted", "changed", "claimed", "loaded", "scanned_to")

    def __init__(self) -> None:
        self.accepted: dict[bytes, RangeSet] = {}
        self.claimed: dict[bytes, RangeSet] = {}
        self.scanned_to = 0  # every record of the log before this is in `accepted`
        self.loaded = False
        self.changed = False


class OriginRanges:
    """Which events of other servers the log has already, by (origin, environment, topic).

    The log itself keeps the origin of each record, so nothing here must be synced: a checkpoint in the state says which
    offsets were there up to some place in the log, and `load` reads on from that place.

    It costs 16 bytes for each gap. An origin whose own log is shared between its publishers and its bridges has a gap
    wherever an event of another server stands between two of its own. Whoever knows that nothing is to come in such
    a gap says so with `cover`; without that, two servers that publish in turn cost 16 bytes for every event.
    """

    def __init__(self, state: StatePort, log_id: bytes) -> None:
        self._state = state
        self._log_id = log_id
        self._topics: dict[tuple[str, str], _Topic] = {}

    def __len__(self) -> int:
        """How many ranges there are in all."""
        return sum(len(ranges) for topic in self._topics.values() for ranges in topic.accepted.values())

    def load(self, environment: str, topic: str, read: Callable[[int], Records], most: int | None = None) -> bool:
        """Reads the checkpoint, and the records behind it; whether all is known now.

        `read` gives the topic's records from an offset on, none at the end. With `most` it is called only so often, and
        `load` has to be called again while it answers False.
        """
        known = self._topics.get((environment, topic))
        if known is None:
            known = self._topics[environment, topic] = self._checkpointed(environment, topic)
        while not known.loaded and (most is None or most > 0):
            _scan(known, read)
            most = None if most is None else most - 1
        return known.loaded

    def _checkpointed(self, environment: str, topic: str) -> _Topic:
        made = _Topic()
        with suppress(msgspec.ValidationError, DamagedError):
            stored = self._state.get((RANGES, environment, topic)) or [0, {}]
            scanned_to, encoded = msgspec.convert(stored, tuple[int, dict[bytes, bytes]])
            # If it is not what it should be nothing is taken from it, and all comes from the log.
            made.accepted = {origin: RangeSet.decode(data) for origin, data in encoded.items()}
            made.scanned_to = max(scanned_to, 0)
        return made

    def missing(self, origin: bytes, environment: str, topic: str, first: int, count: int) -> list[Range]:
        """The parts of `count` offsets from `first` on that are neither in the log nor claimed."""
        known = self._known(environment, topic)
        _check(first, first + count)
        if origin == self._log_id:
            return []
        found = [(first, first + count)]
        for ranges in (known.accepted.get(origin), known.claimed.get(origin)):
            if ranges is not None:
                found = [part for begin, end in found for part in ranges.missing(begin, end)]
        return found

    def claim(self, origin: bytes, environment: str, topic: str, first: int, count: int) -> None:
        """They are being appended: nobody else shall do it too. `accepted` or `release` has to follow."""
        claimed = self._known(environment, topic).claimed
        claimed.setdefault(origin, RangeSet()).add(first, first + count)

    def claimed(self, origin: bytes, environment: str, topic: str, first: int, count: int) -> bool:
        """Whether any of them is on its way to the disk: known, but not yet to be acknowledged."""
        ranges = self._known(environment, topic).claimed.get(origin)
        return ranges is not None and ranges.touches(first, first + count)

    def release(self, origin: bytes, environment: str, topic: str, first: int, count: int) -> None:
        """They could not be appended: whoever brings them next may try."""
        _unclaim(self._known(environment, topic), origin, first, first + count)

    def accepted(self, origin: bytes, environment: str, topic: str, first: int, count: int, local_end: int) -> None:
        """They are in the log, on disk; `local_end` is the offset behind the last of them here.

        To be called in the order of the log, once for everything with an origin.
        """
        known = self._known(environment, topic)
        _unclaim(known, origin, first, first + count)
        known.accepted.setdefault(origin, RangeSet()).add(first, first + count)
        known.scanned_to = max(known.scanned_to, local_end)
        known.changed = True

    def cover(self, origin: bytes, environment: str, topic: str, first: int, end: int) -> None:
        """What is missing in [first, end) will never come: it counts as known, and the gaps need no memory."""
        known = self._known(environment, topic)
        known.accepted.setdefault(origin, RangeSet()).add(first, end)
        known.changed = True

    def advance(self, environment: str, topic: str, local_end: int) -> None:
        """The log goes up to `local_end` now: what was published here needs no look at the next start.

        Nothing happens while something is claimed, as that may be in the log already.
        """
        known = self._known(environment, topic)
        if not known.claimed and local_end > known.scanned_to:
            known.scanned_to = local_end
            known.changed = True

    def checkpoint(self) -> None:
        """Puts what changed into the state; the more often, the less is read at the next start."""
        for (environment, topic), known in self._topics.items():
            if known.changed and known.loaded:
                encoded = {origin: ranges.encode() for origin, ranges in known.accepted.items()}
                self._state.put((RANGES, environment, topic), [known.scanned_to, encoded])
                known.changed = False

    def _known(self, environment: str, topic: str) -> _Topic:
        known = self._topics.get((environment, topic))
        if known is None or not known.loaded:
            raise UsageError(f"the origins of topic {topic!r} in {environment} are not known yet: load them first")
        return known


def _scan(known: _Topic, read: Callable[[int], Records]) -> None:
    try:
        records = read(known.scanned_to)
    except (OffsetsLost, LogCorrupt) as gone:
        # Whoever brings a record again that is corrupt here puts it right.
        known.scanned_to, known.changed = gone.last + 1, True
        return
    except (LogBehind, UnknownTopic):
        # A topic that is still to come; or the log is an older one than the checkpoint, and only what it holds counts.
        known.loaded = known.scanned_to == 0
        if not known.loaded:
            known.accepted, known.scanned_to, known.changed = {}, 0, True
        return
    runs: dict[bytes, Range] = {}
    for _, _, origin, _ in records.tuples():
        if origin is not None and any(origin):
            server, offset = origin[:LOG_ID_BYTES], int.from_bytes(origin[LOG_ID_BYTES:], "little", signed=True)
            if not 0 <= offset < LARGEST:
                continue
            first, end = runs.get(server, (offset, offset))
            if offset != end:
                known.accepted.setdefault(server, RangeSet()).add(first, end)
                first = offset
            runs[server] = (first, offset + 1)
    for server, (first, end) in runs.items():
        known.accepted.setdefault(server, RangeSet()).add(first, end)
    known.loaded = not len(records)
    if len(records):
        known.scanned_to, known.changed = records.next_offset, True


def _unclaim(known: _Topic, origin: bytes, first: int, end: int) -> None:
    ranges = known.claimed.get(origin)
    if ranges is not None:
        ranges.discard(first, end)
        if not len(ranges):
            del known.claimed[origin]
