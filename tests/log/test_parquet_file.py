"""A segment as a Parquet file: every stored byte comes back, and damage is found."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import LogDamaged
from echomesh.events import Event
from echomesh.log.arrow import SCHEMA, Builder, table
from echomesh.log.parquet_file import build
from tests.log.arrow_support import EVENTS, TIME_NS, packed
from tests.log.parquet_support import LOG_ID, opened, records_of
from tests.support.counts import FULL, count


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
