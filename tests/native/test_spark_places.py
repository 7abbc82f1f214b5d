"""Where events stand is told in a compiled loop, a few of them with it, as they stand in files."""

from __future__ import annotations

import os
import random
import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.log.place import Place
from echomesh.native.log_record import encode
from echomesh.native.spark_places import Files, Spot, told
from echomesh.spark.places import Places, spot_at_server, spot_of
from echomesh.spark.reach import Range

TOPICS = st.sampled_from([f"t/{number}" for number in range(12)])
OFFSETS = st.integers(0, 300)
RANGES = st.lists(st.builds(Range, TOPICS, OFFSETS, OFFSETS).filter(lambda one: one.start <= one.until), max_size=20)
HEAD = b"this file"
MUCH = 1 << 20
NEAR = 256


class Told(NamedTuple):
    """One place, as Place.java reads it."""

    number: int
    start: int
    until: int
    position: int
    first: int
    topic: str
    path: str
    records: bytes


def parsed(data: bytes) -> Iterator[Told]:
    """All places in these bytes."""
    at = 0
    while at < len(data):
        number, start, until, position, first, _shift, _time_ns, size = struct.unpack_from("<iqqqqqqi", data, at)
        at += 56
        parts = []
        for _ in range(4):
            length = int.from_bytes(data[at : at + 4], "little")
            parts.append(data[at + 4 : at + 4 + length])
            at += 4 + length
        assert size == sum(4 + len(part) for part in parts[:3])
        yield Told(number, start, until, position, first, parts[0].decode(), parts[1].decode(), parts[3])


class Segment:
    """A file with records, as many as are asked for."""

    def __init__(self, path: Path, sizes: list[int], first: int = 0) -> None:
        self.path = path
        self.first = first
        self.records = [encode(first + i, 1000 + i, None, bytes(size)) for i, size in enumerate(sizes)]
        path.write_bytes(HEAD + b"".join(self.records) + bytes(4096))

    def spot(self, topic: str = "a", **changed: int) -> Spot:
        """Where the first one stands."""
        place = Place(0, 0, str(self.path), HEAD, len(HEAD), self.first, **changed)
        return spot_of(topic, place, good_until=100.0)

    def bytes_of(self, start: int, until: int) -> bytes:
        """The records with these offsets."""
        return b"".join(self.records[start - self.first : until - self.first])


def planned(
    spots: dict[str, Spot], *ranges: Range, files: Files | None = None, room: int = MUCH, near: int = NEAR
) -> tuple[list[Told], list[Range]]:
    """What is told of these ranges, and those that are left to a look."""
    pieces: list[bytes] = []
    left: list[Range] = []
    known = told(ranges, spots, 5.0, near, pieces, lambda _, one: left.append(one), files or Files(100), room, 50.0)
    found = list(parsed(b"".join(pieces)))
    assert known == sum(one.until - one.start for one in found)
    return found, left


@given(
    ranges=RANGES,
    known=st.dictionaries(TOPICS, st.tuples(st.integers(0, 300), st.sampled_from([1.0, 9.0]))),
    near=st.integers(0, 300),
)
def test_places_are_told_as_one_by_one(ranges: list[Range], known: dict[str, tuple[int, float]], near: int) -> None:
    spots: dict[str, Spot] = {}
    for topic, (first, good_until) in known.items():
        spots[topic] = Spot(
            8 * first,
            first,
            3,
            -1,
            b"".join([struct.pack("<i", len(part)) + part for part in (topic.encode(), b"", b"")]),
            good_until,
        )
    wanted, found, asked = Places(), Places(), []
    for number, one in enumerate(ranges):
        kept = spots.get(one.topic)
        if kept is not None and one.until - near <= kept.first <= one.start and kept.good_until > 5.0:
            wanted.add(number, one.start, one.until, kept)
        else:
            asked.append((number, one))
            wanted.add(number, one.start, one.until, spot_at_server(one.topic), known=False)
    left = list(asked)

    def look(number: int, one: Range) -> None:
        assert (number, one) == left.pop(0)
        found.add(number, one.start, one.until, spot_at_server(one.topic), known=False)

    assert told(ranges, spots, 5.0, near, found.pieces, look, Files(0), MUCH, 50.0) == wanted.known
    assert not left
    assert found.packed() == wanted.packed()


def test_a_few_small_records_travel_with_their_place_batch_after_batch(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "a.seg", [300] * 40, first=7)
    spots = {"a": segment.spot()}
    for start, until in ((7, 8), (8, 12), (12, 13), (20, 26), (26, 27)):
        (found,), left = planned(spots, Range("a", start, until))
        assert not left
        assert found == Told(0, start, until, 0, start, "a", "", segment.bytes_of(start, until))
    assert (spots["a"].first, spots["a"].good_until) == (27, 100.0)


