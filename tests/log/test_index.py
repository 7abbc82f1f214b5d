"""The sparse index: a hint that never changes what is read, and is made again when it is gone."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echomesh.log import LogReader, TopicLog
from echomesh.log.index import ENTRY_BYTES, FIRST_POSITION, STEP_BYTES, Index, Mark, pack, unpack
from echomesh.log.index_mending import Mending
from echomesh.log.layout import HEADER_BYTES
from echomesh.log.stage_commit import StageCommit
from echomesh.log.storage import RealStorage, SimulatedStorage
from echomesh.native.log_record import encode
from tests.log.support import crash, small

SEGMENT = 1 << 18
BATCH = 100  # events with the same time
EVENTS = [b"%05d" % i * 50 for i in range(3700)]
ID = bytes(16)


def filled(directory: Path, topic: str = "a", events: list[bytes] = EVENTS) -> list[Path]:
    """A log with some sealed segments of 256 KiB; their indexes and the last one's."""
    now = [0]

    def clock() -> int:
        now[0] += 1
        return now[0]

    with TopicLog(directory, small(segment_bytes=SEGMENT, clock=clock)) as log:
        for at in range(0, len(events), BATCH):
            log.append_many(topic, events[at : at + BATCH])
    return sorted(directory.glob("topics/00000000/*.idx"))


def reads_right(directory: Path) -> None:
    with LogReader(directory) as reader:
        topic = reader.topic("a")
        chosen = random.Random(1)
        for offset in [0, 1, len(EVENTS) - 1, *chosen.sample(range(len(EVENTS)), 20)]:
            records = topic.read(offset)
            assert (records.first, records.events()[0]) == (offset, EVENTS[offset])
            assert topic.offset_at(records.time_ns(0)) == offset // BATCH * BATCH
        assert topic.offset_at(1 << 60) == len(EVENTS)


def test_who_reads_on_in_several_places_in_turn_searches_each_of_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    searched: list[int] = []
    real = Index.by_offset

    def by_offset(self: Index, offset: int) -> tuple[int, int]:
        searched.append(offset)
        return real(self, offset)

    monkeypatch.setattr(Index, "by_offset", by_offset)
    with LogReader(tmp_path) as reader:
        topic, places = reader.topic("a"), [30, 210, 400, 610]
        for _ in range(10):
            for number, offset in enumerate(places):
                records = topic.read(offset, max_records=15)
                assert records.events() == EVENTS[offset : offset + 15]
                places[number] = records.next_offset
    assert searched == [30, 210, 400, 610]


def removed(path: Path, others: list[Path]) -> None:
    path.unlink()


def emptied(path: Path, others: list[Path]) -> None:
    path.write_bytes(b"")


def cut_at_an_entry(path: Path, others: list[Path]) -> None:
    path.write_bytes(path.read_bytes()[: 2 * ENTRY_BYTES])


def cut_in_an_entry(path: Path, others: list[Path]) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def without_its_beginning(path: Path, others: list[Path]) -> None:
    path.write_bytes(path.read_bytes()[ENTRY_BYTES:])


def with_a_gap(path: Path, others: list[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: 2 * ENTRY_BYTES] + data[4 * ENTRY_BYTES :])


def random_bytes(path: Path, others: list[Path]) -> None:
    path.write_bytes(random.Random(2).randbytes(path.stat().st_size))


def random_bytes_behind(path: Path, others: list[Path]) -> None:
    path.write_bytes(path.read_bytes() + random.Random(3).randbytes(50))


def one_of_another_segment(path: Path, others: list[Path]) -> None:
    shutil.copy(others[0] if others[0] != path else others[1], path)


def one_of_another_topic(path: Path, others: list[Path]) -> None:
    shutil.copy(path.parents[2] / "other" / "topics" / "00000000" / path.name, path)


DAMAGES = [
    removed, emptied, cut_at_an_entry, cut_in_an_entry, without_its_beginning, with_a_gap, random_bytes,
    random_bytes_behind, one_of_another_segment, one_of_another_topic,
]  # fmt: skip


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "sealed", "last"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_happens_to_an_index_reads_are_right_and_the_writer_makes_it_again(
    tmp_path: Path, damage: Callable[[Path, list[Path]], None], which: int
) -> None:
    # Other events of the same sizes, so that the index of one log looks right in the other.
    filled(tmp_path / "other", "b", [event[::-1] for event in EVENTS])
    indexes = filled(tmp_path)
    good = {path: path.read_bytes() for path in indexes}
    assert len(indexes) >= 3
    damage(indexes[which], indexes)
    damaged = [path.read_bytes() for path in indexes if path.exists()]
    assert damaged != list(good.values())
    reads_right(tmp_path)
    assert [path.read_bytes() for path in indexes if path.exists()] == damaged, "readers change nothing"
    with TopicLog(tmp_path, small(segment_bytes=SEGMENT)) as log:
        log.core.keeper.care()
        assert {path: path.read_bytes() for path in indexes} == good
        assert log.append("a", b"more") == len(EVENTS)
    assert [path.read_bytes()[: len(good[path])] for path in indexes] == list(good.values())


