"""Topics as Arrow batches: row for row what `Event.decode` says, in bounds, with the reader's errors."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echomesh.errors import (
    BadEvent,
    HoleError,
    LogBehind,
    LogCorrupt,
    NotAnEvent,
    OffsetGone,
    UsageError,
)
from echomesh.events import Event
from echomesh.log import LogOptions, LogReader, TopicLog
from echomesh.log.arrow import SCHEMA, Builder, batches, follow, schema, table
from echomesh.native.log_blocks import kept_memory
from echomesh.native.log_record import encode, scan
from tests.log.support import crash, small
from tests.support.counts import count

TIME_NS = 1_700_000_000_123_456_789
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12).filter(
    lambda name: name not in {*SCHEMA.names, "specversion"}
)
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn")), max_size=40)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda time: time.replace(tzinfo=UTC))
VALUES = st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), TEXT, st.binary(max_size=40), TIMES)
EVENTS = st.builds(
    Event,
    type=TEXT.filter(bool),
    source=st.sampled_from(["/shop", "urn:a:b", "https://example.com/a?b#c", "//host:80/x", "a" * 300]),
    id=TEXT.filter(bool),
    data=st.one_of(st.none(), st.binary(max_size=100), TEXT),
    time=st.one_of(st.none(), TIMES),
    subject=st.one_of(st.none(), TEXT.filter(bool)),
    datacontenttype=st.sampled_from([None, "text/plain", "application/cbor; a=b", 'a/b; c="d e"']),
    dataschema=st.sampled_from([None, "https://example.com/schema.json"]),
    extensions=st.dictionaries(NAMES, VALUES, max_size=6),
)


def records(events: list[bytes], first: int = 0) -> Any:
    """Checked records of these events, as a reader gives them."""
    data = b"".join(encode(first + i, TIME_NS + i, None, event) for i, event in enumerate(events))
    return scan(data, 0, first)


def rows(events: list[bytes], **options: Any) -> list[dict[str, Any]]:
    builder = Builder("t/1", **options)
    found = [*builder.add(records(events)), *builder.rest()]
    for batch in found:
        batch.validate(full=True)
    return table(found, options.get("columns")).to_pylist()


def row(event: Event, offset: int) -> dict[str, Any]:
    """The row by a plain model."""
    event = Event.decode(event.encode())  # the order of its extensions is that of the encoding
    payload = event.payload
    return {
        "topic": "t/1",
        "offset": offset,
        "timestamp": datetime.fromtimestamp(0, UTC) + timedelta(microseconds=(TIME_NS + offset) // 1000),
        "time": event.time,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
        "data": payload.encode() if isinstance(payload, str) else payload,
        "attributes": list(event.canonical_extensions().items()),
    }


def agree(data: bytes) -> None:
    """The scanner takes these bytes if and only if `Event.decode` does, and finds the same in them."""
    try:
        event = Event.decode(data)
    except BadEvent:
        with pytest.raises(NotAnEvent):
            rows([data])
    else:
        assert rows([data]) == [row(event, 0)]


@given(st.lists(EVENTS, max_size=8))
def test_rows_are_what_the_events_say(events: list[Event]) -> None:
    assert rows([event.encode() for event in events]) == [row(event, i) for i, event in enumerate(events)]


@given(EVENTS, st.integers(0, 10_000), st.binary(min_size=1, max_size=4), st.booleans())
def test_damaged_encodings_are_judged_as_by_the_decoder(event: Event, at: int, noise: bytes, insert: bool) -> None:
    data = bytearray(event.encode())
    at %= len(data)
    data[at : at if insert else at + len(noise)] = noise
    agree(bytes(data))


def test_random_damage_is_judged_as_by_the_decoder() -> None:
    chosen = random.Random(5)
    good = Event(
        type="t", source="/s", data="text", subject="s", dataschema="a:b", datacontenttype="a/b",
        extensions={"a": 1, "b": True, "c": b"12", "d": datetime(2020, 2, 29, tzinfo=UTC), "e": "x", "f": -70000},
    ).encode()  # fmt: skip
    for _ in range(count(2000, 200_000)):
        data = bytearray(good)
        for _ in range(chosen.randint(1, 3)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        agree(bytes(data) if chosen.random() < 0.8 else bytes(data[: chosen.randrange(len(data) + 1)]))


REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def packed(**attributes: Any) -> bytes:
    return msgpack.packb(REQUIRED | attributes)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "time",
    [
        "2018-04-05T17:31:00Z",
        "2018-04-05t17:31:00z",
        "2018-04-05T17:31:00.1Z",
        "2018-04-05T17:31:00.123456789+02:00",
        "2018-04-05T00:31:00-23:59",
        "2016-12-31T23:59:60Z",
        "2016-12-31T23:58:60Z",
        "2020-02-29T00:00:00Z",
        "2019-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2000-02-29T23:59:59.999999999Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59-01:00",
        "2018-04-05T24:00:00Z",
        "2018-04-05T17:31:00+24:00",
        "2018-04-05T17:31:00+01:60",
        "2018-04-05T17:31:00.Z",
        "2018-04-05 17:31:00Z",
        "2018-04-05T17:31:00",
        "2018-4-05T17:31:00Z",
        "2018-13-05T17:31:00Z",
        "٢٠١٨-04-05T17:31:00Z",
        "",
        7,
        True,
        b"2018-04-05T17:31:00Z",
        msgpack.Timestamp(0, 0),
        msgpack.Timestamp(1, 1499),
        msgpack.Timestamp(1, 1500),
        msgpack.Timestamp(-1, 999_999_500),
        msgpack.Timestamp(1, 999_999_999),
        msgpack.Timestamp(253402300799, 999_999_499),
        msgpack.Timestamp(2**33, 1),
        msgpack.Timestamp(-62135596800, 0),
        msgpack.Timestamp(-62135596801, 0),
        msgpack.Timestamp(253402300799, 999_999_999),
        msgpack.Timestamp(253402300800, 0),
        msgpack.ExtType(5, bytes(4)),
        None,
    ],
)
def test_times_of_every_form_are_read_as_by_the_decoder(time: Any) -> None:
    agree(packed(time=time))
    agree(packed(ext=time))


@pytest.mark.parametrize(
    "value",
    [0, 127, 128, -1, -32, -33, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**63,
     2**64 - 1, -(2**63), 1.5, [], {}, [1], {"a": 1}, None, "", "a\x7fb", "a\nb", "\x80", "\ufdd0", "\U0001fffe",
     "ü€😀", "x" * 300, b"", b"1", b"12", b"123", b"x" * 70_000, "y" * 70_000],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
def test_values_of_every_type_are_read_as_by_the_decoder(value: Any) -> None:
    for name in ("ext", "data", "subject", "id", "type", "source", "dataschema", "datacontenttype", "specversion"):
        agree(packed(**{name: value}))


@pytest.mark.parametrize("header", ["d9 {:02x}", "da {:04x}", "db {:08x}", "c4 {:02x}", "c5 {:04x}", "c6 {:08x}"])
def test_lengths_may_take_more_bytes_than_they_need(header: str) -> None:
    value = bytes.fromhex(header.format(3)) + b"abc"
    agree(b"\x85" + packed()[1:] + b"\xa4data" + value)
    agree(b"\x85" + packed()[1:] + b"\xa3ext" + value)
    agree(b"\x85" + packed()[1:] + bytes.fromhex(header.format(3)) + b"ext\x07")
    agree(b"\xde\x00\x05" + packed()[1:] + b"\xa3ext" + value)
    agree(b"\xdf\x00\x00\x00\x05" + packed()[1:] + b"\xa3ext" + value)


@pytest.mark.parametrize("form", [b"\xc7\x04\xff", b"\xc8\x00\x04\xff", b"\xc9\x00\x00\x00\x04\xff", b"\xd6\xff"])
def test_a_timestamp_may_come_in_any_extension_header(form: bytes) -> None:
    agree(b"\x85" + packed()[1:] + b"\xa4time" + form + struct.pack(">I", 1_700_000_000))


@pytest.mark.parametrize(
    "body", [b"", bytes(4), bytes(5), b"\xff" * 8, bytes(12), b"\xff" * 12, bytes(3) + b"\x01" * 9]
)
def test_a_timestamp_that_is_none_is_refused(body: bytes) -> None:
    for name in (b"\xa4time", b"\xa3ext", b"\xa4data"):
        agree(b"\x85" + packed()[1:] + name + b"\xc7" + bytes([len(body)]) + b"\xff" + body)


@pytest.mark.parametrize("number", [0, 1, 63, 64, 65, 100, 246, 247, 251, 252, 300])
def test_many_extensions_and_names_that_come_twice(number: int) -> None:
    agree(packed(**{f"n{i}": i for i in range(number)}))
    body = packed()[1:] + b"".join(msgpack.packb(f"n{i}") + b"\x01" for i in range(number)) + b"\xa2n0\x01"
    agree(b"\xde" + struct.pack(">H", number + 5) + body)


@pytest.mark.parametrize("name", ["A", "a_b", "a-b", "", "ä", "id2", "data2", "datum", "specversion1"])
def test_names_of_extensions_are_judged_as_by_the_decoder(name: str) -> None:
    agree(packed(**{name: "x"}))


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x80", b"\x90", b"x", packed() + b"\x00", b"\x84\x01\x01\x02\x02"])
def test_bytes_that_are_no_event_at_all(data: bytes) -> None:
    agree(data)


@pytest.mark.parametrize("missing", sorted(REQUIRED))
def test_a_required_attribute_that_is_missing(missing: str) -> None:
    agree(msgpack.packb({name: value for name, value in REQUIRED.items() if name != missing}))


@pytest.mark.parametrize("source", ["/a b", "a:b:c", ":a", "//h:x", "http://[::1]/", "%zz", "a" * 1000, "ü", "%41"])
def test_grammars_are_those_of_the_decoder_whether_seen_before_or_not(source: str) -> None:
    for _ in range(2):
        agree(packed(source=source))
        agree(packed(dataschema=source))
        agree(packed(datacontenttype=source))


def test_more_values_than_are_remembered_are_checked_all_the_same() -> None:
    events = [packed(source=f"/s/{i}") for i in range(2000)]
    found = rows(events * 2)
    assert [entry["source"] for entry in found] == [f"/s/{i}" for i in range(2000)] * 2
    with pytest.raises(NotAnEvent) as caught:
        rows([*events, packed(source="/s/ 1")])
    assert caught.value.offset == 2000


@given(st.lists(EVENTS, min_size=1, max_size=4), st.sets(st.sampled_from(SCHEMA.names)).map(sorted), st.randoms())
@example([Event(type="t", source="/s", time=None)], ["topic"], random.Random(1))
def test_only_the_columns_asked_for_are_there_in_the_order_asked(
    events: list[Event], columns: list[str], chosen: random.Random
) -> None:
    chosen.shuffle(columns)
    found = rows([event.encode() for event in events], columns=columns)
    if columns:
        assert found == [{name: row(event, i)[name] for name in columns} for i, event in enumerate(events)]


@pytest.mark.parametrize("column", SCHEMA.names)
def test_each_column_alone_has_the_type_that_spark_takes(column: str) -> None:
    wanted: dict[str, pa.DataType] = {"offset": pa.int64(), "data": pa.binary()}
    wanted["attributes"] = pa.map_(pa.string(), pa.string())
    wanted |= dict.fromkeys(("timestamp", "time"), pa.timestamp("us", "UTC"))
    (batch,) = _all(Builder("t", [column]), [packed(data=b"x", e=1, time="2020-01-01T00:00:00Z", subject="s")])
    assert batch.schema == pa.schema([(column, wanted.get(column, pa.string()))])
    assert batch.column(0).null_count == (column in ("datacontenttype", "dataschema"))


def values(batch: pa.RecordBatch, column: str) -> list[Any]:
    return batch.column(column).to_pylist()


def _all(builder: Builder, events: list[bytes]) -> list[pa.RecordBatch]:
    return [*builder.add(records(events)), *builder.rest()]


def test_unknown_and_doubled_columns_are_refused() -> None:
    with pytest.raises(UsageError, match="datacontenttype"):
        schema(["id", "content"])
    with pytest.raises(UsageError, match="twice"):
        schema(["id", "id"])
    with pytest.raises(UsageError):
        Builder("t", max_rows=0)


def test_batches_keep_their_limits_and_a_larger_event_comes_alone() -> None:
    sizes = [10, 100, 5000, 20, 0, 900, 900, 900, 5000, 5000, 1]
    events = [packed(data=bytes(size)) for size in sizes]
    found = _all(Builder("t", max_bytes=2000), events)
    assert [len(value) for batch in found for value in values(batch, "data")] == sizes
    assert all(batch.nbytes <= 2000 or batch.num_rows == 1 for batch in found)
    assert [batch.num_rows for batch in found if batch.nbytes > 5000] == [1, 1, 1]
    assert [batch.num_rows for batch in _all(Builder("t", max_rows=4), events)] == [4, 4, 3]
    assert [batch.num_rows for batch in _all(Builder("t", max_bytes=1), events)] == [1] * 11


def test_a_hundred_thousand_rows_grow_every_column() -> None:
    events = [packed(data=b"%d" % i, subject=f"s{i}", ext=i) for i in range(100_000)]
    (batch,) = _all(Builder("t", max_bytes=1 << 30), events)
    batch.validate(full=True)
    assert values(batch, "data") == [b"%d" % i for i in range(100_000)]
    assert batch.column("attributes")[77_777].as_py() == [("ext", "77777")]
    assert batch.column("time").null_count == 100_000


def test_batches_stand_on_memory_of_their_own() -> None:
    builder = Builder("t", max_rows=2)
    found = _all(builder, [packed(data=b"%d" % i * 20_000) for i in range(10)])
    again = _all(builder, [packed(data=b"%d" % i * 20_000) for i in range(10)])
    for kept in (found, again):
        assert [value for batch in kept for value in values(batch, "data")] == [b"%d" % i * 20_000 for i in range(10)]


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20, 20 << 20])
def test_events_of_any_size_come_through_the_log(tmp_path: Path, size: int) -> None:
    event = Event(type="t", source="/s", data=random.Random(1).randbytes(size))
    with TopicLog(tmp_path, LogOptions(duplicate_bytes=0)) as log:
        log.append_many("a", [packed(), event, packed()])
        found = list(batches(log.reader().topic("a"), 0, max_bytes=16 << 20))
    assert [value for batch in found for value in values(batch, "data")] == [None, event.payload, None]
    assert len(found) == (3 if size > 16 << 20 else 1)


def filled(directory: Path, number: int = 200) -> None:
    with TopicLog(directory, small()) as log:
        log.append_many("a", [packed(data=b"%d" % i) for i in range(number)])


def collect(found: Iterator[pa.RecordBatch], seen: list[int]) -> list[int]:
    """Adds the offsets of the batches to those seen, as far as they come."""
    for batch in found:
        seen += values(batch, "offset")
    return seen


def offsets(found: Iterator[pa.RecordBatch]) -> list[int]:
    return collect(found, [])


def test_a_range_of_offsets_over_many_segments(tmp_path: Path) -> None:
    filled(tmp_path)
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        assert offsets(batches(topic, 0)) == list(range(200))
        assert offsets(batches(topic, 17, 111, max_rows=10)) == list(range(17, 111))
        assert offsets(batches(topic, 200)) == []
        assert offsets(batches(topic, 20, 10)) == []
        with pytest.raises(LogBehind):
            next(batches(topic, 0, 201))


def test_a_corrupt_record_ends_a_batch_and_then_raises(tmp_path: Path) -> None:
    filled(tmp_path)
    path = sorted((tmp_path / "topics").rglob("*.seg"))[2]
    data = bytearray(path.read_bytes())
    at = data.index(b"\xa4data") + 5
    data[at + 200] ^= 1
    path.write_bytes(data)
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        seen: list[int] = []
        with pytest.raises(LogCorrupt) as caught:
            collect(batches(topic, 0), seen)
        assert seen == list(range(caught.value.first))
        assert offsets(batches(topic, caught.value.last + 1)) == list(range(caught.value.last + 1, 200))


def test_a_record_that_is_no_event_is_named_and_can_be_skipped(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append_many("a", [packed(), packed(), b"no event", packed()])
        topic = log.reader().topic("a")
        seen: list[int] = []
        with pytest.raises(NotAnEvent, match="offset 2") as caught:
            collect(batches(topic, 0), seen)
        assert (seen, caught.value.first, caught.value.last) == ([0, 1], 2, 2)
        assert offsets(batches(topic, 3)) == [3]
        assert offsets(batches(topic, 0, columns=["offset", "topic", "timestamp"])) == [0, 1, 2, 3]


def test_gaps_by_retention_and_unclean_stops_are_the_readers_errors(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(retention_bytes=4000)) as log:
        log.append_many("a", [packed(data=b"%d" % i) for i in range(300)])
        log.core.keeper.care()
        topic = log.reader().topic("a")
        assert topic.earliest > 0
        with pytest.raises(OffsetGone) as gone:
            next(batches(topic, 0))
        assert gone.value.last == topic.earliest - 1
    log = TopicLog(tmp_path, small())
    log.create("o", level="os")
    log.append_many("o", [packed() for _ in range(5)])
    crash(log)
    with TopicLog(tmp_path, small()) as log:
        log.append("o", packed())
        topic = log.reader().topic("o")
        seen: list[int] = []
        with pytest.raises(HoleError) as hole:
            collect(batches(topic, 0), seen)
        assert seen == [0, 1, 2, 3, 4]
        assert offsets(batches(topic, hole.value.last + 1)) == [topic.end - 1]


def test_a_live_tail_is_followed(tmp_path: Path) -> None:
    with TopicLog(tmp_path, LogOptions(duplicate_bytes=0)) as log:
        log.append("a", packed(data=b"0"))

        def write() -> None:
            for i in range(1, 200):
                log.append("a", packed(data=b"%d" % i))

        writer = threading.Thread(target=write)
        writer.start()
        with LogReader(tmp_path) as reader:
            seen: list[bytes] = []
            for batch in follow(reader.topic("a"), 0, timeout=30, columns=["data"]):
                seen += values(batch, "data")
                if len(seen) == 200:
                    break
        writer.join()
        assert seen == [b"%d" % i for i in range(200)]


def test_times_with_zones_agree_with_python() -> None:
    chosen = random.Random(9)
    for _ in range(count(500, 50_000)):
        zone = timezone(timedelta(minutes=chosen.randint(-1439, 1439)))
        time = datetime(chosen.randint(2, 9998), 1, 1, tzinfo=zone) + timedelta(
            seconds=chosen.randrange(366 * 86400), microseconds=chosen.randrange(10**6)
        )
        agree(packed(time=time.isoformat()))
        agree(packed(ext=msgpack.Timestamp.from_datetime(time)))


def test_the_log_works_without_pyarrow_and_says_what_to_install() -> None:
    script = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "import echomesh.errors, echomesh.log\n"
        "try:\n"
        "    import echomesh.log.arrow\n"
        "except echomesh.errors.UsageError as error:\n"
        "    print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "echomesh[node]" in found.stdout


def test_memory_of_dropped_batches_is_kept_within_bounds() -> None:
    events = [packed(data=bytes(100_000)) for _ in range(100)]
    for size in (1 << 20, 3 << 20, 5 << 20, 1 << 30):
        _all(Builder("t", max_bytes=size), events)
    assert 0 < kept_memory() <= 128 << 20
