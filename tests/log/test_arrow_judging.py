"""The scanner takes exactly the events that `Event.decode` takes, and finds the same in them."""

from __future__ import annotations

import random
import struct
from datetime import datetime, timedelta, timezone
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import NotAnEvent
from echomesh.events import Event
from tests.log.arrow_support import EVENTS, REQUIRED, agree, packed, row, rows
from tests.log.event_forms import TIME_FORMS, UNDAMAGED, VALUE_FORMS, alike, damaged
from tests.support.counts import count


@given(st.lists(EVENTS, max_size=8))
def test_rows_are_what_the_events_say(events: list[Event]) -> None:
    assert rows([event.encode() for event in events]) == [row(event, i) for i, event in enumerate(events)]


@given(EVENTS, st.integers(0, 10_000), st.binary(min_size=1, max_size=4), st.booleans())
def test_damaged_encodings_are_judged_as_by_the_decoder(event: Event, at: int, noise: bytes, insert: bool) -> None:
    data = bytearray(event.encode())
    at %= len(data)
    data[at : at if insert else at + len(noise)] = noise
    agree(bytes(data))
    agree(bytes(data), around=event.encode())


def test_random_damage_is_judged_as_by_the_decoder() -> None:
    for data in damaged(count(2000, 200_000)):
        agree(data)
        agree(data, around=UNDAMAGED)


@pytest.mark.parametrize("time", TIME_FORMS)
def test_times_of_every_form_are_read_as_by_the_decoder(time: Any) -> None:
    agree(packed(time=time))
    agree(packed(ext=time))


@pytest.mark.parametrize("value", VALUE_FORMS, ids=lambda value: repr(value)[:20])
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
def test_bytes_that_are_no_event_atall_of(data: bytes) -> None:
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


def test_events_that_are_almost_like_the_one_before_are_read_as_by_the_decoder() -> None:
    chosen = random.Random(11)
    for _ in range(count(20, 2000)):
        events = alike(40, chosen)
        wanted = [row(Event.decode(event), i) for i, event in enumerate(events)]
        assert rows(events) == wanted
        some = ["type", "offset", "dataschema"]
        assert rows(events, columns=some) == [{name: one[name] for name in some} for one in wanted]


def test_an_attribute_that_comes_twice_is_refused_where_it_is_expected_too() -> None:
    pairs = [
        ("specversion", "1.0"),
        ("source", "/s"),
        ("source", "/s"),
        ("id", "1"),
        ("type", "t"),
        ("data", b"x" * 90),
    ]
    twice = bytes([0x80 | len(pairs)]) + b"".join(msgpack.packb(text) for pair in pairs for text in pair)
    once = packed(source="/s", data=b"x" * 90)
    for around in (once, msgpack.packb(dict(pairs)), msgpack.packb(dict(reversed(pairs)))):
        agree(twice, around=around)


def test_times_with_zones_agree_with_python() -> None:
    chosen = random.Random(9)
    for _ in range(count(500, 50_000)):
        zone = timezone(timedelta(minutes=chosen.randint(-1439, 1439)))
        time = datetime(chosen.randint(2, 9998), 1, 1, tzinfo=zone) + timedelta(
            seconds=chosen.randrange(366 * 86400), microseconds=chosen.randrange(10**6)
        )
        agree(packed(time=time.isoformat()))
        agree(packed(ext=msgpack.Timestamp.from_datetime(time)))