@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    steps=st.lists(st.integers(0, 6), min_size=1, max_size=12),
)
def test_whatever_their_sizes_they_are_those_of_the_file_or_its_place_is_told(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], steps: list[int]
) -> None:
    segment = Segment(tmp_path_factory.mktemp("sizes") / "a.seg", sizes)
    spots, at = {"a": segment.spot()}, 0
    for step in steps:
        until = min(at + step, len(sizes))
        if at == until:
            continue
        (found,), left = planned(spots, Range("a", at, until))
        assert not left
        if found.records:
            assert found.records == segment.bytes_of(at, until)
            assert (found.first, found.path) == (at, "")
        else:
            assert len(segment.bytes_of(found.first, until)) > 4096
            assert found.path == str(segment.path)
            assert found.position == len(HEAD) + len(segment.bytes_of(0, found.first))
        at = until


def test_thousands_are_read_by_two_threads_and_told_in_order(tmp_path: Path) -> None:
    segments = [Segment(tmp_path / f"{i}.seg", [50 + i % 300] * 6) for i in range(1500)]
    spots = {f"t/{i}": segment.spot(f"t/{i}") for i, segment in enumerate(segments)}
    files = Files(2000)
    for start, until in ((0, 1), (1, 2), (2, 5), (5, 6)):
        found, left = planned(spots, *(Range(f"t/{i}", start, until) for i in range(1500)), files=files)
        assert not left
        assert [(one.number, one.topic, one.records) for one in found] == [
            (i, f"t/{i}", segment.bytes_of(start, until)) for i, segment in enumerate(segments)
        ]
    found, left = planned(spots, *(Range(f"t/{i}", 6, 7) for i in range(1500)), files=files)
    assert (len(found), len(left)) == (0, 1500)


def test_small_ones_of_many_files_are_copied_from_maps_that_move_with_them(tmp_path: Path) -> None:
    # Some are in two pages, some larger than a quarter of one; all of it is several windows long.
    chance = random.Random(3)
    segments = [Segment(tmp_path / f"{i}.seg", [chance.randrange(10 + 9 * i) for _ in range(700)]) for i in range(100)]
    spots = {f"t/{i}": segment.spot(f"t/{i}") for i, segment in enumerate(segments)}
    files, before, at = Files(2000), mapped(tmp_path), 0
    while at < 690:
        until = at + chance.randint(1, 5)
        ranges = [Range(f"t/{i}", at, until) for i in range(100)]
        found, left = planned(spots, *ranges, files=files)
        assert not left
        assert [one.records for one in found] == [segment.bytes_of(at, until) for segment in segments]
        at = until
    assert (before, mapped(tmp_path)) == (0, 100)
    files.close_idle(spots)
    planned(spots, *[Range(f"t/{i}", at, at + 1) for i in range(50)], files=files)
    files.close_idle(spots)
    assert mapped(tmp_path) == 50
    spots.clear()
    assert mapped(tmp_path) == 0


@pytest.mark.parametrize("kept", [0, 3 * 4096 + 1500, 4 * 4096])
def test_files_that_are_cut_or_changed_under_their_maps_harm_nothing(tmp_path: Path, kept: int) -> None:
    segments = [Segment(tmp_path / f"{i}.seg", [100] * 300) for i in range(100)]
    spots = {f"t/{i}": segment.spot(f"t/{i}") for i, segment in enumerate(segments)}
    files = Files(2000)
    for start, until in ((0, 100), (100, 102), (102, 104)):
        planned(spots, *(Range(f"t/{i}", start, until) for i in range(100)), files=files)
    for i in range(0, 100, 7):
        os.truncate(segments[i].path, kept)
    with segments[50].path.open("r+b") as changed:
        changed.seek(len(HEAD) + len(segments[50].bytes_of(0, 104)))
        changed.write(bytes(500))
    found, left = planned(spots, *(Range(f"t/{i}", 104, 105) for i in range(100)), files=files)
    there = len(HEAD) + len(segments[0].bytes_of(0, 105)) <= kept
    gone = [i for i in range(100) if i == 50 or (i % 7 == 0 and not there)]
    assert left == [Range(f"t/{i}", 104, 105) for i in gone]
    assert [(one.number, one.records) for one in found] == [
        (i, segment.bytes_of(104, 105)) for i, segment in enumerate(segments) if i not in gone
    ]


@pytest.mark.parametrize("lacking", [resource.RLIMIT_NOFILE, resource.RLIMIT_AS])
def test_what_can_not_be_mapped_is_read(tmp_path: Path, lacking: int) -> None:
    segments = [Segment(tmp_path / f"{i}.seg", [100] * 9) for i in range(100)]
    spots = {f"t/{i}": segment.spot(f"t/{i}") for i, segment in enumerate(segments)}
    files = Files(2000)
    for part in (range(50), range(50, 100)):  # a few at a time: no map is made
        planned(spots, *(Range(f"t/{i}", 0, 1) for i in part), files=files)
    assert mapped(tmp_path) == 0
    ranges = [Range(f"t/{i}", 1, 2) for i in range(100)]
    soft, hard = resource.getrlimit(lacking)
    resource.setrlimit(lacking, (0 if lacking == resource.RLIMIT_NOFILE else 1 << 20, hard))
    try:
        pieces: list[bytes] = []
        known = told(ranges, spots, 5.0, NEAR, pieces, lambda *_: None, files, MUCH, 50.0)
    finally:
        resource.setrlimit(lacking, (soft, hard))
    assert (known, mapped(tmp_path)) == (100, 0)
    assert [one.records for one in parsed(b"".join(pieces))] == [segment.bytes_of(1, 2) for segment in segments]


