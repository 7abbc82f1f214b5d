"""Sets of offsets as ranges, and which events of other servers are in the log already."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import DamagedError, OffsetGone, UnknownTopic, UsageError
from echomesh.log import LogOptions, Records, TopicLog
from echomesh.mesh.ranges import LARGEST, RANGES, OriginRanges, RangeSet
from echomesh.mesh.state import StateFile
from tests.log.support import crash, small
from tests.mesh.state_support import LOG_ID, drop, fresh_directory, opened
from tests.support.counts import count

SMALL = st.integers(0, 40)
PARTS = st.tuples(SMALL, SMALL).map(lambda pair: (min(pair), max(pair)))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "discard"]), PARTS), max_size=30)
A, B, C = (bytes([i]) * 16 for i in (1, 2, 3))


def runs(offsets: set[int]) -> list[tuple[int, int]]:
    """The ranges of a set, in order."""
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


@given(STEPS, PARTS)
def test_it_is_a_set_of_offsets(steps: list[tuple[str, tuple[int, int]]], asked: tuple[int, int]) -> None:
    ranges, model = RangeSet(), set[int]()
    for step, (first, end) in steps:
        getattr(ranges, step)(first, end)
        model = model | set(range(first, end)) if step == "add" else model - set(range(first, end))
        assert list(ranges) == runs(model)
    wanted = set(range(*asked))
    assert ranges.missing(*asked) == runs(wanted - model)
    assert ranges.contains(*asked) == (wanted <= model)
    assert ranges.touches(*asked) == bool(wanted & model)
    assert [offset in ranges for offset in range(42)] == [offset in model for offset in range(42)]
    assert ranges.first_gap(asked[0]) == min(set(range(asked[0], 50)) - model)
    assert RangeSet.decode(ranges.encode()) == ranges == RangeSet(runs(model))
    assert len(ranges) == len(runs(model))


@given(st.lists(st.tuples(st.integers(0, LARGEST), st.integers(0, LARGEST)), max_size=8))
def test_offsets_may_be_as_large_as_those_of_a_log(parts: list[tuple[int, int]]) -> None:
    ranges = RangeSet((min(pair), max(pair)) for pair in parts)
    assert RangeSet.decode(ranges.encode()) == ranges
    for first, end in parts:
        assert ranges.missing(min(first, end), max(first, end)) == []


@pytest.mark.parametrize(("first", "end"), [(-1, 2), (5, 4), (0, 1 << 63), (1 << 70, 1 << 71)])
def test_what_is_no_range_of_offsets_is_refused(first: int, end: int) -> None:
    ranges = RangeSet([(0, 3)])
    with pytest.raises(UsageError):
        ranges.add(first, end)
    with pytest.raises(UsageError):
        ranges.discard(first, end)
    assert list(ranges) == [(0, 3)]


@given(st.binary(max_size=40))
def test_any_bytes_are_ranges_or_damaged(data: bytes) -> None:
    try:
        ranges = RangeSet.decode(data)
    except DamagedError:
        return
    again = RangeSet.decode(ranges.encode())
    assert again == ranges
    assert list(ranges) == sorted(ranges)


@pytest.mark.parametrize(
    "data", [b"\x01", b"\x80", b"\x01\x00", b"\x00\x01\x00\x01", b"\xff" * 30, b"\xff" * 9 + b"\x7f\x01"]
)
def test_impossible_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedError):
        RangeSet.decode(data)


def test_ranges_are_compact() -> None:
    ranges = RangeSet((i * 2, i * 2 + 1) for i in range(10_000))
    assert len(ranges.encode()) == 20_000
    ranges.add(0, 20_000)
    assert (len(ranges), ranges.encode()) == (1, b"\x00\xa0\x9c\x01")
    assert "RangeSet([(0, 20000)])" in repr(ranges)


# Origins


def origin(server: bytes, offset: int) -> bytes:
    return server + offset.to_bytes(8, "little")


class Here:
    """A server's log and state, and what it knows of origins; as a core would use them."""

    def __init__(self, directory: Path, options: LogOptions | None = None) -> None:
        self.log = TopicLog(directory / "log", options or small())
        self.state = opened(directory)
        self.reader = self.log.reader()
        self.origins = OriginRanges(self.state, self.log.log_id)

    def read(self, offset: int) -> Records:
        return self.reader.topic("t").read(offset, max_bytes=200)

    def load(self) -> None:
        assert self.origins.load("TST", "t", self.read)

    def bring(self, server: bytes, first: int, count: int) -> int:
        """Events of another server come over a bridge; how many were news."""
        news = 0
        for begin, end in self.origins.missing(server, "TST", "t", first, count):
            self.origins.claim(server, "TST", "t", begin, end - begin)
            events = [b"%d" % offset for offset in range(begin, end)]
            offsets = self.log.append_many("t", events, origins=[origin(server, i) for i in range(begin, end)])
            self.origins.accepted(server, "TST", "t", begin, end - begin, offsets[-1] + 1)
            news += end - begin
        return news

    def crash(self) -> None:
        """Ends it as kill -9 would."""
        self.state.flush()
        drop(self.state)
        self.reader.close()
        crash(self.log)


