from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import BadEvent, BadEventEncoding
from echomesh.events import Event, rules, wire
from tests.events.samples import (
    MINIMAL,
    TIME,
    attributes,
    decode_or_refuse,
    events,
    json_values,
    make,
    packed,
)


class TestWire:
    @given(events)
    def test_an_event_comes_back_as_it_was(self, event: Event) -> None:
        stored = event.encode()
        back = Event.decode(stored)
        assert back == event
        assert back.encode() is stored
        assert type(back.payload) is type(event.payload)
        assert msgspec.structs.replace(back).encode() == stored

    @given(events)
    def test_the_bytes_are_the_flat_map_of_the_protocol(self, event: Event) -> None:
        members = msgspec.msgpack.decode(event.encode())
        assert members.pop("data", None) == event.payload
        assert members == event.attributes()

    def test_equal_events_have_equal_bytes(self) -> None:
        one, other = (
            make(id="1", time=TIME, extensions=dict(pairs)) for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
        )
        assert one.encode() == other.encode()

    def test_bytes_of_other_clients_are_kept_exactly(self) -> None:
        members = {
            "data": "[1]",
            "time": "2018-04-05T19:31:00.123456789+02:00",
            "datacontenttype": "application/json",
            **MINIMAL,
        }
        for stored in (msgspec.msgpack.encode(members), msgspec.msgpack.encode({**members, "ext": 1})):
            # The widest header for the map is as good as the shortest.
            for form in (stored, b"\xde\x00" + bytes([stored[0] & 15]) + stored[1:],
                         b"\xdf\0\0\0" + bytes([stored[0] & 15]) + stored[1:]):  # fmt: skip
                event = Event.decode(form)
                assert event.encode() == form
                assert (event.data, event.payload) == ([1], "[1]")
                assert event.time == TIME + timedelta(microseconds=123456)

    def test_a_buffer_may_go_after_decoding(self) -> None:
        buffer = bytearray(make(id="1", data=b"abc").encode())
        event = Event.decode(memoryview(buffer))
        buffer[:] = bytes(len(buffer))
        assert (event.id, event.data, len(event.encode())) == ("1", b"abc", len(buffer))

    def test_large_events_come_back_too(self) -> None:
        for data in (os.urandom(200_000), "ü" * 100_000):
            event = make(data=data, extensions={"a": b"x", "at": TIME, "n": -5, "yes": True})
            assert Event.decode(event.encode()) == event

    @pytest.mark.parametrize("pad", [0, 2 * wire.SMALL_BYTES])
    @pytest.mark.parametrize("data", [None, 7, 1.5, True, ["x"], {"a": 1}, TIME])
    def test_data_is_bin_or_str(self, data: object, pad: int) -> None:
        with pytest.raises(BadEvent, match="'data'") as caught:
            Event.decode(packed(data=data, subject="s" * (pad or 1)))
        assert caught.value.attribute == "data"

    @pytest.mark.parametrize("name", ["subject", "datacontenttype", "dataschema", "time", "ext"])
    def test_nil_is_refused_with_advice(self, name: str) -> None:
        with pytest.raises(BadEvent, match=f"'{name}' = None is nil: leave it out"):
            Event.decode(packed(**{name: None}))

    @pytest.mark.parametrize("name", ["id", "subject", "time", "data", "ext"])
    def test_a_name_that_is_there_twice_is_refused(self, name: str) -> None:
        encode = msgspec.msgpack.encode
        members = [
            *MINIMAL.items(),
            *(() if name == "id" else [(name, "2018-04-05T17:31:00Z")]),
            (name, "2018-04-05T17:31:00Z"),
        ]
        stored = bytes([0x80 | len(members)]) + b"".join(encode(key) + encode(value) for key, value in members)
        with pytest.raises(BadEventEncoding, match="there twice"):
            Event.decode(stored)

    @pytest.mark.parametrize(
        "stored",
        [
            b"",
            b"\xc0",
            b"\x90",
            b"\xa1a",
            b"\x80",
            b"\xff" * 10,
            b"\xde",
            b"\xde\x00",
            b"\xdf\xff\xff\xff\xff",
            b"\x81\x01\x01",
            b"\x81\xa2id\xdd\xff\xff\xff\xff",
            b"\x81\xa1a" + b"\x91" * 100_000,
            b"\x81\xa1a" + b"\x91" * 1000,
            b"\x81\xa1\xff\x01",
            b"\x81\xa1a\xc6\xff\xff\xff\xff",
            b"\x81\xa4time\xd7\xff" + b"\xff" * 8,
            packed() + b"\x00",
            packed()[:-1],
            packed()[:1] + packed()[1:].replace(b"/s", b"\xff\xff"),
            packed(data="ab").replace(b"ab", b"\xff\xff"),
        ],
    )
    def test_bytes_that_are_no_event_are_refused(self, stored: bytes) -> None:
        with pytest.raises(BadEvent) as caught:
            Event.decode(stored)
        if isinstance(caught.value, BadEventEncoding):
            assert caught.value.size == len(stored)
            assert f"{len(stored)} bytes are not an event" in str(caught.value)

    def test_extension_types_of_messagepack_are_refused(self) -> None:
        for name in ("ext", "time", "data"):
            with pytest.raises(BadEvent):
                Event.decode(packed(**{name: msgspec.msgpack.Ext(5, b"abcd")}))

    @given(st.binary(max_size=300))
    def test_any_bytes_give_an_event_or_a_typed_error(self, stored: bytes) -> None:
        decode_or_refuse(stored)

    @given(events, st.data())
    def test_any_damage_gives_an_event_or_a_typed_error(self, event: Event, data: st.DataObject) -> None:
        damaged = bytearray(event.encode())
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        decode_or_refuse(bytes(damaged))
        decode_or_refuse(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))

    @given(st.dictionaries(st.sampled_from([*sorted(rules.CORE), "data", "ext", "Bad"]), attributes | json_values))
    def test_any_map_gives_an_event_or_a_typed_error(self, members: dict[str, Any]) -> None:
        decode_or_refuse(msgspec.msgpack.encode({**MINIMAL, **members}))
