"""Where records stand, for who reads the files by other means: what is said is where they are."""

from __future__ import annotations

import shutil
from pathlib import Path

from echomesh.log import LogOptions, LogReader, TopicLog
from echomesh.log.parquet import compact
from echomesh.log.place import Place
from echomesh.native.log_record import scan
from tests.log.arrow_support import packed


def events(number: int, first: int = 0) -> list[bytes]:
    return [packed(id=str(i), data=bytes(100)) for i in range(first, first + number)]


def filled(directory: Path, number: int) -> None:
    with TopicLog(directory, LogOptions(segment_bytes=8192, duplicate_bytes=0)) as log:
        for first in range(0, number, 10):
            log.append_many("a", events(10, first))


def places(reader: LogReader, start: int, until: int) -> list[Place]:
    found, topic = [], reader.topic("a")
    while start < until:
        found.append(topic.place_of(start, until))
        start = found[-1].until
    return found


def test_each_range_of_offsets_stands_where_it_is_said(tmp_path: Path) -> None:
    filled(tmp_path, 300)
    with LogReader(tmp_path) as reader:
        found = places(reader, 7, 290)
    assert len(found) > 3
    assert [one.start for one in found] == [7, *(one.until for one in found[:-1])]
    assert found[-1].until == 290
    for place in found:
        data = Path(place.path or "").read_bytes()
        assert data.startswith(place.head)
        assert len(place.head) == 64
        records = scan(data, place.position, place.first)
        assert place.first <= place.start
        assert records[place.start - place.first][0] == place.start
        assert records.next_offset >= place.until
        assert place.time_ns == -1


def test_what_a_stage_has_is_found_by_its_shift(tmp_path: Path) -> None:
    with TopicLog(tmp_path, LogOptions(adopt_bytes=1, duplicate_bytes=0)) as log:
        log.append_many("a", events(5))
        stage = log.stage("w", epoch=0, run="r")
        for event in events(500, 5):
            stage.add("a", event)
        log.commit("w", 0, "r", [stage.close().stage])
        (place,) = places(log.reader(), 100, 400)
        data = Path(place.path or "").read_bytes()
        assert data.startswith(place.head)
        assert place.head
        (number, topic, _, event), *_ = scan(data, place.position, place.first - place.shift)
        assert (number + place.shift, topic) == (place.first, 0)
        assert event == events(1, place.first)[0]
        ((_, time_ns, _, _),) = log.reader().topic("a").read(100, max_records=1)
        assert place.time_ns == time_ns


def test_parquet_files_are_for_readers(tmp_path: Path) -> None:
    filled(tmp_path, 300)
    with LogReader(tmp_path) as reader:
        done = compact(reader.topic("a"), min_age_s=0).done
        found = places(reader, 0, 300)
    converted = [one for one in found if one.path is None]
    assert sum(one.until - one.start for one in converted) == done[-1].end
    assert {one.start for one in found if one.path is not None} == {done[-1].end}


def test_segments_that_the_journal_is_ahead_of_are_for_readers(tmp_path: Path) -> None:
    with TopicLog(tmp_path / "data", LogOptions(background=False)) as log:
        log.append_many("a", events(10))
        shutil.copytree(tmp_path / "data", tmp_path / "copy")  # as a writer that was killed leaves it
    with LogReader(tmp_path / "copy") as reader:
        assert reader.topic("a").end == 10
        assert places(reader, 2, 10) == [Place(2, 10)]


def test_offsets_that_are_not_there_are_for_readers(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    with LogReader(tmp_path) as reader:
        assert reader.topic("a").place_of(20, 30) == Place(20, 30)
        next(tmp_path.rglob("*.seg")).unlink()
        assert reader.topic("a").place_of(3, 10) == Place(3, 10)