def test_an_index_that_vanishes_while_the_log_is_open_is_made_again(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=SEGMENT)) as log:
        log.append_many("a", EVENTS)
        log.core.keeper.care()
        sealed = sorted(tmp_path.rglob("*.idx"))[:-1]
        good = {path: path.read_bytes() for path in sealed}
        for path in sealed:
            path.unlink()
        log.core.keeper.care()
        assert {path: path.read_bytes() for path in sealed} == good


def test_a_writer_that_cares_in_the_background_makes_them_again(tmp_path: Path) -> None:
    indexes = filled(tmp_path)
    good = [path.read_bytes() for path in indexes]
    for path in indexes:
        path.unlink()
    log = TopicLog(tmp_path, small(segment_bytes=SEGMENT, background=True))
    assert log.core.keeper.upkeep.wait_for_round(1, 30)
    assert [path.read_bytes() for path in indexes] == good
    log.close()


def test_entries_that_were_only_not_written_yet_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Index] = []
    monkeypatch.setattr(Index, "replace", lambda index, marks: made.append(index))
    with TopicLog(tmp_path, small(segment_bytes=SEGMENT)) as log:
        log.append_many("a", EVENTS)
        log.core.keeper.upkeep.round()
        sealed = sorted(tmp_path.rglob("*.seg"))[:-1]
        assert len(sealed) > 1
        assert all(path.with_suffix(".idx").exists() for path in sealed)
        assert made == []


def test_after_a_crash_the_entries_that_were_not_written_yet_are_there_again(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small(segment_bytes=SEGMENT))
    log.append_many("a", EVENTS[:500])
    log.core.keeper.care()
    log.append_many("a", EVENTS[500:])
    crash(log)
    assert len(sorted(tmp_path.rglob("*.idx"))) < len(sorted(tmp_path.rglob("*.seg")))
    with TopicLog(tmp_path, small(segment_bytes=SEGMENT)) as log:
        log.core.keeper.care()
        for segment in tmp_path.rglob("*.seg"):
            marks, whole = log.reader().topic("a").index_of(int(segment.stem)).read()
            assert whole
            assert marks[0].offset == int(segment.stem)
            assert segment.stat().st_size - marks[-1].position <= STEP_BYTES + 300


def test_rows_that_are_copied_behind_later_appends_get_their_entries_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = StageCommit.copy

    def late(commit: StageCommit) -> None:
        log.append_many("a", EVENTS[900:1500])
        log.core.keeper.sync()
        copy(commit)

    monkeypatch.setattr(StageCommit, "copy", late)
    with TopicLog(tmp_path, small(segment_bytes=1 << 20, adopt_bytes=1 << 20)) as log:
        log.append_many("a", EVENTS[:300])
        stage = log.stage("w", 0, "r")
        for event in EVENTS[300:900]:
            stage.add("a", event)
        log.commit("w", 0, "r", [stage.close().stage])
        log.core.keeper.sync()
        marks, whole = log.reader().topic("a").index_of(0).read()
        assert whole
        assert max(after.position - before.position for before, after in pairwise(marks)) <= STEP_BYTES + 300
        assert marks[-1].offset > 1300


def segment_of(sizes: list[int]) -> bytes:
    records = [encode(7 + i, 10 * i, None, bytes(size)) for i, size in enumerate(sizes)]
    return bytes(HEADER_BYTES) + b"".join(records)


def mending(data: bytes, end: int | None = None) -> Mending:
    disk = SimulatedStorage()
    handle = disk.open("/segment", create=True)
    disk.pwrite(handle, data, 0)
    return Mending(disk, handle, 7, len(data) if end is None else end)


@given(st.lists(st.one_of(st.integers(0, 3000), st.integers(20_000, 200_000)), max_size=40), st.data())
def test_a_made_index_has_an_entry_for_every_step_and_needs_no_other(sizes: list[int], data: st.DataObject) -> None:
    mend = mending(segment_of(sizes))
    made = mend.missing([]) or []
    starts = {}
    position = HEADER_BYTES
    for i, size in enumerate(sizes):
        starts[position] = Mark(7 + i, 10 * i, position)
        position += len(encode(7 + i, 10 * i, None, bytes(size)))
    expected: list[Mark] = []
    for at, mark in starts.items():
        if not expected or at >= expected[-1].position + STEP_BYTES:
            expected.append(mark)
    assert made == expected
    assert mend.missing(made) is None
    if made:
        shorter = list(made)
        del shorter[data.draw(st.integers(0, len(made) - 1))]
        assert mend.missing(shorter) == made


