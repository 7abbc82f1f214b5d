"""Sealed segments of a log become Parquet files, and are read as before."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from echomesh.errors import LogCorrupt, LogLocked, OffsetGone
from echomesh.log import LogReader, TopicLog
from echomesh.log.arrow import SCHEMA, batches, table
from echomesh.log.layout import parquet_name
from echomesh.log.parquet import alone, compact
from tests.log.parquet_support import (
    compacted,
    event,
    everything,
    files,
    fill,
    seen,
)
from tests.log.support import crash, small


def test_sealed_segments_are_replaced_and_read_as_before(tmp_path: Path) -> None:
    fill(tmp_path)
    before = seen(tmp_path)
    with LogReader(tmp_path) as reader:
        rows = table(batches(reader.topic("a"), 0))
    segments = files(tmp_path, "seg")
    steps: list[tuple[int, int]] = []
    report = compacted(tmp_path, progress=lambda number, total, _: steps.append((number, total)))
    assert len(report.done) == len(segments) - 1
    assert not report.stayed
    assert steps == [(i + 1, len(segments) - 1) for i in range(len(segments) - 1)]
    assert files(tmp_path, "seg") == segments[-1:]
    assert files(tmp_path, "parquet") == [name.replace(".seg", ".parquet") for name in segments[:-1]]
    assert seen(tmp_path) == before
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        assert table(batches(topic, 0)).to_pylist() == rows.to_pylist()
        assert table(batches(topic, 13, 77, columns=["data", "offset"]), ["data", "offset"]).to_pylist() == [
            {"data": row["data"], "offset": row["offset"]} for row in rows.to_pylist()[13:77]
        ]
        for offset, time_ns, _, _ in before:
            assert topic.offset_at(time_ns) == next(at for at, time, _, _ in before if time >= time_ns) <= offset
    assert compacted(tmp_path).segments == []
    with TopicLog(tmp_path, small()) as log:
        assert log.append("a", event(100)) == 100
    assert seen(tmp_path)[:-1] == before


def test_a_reader_of_the_old_file_finishes_and_one_that_comes_to_it_later_finds_the_new(tmp_path: Path) -> None:
    fill(tmp_path)
    with LogReader(tmp_path) as reader, LogReader(tmp_path) as late:
        old, second = reader.topic("a"), late.topic("a")
        first = old.read(0, max_bytes=300)
        second.read(0, max_bytes=300)
        rest = batches(old, first.next_offset, max_rows=3)
        rows = [next(rest)]
        late.close()  # its handles, so that it has to look for every file
        before = seen(tmp_path)
        assert compacted(tmp_path).done
        rows += rest
        assert sum(batch.num_rows for batch in rows) == 100 - len(first)
        assert everything(second) == before


def test_what_can_not_be_converted_stays(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        for i in range(0, 100, 10):
            log.append_many("a", [event(k) for k in range(i, i + 10)] if i != 50 else [b"no event"] * 10)
    before = seen(tmp_path)
    report = compacted(tmp_path)
    assert report.done
    assert [segment.reason for segment in report.stayed] == ["offset 50 is no event"]
    assert seen(tmp_path) == before
    assert len(files(tmp_path, "seg")) == 2


def test_a_damaged_segment_stays_and_is_still_reported(tmp_path: Path) -> None:
    fill(tmp_path)
    path = sorted((tmp_path / "topics").rglob("*.seg"))[1]
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    report = compacted(tmp_path)
    assert len(report.stayed) == 1
    assert path.exists()
    with LogReader(tmp_path) as reader, pytest.raises(LogCorrupt):
        everything(reader.topic("a"))


def test_a_damaged_parquet_file_names_the_offsets_that_are_lost(tmp_path: Path) -> None:
    fill(tmp_path)
    compacted(tmp_path)
    path = sorted((tmp_path / "topics").rglob("*.parquet"))[1]
    good = path.read_bytes()
    base = int(path.stem)
    column = pq.read_metadata(path).row_group(0).column(SCHEMA.names.index("data"))
    for at in (column.data_page_offset + 30, len(good) - 20):
        data = bytearray(good)
        data[at] ^= 1
        path.write_bytes(data)
        with LogReader(tmp_path) as reader:
            topic = reader.topic("a")
            with pytest.raises(LogCorrupt) as caught:
                everything(topic)
            assert caught.value.first == base
            assert topic.read(caught.value.last + 1).first == caught.value.last + 1
            with pytest.raises(LogCorrupt) as caught:
                list(batches(topic, 0))
            assert caught.value.first == base


def test_young_segments_and_what_the_checkpoint_does_not_cover_wait(tmp_path: Path) -> None:
    fill(tmp_path)
    assert compacted(tmp_path, min_age_s=600).segments == []
    assert compacted(tmp_path, min_age_s=600, clock=lambda: 1 << 62).done
    other = tmp_path / "other"
    log = TopicLog(other, small())
    log.append_many("a", [event(i) for i in range(100)])
    assert compacted(other).segments == []
    log.core.keeper.sync()
    log.core.keeper.checkpoint()
    assert compacted(other).done
    crash(log)
    assert [entry[3] for entry in seen(other)] == [event(i) for i in range(100)]


def test_only_one_converts_at_a_time(tmp_path: Path) -> None:
    fill(tmp_path)
    with LogReader(tmp_path) as reader, alone(reader), pytest.raises(LogLocked):
        compact(reader.topic("a"), min_age_s=0)
    assert compacted(tmp_path).done


def test_retention_counts_and_removes_parquet_files(tmp_path: Path) -> None:
    fill(tmp_path, 200)
    compacted(tmp_path)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "topics").rglob("*.parquet"))]
    assert len(sizes) >= 4
    with TopicLog(tmp_path, small(retention_bytes=sum(sizes[2:]) + 4096)) as log:
        log.core.keeper.care()
        topic = log.reader().topic("a")
        assert len(files(tmp_path, "parquet")) == len(sizes) - 2
        assert files(tmp_path, "parquet")[0] == parquet_name(topic.earliest)
        assert len(everything(topic)) == 200 - topic.earliest
        with pytest.raises(OffsetGone):
            next(batches(topic, 0))
    later = small(retention_s=1.0, clock=lambda: 1 << 61)
    with TopicLog(tmp_path, later) as log:
        log.core.keeper.care()
        assert files(tmp_path, "parquet") == []
