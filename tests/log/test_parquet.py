"""Segments as Parquet files: every stored byte comes back, and no crash loses one."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import LogCorrupt, LogDamaged, LogLocked, OffsetGone
from echomesh.events import Event
from echomesh.log import LogReader, TopicLog
from echomesh.log.arrow import SCHEMA, Builder, batches, table
from echomesh.log.layout import parquet_name, segment_name
from echomesh.log.parquet import _alone, compact
from echomesh.log.parquet_file import ParquetSegment, build
from echomesh.log.storage import PowerCut, RealStorage, SimulatedStorage, Storage
from echomesh.log.topic_reader import TopicReader
from echomesh.native.log_record import Records, encode, scan
from tests.log.support import crash, small
from tests.log.test_arrow import EVENTS, packed
from tests.support.counts import FULL, count
from tests.support.repository import ROOT

LOG_ID = bytes(range(16))
TIME_NS = 1_700_000_000_123_456_789


def records_of(events: list[bytes], first: int = 7) -> Records:
    """Records with odd times and some origins."""
    made = [
        encode(first + i, TIME_NS + 1003 * i, bytes([i % 256]) * 24 if i % 3 == 1 else None, event)
        for i, event in enumerate(events)
    ]
    return scan(b"".join(made), 0, first)


def opened(data: bytes) -> ParquetSegment:
    return ParquetSegment(lambda at, size: data[at : at + size], len(data), "file")


def given_back(events: list[bytes]) -> bool:
    """Whether a file of these events gives back their records byte for byte, and their rows."""
    records = records_of(events)
    data = build(records, "t/1", LOG_ID, 3)
    assert data is not None
    segment = opened(data)
    found = b"".join(bytes(segment.records(i)[0]) for i in range(len(segment.facts.groups)))
    builder = Builder("t/1")
    wanted = table([*builder.add(records), *builder.rest()])
    rows = table(segment.batches(7, 7 + len(events), SCHEMA.names, 1 << 30, 1 << 30))
    assert rows.equals(wanted)
    return found == bytes(records.raw())


@given(st.lists(EVENTS, min_size=1, max_size=8))
def test_events_of_all_types_come_back_byte_for_byte(events: list[Event]) -> None:
    assert given_back([event.encode() for event in events])


@pytest.mark.parametrize(
    "event",
    [
        packed(time="2018-04-05T17:31:00Z"),
        packed(time="2018-04-05T17:31:00.123456Z"),
        packed(time="2018-04-05T17:31:00.123456789+02:00"),
        packed(time="0001-01-01T00:00:00Z"),
        packed(time=msgpack.Timestamp(1, 999), ext=msgpack.Timestamp(1, 999)),
        packed(time=msgpack.Timestamp(1, 999_000), ext=msgpack.Timestamp(2**33, 999_000)),
        packed(time=msgpack.Timestamp(-1, 0), ext=msgpack.Timestamp(-1, 1000)),
        packed(ext=msgpack.Timestamp(-62135596800, 0), more=msgpack.Timestamp(253402300799, 0)),
        packed(a=-1, b=-32, c=-33, d=127, e=128, f=255, g=65536, h=-129, i=-40000, j=2**31 - 1, k=-(2**31), l=0),
        packed(a=True, b=False, c=b"", d=b"1", e=b"12", f=b"123", g="", h=b"x" * 300, i=b"y" * 70_000),
        packed(data="text"), packed(data=""), packed(data=b""), packed(data="ü" * 40_000), packed(data=b"x" * 70_000),
        packed(subject="s" * 40, id="i" * 300, type="t" * 70_000),
        packed(**{f"n{i}": i for i in range(200)}),
        b"\xde\x00\x05" + packed()[1:] + b"\xa3ext\x01",
        b"\xdf\x00\x00\x00\x05" + packed()[1:] + b"\xa3ext\x01",
        b"\x85" + packed()[1:] + b"\xd9\x03ext\xda\x00\x03abc",
        b"\x85" + packed()[1:] + b"\xdb\x00\x00\x00\x03ext\xd3" + struct.pack(">q", -5),
        b"\x85" + packed()[1:] + b"\xda\x00\x04data\xc6\x00\x00\x00\x03abc",
        b"\x85" + packed()[1:] + b"\xa4data\xda\x00\x03abc",
        b"\x85" + packed()[1:] + b"\xa3ext\xcf" + struct.pack(">Q", 5),
        b"\x85" + packed()[1:] + b"\xa4time\xc7\x04\xff" + struct.pack(">I", 5),
        b"\x85" + packed()[1:] + b"\xa3ext\xd7\xff" + struct.pack(">Q", 5),
        b"\x85" + packed()[1:] + b"\xa4time\xc7\x0c\xff" + struct.pack(">Iq", 0, 5),
        b"\x85" + packed()[1:] + b"\xa4time\xd9\x142018-04-05T17:31:00Z",
        msgpack.packb({"data": b"x", "type": "t", "zz": 1, "source": "/s", "aa": 2, "id": "1", "specversion": "1.0"}),
    ],
    ids=lambda event: repr(event[60:90]),
)  # fmt: skip
def test_every_way_to_encode_an_event_comes_back(event: bytes) -> None:
    assert given_back([event])
    assert given_back([packed(), event, packed(ext=1), event])


def test_other_programs_read_the_file(tmp_path: Path) -> None:
    data = build(records_of([packed(data=b"%d" % i, ext=i) for i in range(10)]), "t/1", LOG_ID, 3)
    assert data is not None
    (tmp_path / "a.parquet").write_bytes(data)
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.column_names == [*SCHEMA.names, "wire", "nanos", "origin"]
    assert found.select(SCHEMA.names).schema.equals(SCHEMA)
    assert found.column("data").to_pylist() == [b"%d" % i for i in range(10)]
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    statistics = metadata.row_group(0).column(1).statistics
    assert statistics is not None
    assert (statistics.min, statistics.max) == (7, 16)
    assert metadata.row_group(0).column(4).compression == "ZSTD"


def test_row_groups_stay_small_and_are_found_by_offset_and_time() -> None:
    events = [packed(data=random.Random(i).randbytes(50_000)) for i in range(200)]
    data = build(records_of(events), "t", LOG_ID, 3)
    assert data is not None
    segment = opened(data)
    assert len(segment.facts.groups) == 3
    for at in (0, 50, 99, 199):
        records = segment.read(7 + at, 1 << 20, 1 << 40)
        assert (records.first, records.events()[0]) == (7 + at, events[at])
        assert segment.first_at(TIME_NS + 1003 * at) <= 7 + at
    assert len(segment.read(8, 10, 1 << 40)) == 1
    assert segment.first_at(1 << 62) == 207
    found = list(segment.batches(10, 190, ["offset", "data"], 120_000, 100))
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(10, 190))
    assert max(batch.nbytes for batch in found) <= 120_000


def test_every_flipped_bit_is_found_or_was_never_read() -> None:
    events = [packed(data=b"%d" % i, ext=i) for i in range(5)]
    records = records_of(events)
    good = build(records, "t", LOG_ID, 3)
    assert good is not None
    assert opened(good).read(7, 1 << 20, 1 << 40).raw() == records.raw()
    chosen = random.Random(3)
    for bit in range(0, len(good) * 8, 1) if FULL else chosen.sample(range(len(good) * 8), 1500):
        noisy = bytearray(good)
        noisy[bit // 8] ^= 1 << (bit % 8)
        try:
            segment = opened(bytes(noisy))
            found = segment.read(7, 1 << 20, 1 << 40).raw()
            rows = table(segment.batches(7, 12, SCHEMA.names, 1 << 30, 1 << 30))
        except LogDamaged:
            continue
        assert found == records.raw()
        assert rows.column("data").to_pylist() == [b"%d" % i for i in range(5)]


def test_files_full_of_nonsense_are_damaged_never_a_crash() -> None:
    good = build(records_of([packed(data=b"%d" % i) for i in range(50)]), "t", LOG_ID, 3)
    assert good is not None
    chosen = random.Random(4)
    for _ in range(count(300, 20_000)):
        noisy = bytearray(good)
        start = chosen.randrange(len(noisy))
        noisy[start : start + chosen.randint(1, 80)] = chosen.randbytes(chosen.randint(0, 80))
        try:
            opened(bytes(noisy)).read(7, 1 << 20, 1 << 40)
        except LogDamaged:
            continue
    for size in range(0, len(good), 37):
        with pytest.raises(LogDamaged):
            opened(good[:size])


# In a log


def event(i: int) -> bytes:
    return packed(id=str(i), data=b"%d" % i * 10, n=i, time=datetime(2020, 1, 1, tzinfo=UTC).isoformat())


def fill(directory: Path, number: int = 100, storage: Storage | None = None, **options: Any) -> None:
    with TopicLog(directory, small(storage, **options)) as log:
        for i in range(0, number, 10):
            log.append_many("a", [event(k) for k in range(i, i + 10)])


def everything(topic: TopicReader) -> list[tuple[int, int, bytes | None, bytes]]:
    found = []
    offset = topic.earliest
    while offset < topic.end:
        records = topic.read(offset, max_bytes=500)
        found += records.tuples()
        offset = records.next_offset
    return found


def seen(directory: Path, storage: Storage | None = None) -> list[tuple[int, int, bytes | None, bytes]]:
    with LogReader(directory, storage=storage) as reader:
        return everything(reader.topic("a"))


def compacted(directory: Path, storage: Storage | None = None, **options: Any) -> Any:
    with LogReader(directory, storage=storage) as reader:
        return compact(reader.topic("a"), min_age_s=options.pop("min_age_s", 0), **options)


def files(directory: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in (directory / "topics").rglob(f"*.{suffix}"))


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
    with LogReader(tmp_path) as reader, _alone(reader), pytest.raises(LogLocked):
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


def test_a_replayed_journal_does_not_bring_a_converted_segment_back(tmp_path: Path) -> None:
    log = TopicLog(tmp_path, small())
    old = {path: path.read_bytes() for path in tmp_path.glob("checkpoint*")}
    log.append_many("a", [event(i) for i in range(60)])
    log.core.keeper.sync()
    log.core.keeper.checkpoint()
    assert compacted(tmp_path).done
    before = seen(tmp_path)
    crash(log)
    for path in tmp_path.glob("checkpoint*"):
        path.unlink()
    for path, data in old.items():
        path.write_bytes(data)
    assert seen(tmp_path) == before
    with TopicLog(tmp_path, small()) as log:
        assert log.report.replayed_frames
        assert everything(log.reader().topic("a")) == before
    assert len(files(tmp_path, "seg")) == 1


class Failing(RealStorage):
    """Raises at the n-th call that changes something."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerCut("here")

    def pwrite(self, *given: Any) -> None:
        self._step()
        super().pwrite(*given)

    def fdatasync(self, handle: int) -> None:
        self._step()
        super().fdatasync(handle)

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self._step()
        super().sync_directory(path)