def test_entries_behind_the_end_and_behind_damage_are_left_out() -> None:
    data = bytearray(segment_of([1000] * 200))
    whole = mending(bytes(data)).missing([])
    assert whole is not None
    assert len(whole) == 7
    assert mending(bytes(data), whole[3].position).missing(whole) == whole[:3]
    damaged = whole[4].position + 40
    data[damaged] ^= 1
    assert mending(bytes(data)).missing([]) == whole[:4]
    assert mending(bytes(data)).missing(whole) is None, "what was right before the damage stays"
    assert mending(bytes(len(data))).missing([]) is None


@given(
    st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(-(1 << 62), 1 << 62), st.integers(0, (1 << 32) - 1))),
    st.binary(max_size=60),
    st.integers(0, 200),
)
@example([(3, 0, FIRST_POSITION - 8)], b"", 0)
@example([(3, 0, FIRST_POSITION)], b"", 0)
def test_no_bytes_give_entries_that_can_not_be_true(entries: list[tuple[int, int, int]], noise: bytes, at: int) -> None:
    data = pack([Mark(*entry) for entry in entries], 5)
    for given_bytes in (data, data[:at] + noise + data[at:], noise):
        found = unpack(given_bytes, 3, 5)
        assert all(a < b for a, b in pairwise(found))
        assert found == sorted(found, key=lambda mark: mark.position)
        assert all(mark.offset >= 3 and mark.position >= FIRST_POSITION and mark.position % 8 == 0 for mark in found)
    assert unpack(data, 0, 6) == [], "the sum is that of one segment"


def test_entries_are_found_by_offset_and_time(tmp_path: Path) -> None:
    index = Index(RealStorage(), str(tmp_path), ID, 1, 0)
    assert index.by_offset(7) == index.by_time(7) == (HEADER_BYTES, 0), "there is no file"
    index.extend([Mark(0, 5, 64), Mark(10, 5, 1000), Mark(20, 9, 2000)])
    assert [index.by_offset(offset) for offset in (0, 9, 10, 25)] == [(64, 0), (64, 0), (1000, 10), (2000, 20)]
    assert [index.by_time(time) for time in (4, 5, 6, 10)] == [(64, 0), (64, 0), (1000, 10), (2000, 20)]


@given(st.data())
def test_what_is_found_is_the_last_entry_before_whatever_is_damaged(data: st.DataObject) -> None:
    offsets = sorted(data.draw(st.sets(st.integers(0, 10_000), max_size=40)))
    marks = [Mark(offset, offset // 3, 64 + 8 * offset) for offset in offsets]
    with tempfile.TemporaryDirectory() as directory:
        index = Index(RealStorage(), directory, ID, 1, 0)
        if marks:
            index.extend(marks)
            good = data.draw(st.integers(0, len(marks)))
            written = bytearray(Path(index.path).read_bytes())
            for at in range(good * ENTRY_BYTES, len(written), ENTRY_BYTES):
                written[at] ^= 1
            Path(index.path).write_bytes(written)
            marks = marks[:good]
        offset = data.draw(st.integers(0, 10_000))
        first = (HEADER_BYTES, 0)
        assert index.by_offset(offset) == max(
            [(mark.position, mark.offset) for mark in marks if mark.offset <= offset], default=first
        )
        assert index.by_time(offset // 3) == max(
            [(mark.position, mark.offset) for mark in marks if mark.time_ns < offset // 3], default=first
        )


def test_entries_are_added_without_reading_the_others(tmp_path: Path) -> None:
    index = Index(RealStorage(), str(tmp_path), ID, 1, 0)
    index.extend([Mark(0, 0, 64)])
    path = Path(index.path)
    path.write_bytes(b"?" * ENTRY_BYTES + path.read_bytes())
    index.extend([Mark(9, 9, 1000)])
    assert path.stat().st_size == 3 * ENTRY_BYTES, "only the last one is looked at"
    index.extend([Mark(5, 5, 504)])
    assert index.read() == ([Mark(5, 5, 504)], True)
    index.cut(504)
    assert index.read() == ([], True)


def test_no_index_comes_back_when_retention_has_removed_its_segment(tmp_path: Path) -> None:
    for path in filled(tmp_path):
        path.unlink()
    with TopicLog(tmp_path, small(segment_bytes=SEGMENT)) as log:
        topic = log.core.topics["TST", "a"]
        missing = Mending.missing

        def meanwhile(mend: Mending, marks: list[Mark]) -> list[Mark] | None:
            topic.earliest = topic.done[0]
            return missing(mend, marks)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Mending, "missing", meanwhile)
            log.core.keeper.upkeep.round()
        assert [int(path.stem) for path in tmp_path.rglob("*.idx")] == [topic.done[0]]