MOVES = st.lists(
    st.tuples(st.sampled_from([A, B, C]), SMALL, st.integers(1, 8))
    | st.sampled_from(["publish", "checkpoint", "restart", "advance", "only here"]),
    max_size=25,
)


@given(MOVES)
def test_each_event_is_in_the_log_once_whatever_happens_between(moves: list[tuple[bytes, int, int] | str]) -> None:
    with fresh_directory() as directory:
        here, model = Here(directory), set[tuple[bytes, int]]()
        here.load()
        for move in moves:
            if isinstance(move, tuple):
                server, first, size = move
                news = {(server, offset) for offset in range(first, first + size)} - model
                assert here.bring(server, first, size) == len(news)
                model |= news
            elif move == "publish":
                here.log.append("t", b"published here")
            elif move == "only here":
                here.log.append("t", b"targeted", origin=bytes(24))
            elif move == "advance":
                here.origins.advance("TST", "t", here.log.append("t", b"published here") + 1)
            elif move == "checkpoint":
                here.origins.checkpoint()
            else:
                here.crash()
                here = Here(directory)
                here.load()
        for server in (A, B, C):
            known = {offset for owner, offset in model if owner == server}
            assert here.origins.missing(server, "TST", "t", 0, 60) == runs(set(range(60)) - known)
        here.crash()