def test_a_topic_may_come_twice(tmp_path: Path) -> None:
    segments = {name: Segment(tmp_path / f"{name}.seg", [100] * 9) for name in ("a", "b")}
    spots = {name: segment.spot(name) for name, segment in segments.items()}
    for first in (0, 3):
        wanted = [
            Range("a", first, first + 1),
            Range("b", first, first + 2),
            Range("a", first + 1, first + 3),
            Range("b", first + 2, first + 3),
        ]
        found, left = planned(spots, *wanted)
        assert not left
        assert [one.records for one in found] == [segments[one.topic].bytes_of(one.start, one.until) for one in wanted]


def test_large_ones_many_and_those_of_stages_stay_where_they_are(tmp_path: Path) -> None:
    large = Segment(tmp_path / "large.seg", [5000, 100])
    many = Segment(tmp_path / "many.seg", [200] * 200)
    stage = Segment(tmp_path / "stage.rows", [100] * 3)
    spots = {"large": large.spot("large"), "many": many.spot("many"), "stage": stage.spot("stage", shift=4, time_ns=9)}
    found, left = planned(spots, Range("large", 0, 1), Range("many", 0, 200), Range("stage", 0, 2))
    assert not left
    assert [(one.path, one.records) for one in found] == [(str(segment.path), b"") for segment in (large, many, stage)]
    (small,), _ = planned(spots, Range("large", 1, 2))
    assert small.records == large.bytes_of(1, 2)


def test_all_that_travels_has_a_bound(tmp_path: Path) -> None:
    segments = [Segment(tmp_path / f"{i}.seg", [1000] * 4) for i in range(10)]
    spots = {f"t/{i}": segment.spot(f"t/{i}") for i, segment in enumerate(segments)}
    found, left = planned(spots, *(Range(f"t/{i}", 0, 1) for i in range(10)), room=3000)
    assert not left
    assert [bool(one.records) for one in found] == [True] * 3 + [False] * 7


def test_what_is_not_there_is_looked_for(tmp_path: Path) -> None:
    # A new segment was begun: what follows is in that one.
    segment = Segment(tmp_path / "a.seg", [100] * 3)
    spots = {"a": segment.spot()}
    assert planned(spots, Range("a", 2, 5)) == ([], [Range("a", 2, 5)])
    other = Segment(tmp_path / "b.seg", [100] * 3, first=10)
    spots = {"a": spot_of("a", Place(0, 0, str(other.path), HEAD, len(HEAD), 0), good_until=100.0)}
    assert planned(spots, Range("a", 0, 2)) == ([], [Range("a", 0, 2)])


def test_a_file_that_is_gone_or_another_one_is_left_to_the_task(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "a.seg", [100] * 3)
    spots = {"gone": segment.spot("gone"), "other": segment.spot("other")}
    segment.path.write_bytes(b"that file" + segment.path.read_bytes()[len(HEAD) :])
    files = Files(10)
    (found,), _ = planned(spots, Range("other", 0, 1), files=files)
    assert (found.path, found.records, files.count) == (str(segment.path), b"", 0)
    segment.path.unlink()
    (found,), _ = planned(spots, Range("gone", 0, 1), files=files)
    assert (found.path, found.records, files.count) == (str(segment.path), b"", 0)


def test_no_more_files_are_open_than_allowed_and_idle_ones_are_closed(tmp_path: Path) -> None:
    segments = [Segment(tmp_path / f"{i}.seg", [100] * 9) for i in range(4)]
    spots = {f"t/{i}": segment.spot(f"t/{i}") for i, segment in enumerate(segments)}
    files, before = Files(3), opened()
    found, _ = planned(spots, *(Range(f"t/{i}", 0, 1) for i in range(4)), files=files)
    assert [bool(one.records) for one in found] == [True, True, True, False]
    assert (files.count, opened() - before) == (3, 3)
    files.close_idle(spots)
    assert files.count == 3
    planned(spots, Range("t/0", 1, 2), files=files)
    files.close_idle(spots)
    assert (files.count, opened() - before) == (1, 1)
    (last,), _ = planned({"t/3": spots["t/3"]}, Range("t/3", 1, 2), files=files)
    assert last.records == segments[3].bytes_of(1, 2)
    spots.clear()
    assert (files.count, opened() - before) == (0, 0)


def mapped(directory: Path) -> int:
    """Files of this directory that are mapped."""
    return Path("/proc/self/maps").read_text().count(f"{directory}/")


def opened() -> int:
    """Files of this process that are open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