def through_all_steps(run: Callable[[int], bool]) -> int:
    """Calls `run` with 0, 1, 2 ... steps allowed, until that was enough."""
    step = 0
    while not run(step):
        step += 1
    return step


def test_a_conversion_that_ends_at_any_step_leaves_every_event(tmp_path: Path) -> None:
    fill(tmp_path, 40)
    before = seen(tmp_path)

    def run(step: int) -> bool:
        try:
            compacted(tmp_path, Failing(step))
        except PowerCut:
            assert seen(tmp_path) == before
            return False
        return True

    # Each attempt starts from what the one before it left behind.
    assert through_all_steps(run) >= 5
    assert seen(tmp_path) == before
    assert len(files(tmp_path, "seg")) == 1
    assert files(tmp_path, "new") == []


def test_a_power_cut_at_any_step_of_a_conversion_loses_nothing(tmp_path: Path) -> None:
    for seed in range(count(2, 30)):

        def run(step: int, seed: int = seed) -> bool:
            disk = SimulatedStorage(seed=seed)
            fill(tmp_path, 40, disk)
            before = seen(tmp_path, disk)
            disk.cut_after = disk.steps + step
            try:
                compacted(tmp_path, disk)
            except PowerCut:
                left = disk.after_power_cut()
                assert seen(tmp_path, left) == before
                with TopicLog(tmp_path, small(left)) as log:
                    assert everything(log.reader().topic("a")) == before
                compacted(tmp_path, left)
                assert seen(tmp_path, left) == before
                return False
            return True

        assert through_all_steps(run) >= 7


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_nine_of_a_conversion_loses_nothing(tmp_path: Path) -> None:
    chosen = random.Random(8)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    script = (
        "import sys\n"
        "from echomesh.log import LogReader\n"
        "from echomesh.log.parquet import compact\n"
        "with LogReader(sys.argv[1]) as reader:\n"
        "    print('open', flush=True)\n"
        "    compact(reader.topic('a'), min_age_s=0)\n"
    )
    for round in range(count(5, 50)):
        directory = tmp_path / str(round)
        fill(directory, 400, segment_bytes=1024)
        before = seen(directory)
        found: list[BaseException] = []
        stop = threading.Event()

        def read(where: Path = directory, wanted: Any = before, errors: Any = found, stop: Any = stop) -> None:
            try:
                while not stop.is_set():
                    assert seen(where) == wanted
            except BaseException as error:
                errors.append(error)

        reading = threading.Thread(target=read)
        reading.start()
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE, env=environment
            )
            assert process.stdout is not None
            process.stdout.readline()
            sleep(chosen.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            assert seen(directory) == before
        stop.set()
        reading.join()
        assert not found, found
        compacted(directory)
        assert seen(directory) == before
        assert len(files(directory, "seg")) == 1


def test_a_segment_and_its_parquet_file_side_by_side_are_one(tmp_path: Path) -> None:
    fill(tmp_path)
    before = seen(tmp_path)
    path = sorted((tmp_path / "topics").rglob("*.seg"))[0]
    kept = path.read_bytes()
    compacted(tmp_path)
    path.write_bytes(kept)
    assert seen(tmp_path) == before
    assert path.name == segment_name(0)
    compacted(tmp_path)
    assert not path.exists()
    path.write_bytes(kept)
    (path.parent / parquet_name(0)).write_bytes(b"half a file")
    compacted(tmp_path)
    assert seen(tmp_path) == before
    assert not path.exists()