def test_a_start_reads_only_what_is_behind_the_checkpoint(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.load()
    assert here.bring(A, 0, 100) == 100
    here.origins.checkpoint()
    assert here.bring(A, 100, 10) == 10
    here.crash()
    again = Here(tmp_path)
    asked: list[int] = []

    def read(offset: int) -> Records:
        asked.append(offset)
        return again.read(offset)

    assert again.origins.load("TST", "t", read)
    assert asked[0] == 100
    assert again.origins.missing(A, "TST", "t", 0, 111) == [(110, 111)]
    assert len(again.origins) == 1
    # What was published here does not have to be read again either.
    end = again.log.append("t", b"here") + 1
    again.origins.advance("TST", "t", end)
    again.origins.checkpoint()
    again.crash()
    third = Here(tmp_path)
    assert third.state.get((RANGES, "TST", "t")) == [end, {A: RangeSet([(0, 110)]).encode()}]
    third.crash()


def test_a_long_log_can_be_loaded_in_steps(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.load()
    here.bring(A, 0, 200)
    here.crash()
    again = Here(tmp_path)
    steps = 0
    while not again.origins.load("TST", "t", again.read, most=1):
        steps += 1
        with pytest.raises(UsageError, match="load them first"):
            again.origins.missing(A, "TST", "t", 0, 1)
    assert steps > 10
    assert again.origins.missing(A, "TST", "t", 0, 201) == [(200, 201)]
    again.crash()


def test_what_is_claimed_is_neither_missing_nor_safe(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.load()
    here.origins.claim(A, "TST", "t", 5, 5)
    assert here.origins.missing(A, "TST", "t", 0, 12) == [(0, 5), (10, 12)]
    assert here.origins.missing(B, "TST", "t", 0, 12) == [(0, 12)]
    assert here.origins.claimed(A, "TST", "t", 9, 5)
    assert not here.origins.claimed(A, "TST", "t", 10, 5)
    assert not here.origins.claimed(B, "TST", "t", 0, 100)
    here.origins.advance("TST", "t", 100)
    here.origins.checkpoint()
    assert here.state.get((RANGES, "TST", "t")) is None, "it may be in the log already, or not"
    here.origins.release(A, "TST", "t", 5, 2)
    assert here.origins.missing(A, "TST", "t", 0, 12) == [(0, 7), (10, 12)]
    here.origins.accepted(A, "TST", "t", 7, 3, 3)
    assert not here.origins.claimed(A, "TST", "t", 0, 100)
    assert here.origins.missing(A, "TST", "t", 0, 12) == [(0, 7), (10, 12)]
    here.crash()


def test_what_is_covered_is_not_missed_and_costs_no_range(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.load()
    for i in range(0, 100, 2):
        here.bring(A, i, 1)
    assert len(here.origins) == 50
    here.origins.cover(A, "TST", "t", 0, 100)
    assert len(here.origins) == 1
    assert here.origins.missing(A, "TST", "t", 0, 102) == [(100, 102)]
    here.origins.checkpoint()
    here.crash()
    again = Here(tmp_path)
    again.load()
    assert len(again.origins) == 1
    again.crash()


def test_the_own_log_id_is_always_known_and_impossible_offsets_are_refused(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.load()
    assert here.origins.missing(here.log.log_id, "TST", "t", 0, 100) == []
    for first, size in [(-1, 5), (LARGEST, 1), (0, 1 << 70)]:
        with pytest.raises(UsageError):
            here.origins.missing(A, "TST", "t", first, size)
    # What a stranger got into the log does not keep a server from starting.
    for offset in (LARGEST, LARGEST - 1, 1 << 63, (1 << 64) - 1):
        here.log.append("t", b"x", origin=origin(A, offset))
    here.crash()
    again = Here(tmp_path)
    again.load()
    assert again.origins.missing(A, "TST", "t", LARGEST - 2, 2) == [(LARGEST - 2, LARGEST - 1)]
    again.crash()


def test_a_checkpoint_of_a_log_that_is_no_longer_there_is_not_believed(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.load()
    here.bring(A, 0, 5)
    here.origins.checkpoint()
    # As if an older copy of the log was brought back, or the topic is gone.
    for known, left in [([100, {A: RangeSet([(0, 90)]).encode()}], [(5, 100)]), (["?"], [(5, 100)])]:
        here.state.put((RANGES, "TST", "t"), known)
        origins = OriginRanges(here.state, here.log.log_id)
        assert origins.load("TST", "t", here.read)
        assert origins.missing(A, "TST", "t", 0, 100) == left
    here.state.put((RANGES, "TST", "gone"), [7, {A: RangeSet([(0, 7)]).encode()}])
    origins = OriginRanges(here.state, here.log.log_id)
    assert origins.load("TST", "gone", lambda offset: here.reader.topic("gone").read(offset))
    assert origins.missing(A, "TST", "gone", 0, 7) == [(0, 7)]
    here.crash()


def test_damage_in_the_log_does_not_keep_it_from_loading(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.load()
    here.bring(A, 0, 60)
    here.log.close()
    here.state.flush()
    segment = min((tmp_path / "log" / "topics" / "00000000").glob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[64 + 40] ^= 0xFF
    segment.write_bytes(data)
    again = Here(tmp_path)
    again.load()
    # Only what is damaged may come again.
    assert again.origins.missing(A, "TST", "t", 0, 61) == [(0, 1), (60, 61)]
    again.crash()


def test_what_retention_removed_is_known_from_the_checkpoint_alone(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.load()
    here.bring(A, 0, 10)
    here.origins.checkpoint()
    here.bring(A, 10, 50)

    def read(offset: int) -> Records:
        if offset < 30:
            raise OffsetGone("t", offset, 29)
        return here.read(offset)

    origins = OriginRanges(here.state, here.log.log_id)
    assert origins.load("TST", "t", read)
    assert origins.missing(A, "TST", "t", 0, 60) == [(10, 30)]
    here.crash()


def test_many_topics_are_checkpointed_only_where_something_changed(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", LOG_ID)
    origins = OriginRanges(state, LOG_ID)

    def nothing(offset: int) -> Records:
        raise UnknownTopic("t", "TST")

    topics = [f"t{i}" for i in range(count(200, 5000))]
    for topic in topics:
        assert origins.load("TST", topic, nothing)
        origins.accepted(A, "TST", topic, 0, 3, 3)
    origins.checkpoint()
    assert len(state) == len(topics)
    state.flush()
    before = state.file_bytes
    origins.accepted(A, "TST", "t5", 3, 3, 6)
    origins.checkpoint()
    state.flush()
    assert state.file_bytes - before < 200
    state.close()
