from __future__ import annotations

import base64
import json
from datetime import timedelta, timezone
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings import http as sdk_http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import BadEvent, BadEventData
from echomesh.events import Event, rules
from tests.events.samples import MINIMAL, TIME, decode_or_refuse, events, json_values, lowered, make, packed


class TestJson:
    @given(events)
    def test_an_event_comes_back(self, event: Event) -> None:
        line = event.to_json()
        assert b"\n" not in line
        assert Event.from_json(line) == lowered(event)

    @given(events)
    def test_the_sdk_reads_what_we_write(self, event: Event) -> None:
        read = JSONFormat().read(None, event.to_json())
        # The SDK makes up a time for an event that has none.
        made_up = {} if event.time else {"time": read.get_time()}
        assert Event.from_cloudevent(read) == msgspec.structs.replace(lowered(event), **made_up)

    def test_data_has_the_form_that_its_type_asks_for(self) -> None:
        def members(**changes: Any) -> Any:
            return json.loads(make(**changes).to_json())

        assert members(data={"a": 1})["data"] == {"a": 1}
        assert members(data="<x/>", datacontenttype="application/xml")["data"] == "<x/>"
        assert members(data=b"\xff")["data_base64"] == "/w=="
        assert members(data=b"{", datacontenttype="application/json")["data_base64"] == "ew=="
        assert members(data="x", datacontenttype=None)["datacontenttype"] == "text/plain"
        assert "data" not in members()

    def test_json_of_many_lines_becomes_one(self) -> None:
        event = make(data=b'{\n "a":\r\n [1]}', datacontenttype="application/json")
        assert b"\n" not in event.to_json()
        assert Event.from_json(event.to_json()).data == {"a": [1]}

    def test_the_examples_of_the_standard_are_read(self) -> None:
        base = {**MINIMAL, "subject": None, "unsetextension": None, "comexampleothervalue": 5}
        event = Event.from_json(json.dumps({**base, "data": "I'm just a string"}))
        assert (event.data, event.datacontenttype, event.payload) == (
            "I'm just a string", "application/json", b'"I\'m just a string"',
        )  # fmt: skip
        assert event.extensions == {"comexampleothervalue": 5}
        assert (event.subject, event.time) == (None, None)
        xml = Event.from_json(json.dumps({**base, "datacontenttype": "application/xml", "data": "<x/>"}))
        assert xml.data == "<x/>"
        binary = Event.from_json(json.dumps({**base, "data_base64": base64.b64encode(b"\xff").decode()}))
        assert (binary.data, binary.datacontenttype) == (b"\xff", None)
        null = Event.from_json(json.dumps({**base, "data": None}))
        assert (null.payload, null.data) == (b"null", None)

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"data": 1, "data_base64": "eA=="}, "exclude each other"),
            ({"data_base64": "e"}, "is not base64"),
            ({"data_base64": "ü"}, "is not base64"),
            ({"data_base64": 7}, "must be a string"),
            ({"data": 7, "datacontenttype": "text/plain"}, "must be a JSON string"),
            ({"data": 7, "datacontenttype": False}, "must be a string"),
            ({"data": None, "datacontenttype": 5}, "must be a string"),
            ({"data": 7, "datacontenttype": "json"}, "must be a media type"),
            ({"ext": 1.5}, "boolean, integer or string"),
            ({"ext": [1]}, "boolean, integer or string"),
            ({"ext": {}}, "boolean, integer or string"),
            ({"ext": 2**31}, "beyond 32 bits"),
            ({"id": 5}, "must be a string"),
            ({"time": "now"}, "RFC 3339"),
            ({f"a{number}": 1 for number in range(300)}, "over the limit of 255"),
        ],
    )
    def test_json_that_breaks_the_standard_is_refused(self, changes: dict[str, Any], problem: str) -> None:
        with pytest.raises(BadEvent, match=problem):
            Event.from_json(json.dumps({**MINIMAL, **changes}))

    @pytest.mark.parametrize(
        "text", ["", "[]", "null", "{", b"\xff", '{"id":', "[" * 100_000, '{"a":' * 100_000, '{"id":"\xff"}']
    )
    def test_text_that_is_no_json_object_is_refused(self, text: str | bytes) -> None:
        with pytest.raises(BadEvent):
            Event.from_json(text)

    @given(st.dictionaries(st.sampled_from([*sorted(rules.CORE), "data", "data_base64", "ext"]), json_values))
    def test_any_object_gives_an_event_or_a_typed_error(self, members: dict[str, Any]) -> None:
        decode_or_refuse(json.dumps({**MINIMAL, **members}).encode(), Event.from_json)

    @given(st.binary(max_size=50), events)
    def test_any_text_gives_an_event_or_a_typed_error(self, noise: bytes, event: Event) -> None:
        line = event.to_json()
        decode_or_refuse(noise, Event.from_json)
        decode_or_refuse(line[: len(line) // 2] + noise + line[len(line) // 2 :], Event.from_json)


class TestSdk:
    @given(events)
    def test_our_event_goes_there_and_comes_back(self, event: Event) -> None:
        there = event.to_cloudevent()
        binary = {name: value for name, value in event.extensions.items() if isinstance(value, bytes)}
        expected = msgspec.structs.replace(
            event,
            extensions={
                **event.extensions,
                **{name: rules.canonical(value) for name, value in binary.items()},
            },
        )
        back = Event.from_cloudevent(there)
        assert back == expected

    @given(events)
    def test_we_read_what_the_sdk_writes(self, event: Event) -> None:
        line = JSONFormat().write(event.to_cloudevent())
        read = Event.from_json(line)
        # The SDK spaces its JSON otherwise, and the bytes are kept as they came.
        assert (read.attributes(), read.data) == (lowered(event).attributes(), event.data)

    def test_its_objects_are_read_with_their_types(self) -> None:
        given_time = TIME.astimezone(timezone(timedelta(hours=2)))
        sdk = CloudEvent({"id": "1", "type": "t", "source": "/s", "time": given_time, "ext": 5}, {"a": 1})
        event = Event.from_cloudevent(sdk)
        assert event == Event(id="1", type="t", source="/s", time=TIME, extensions={"ext": 5}, data={"a": 1})
        text = CloudEvent({"id": "1", "type": "t", "source": "/s"}, "a string")
        assert Event.from_cloudevent(text).payload == b'"a string"'
        buffer: Any = bytearray(b"x")
        assert Event.from_cloudevent(CloudEvent({"id": "1", "type": "t", "source": "/s"}, buffer)).data == b"x"

    def test_no_time_is_made_up(self) -> None:
        there = make(time=None).to_cloudevent()
        assert there.get_time() is None
        assert Event.from_cloudevent(there).time is None

    def test_what_the_sdk_lets_pass_is_refused(self) -> None:
        with pytest.raises(BadEvent, match="URI-reference"):
            Event.from_cloudevent(CloudEvent({"id": "1", "type": "t", "source": "a b"}))
        with pytest.raises(BadEventData, match="give the SDK's event bytes or str"):
            Event.from_cloudevent(
                CloudEvent({"id": "1", "type": "t", "source": "/s", "datacontenttype": "a/b"}, {"a": 1})
            )

    def test_a_json_null_is_lost_there_as_the_sdk_has_no_word_for_it(self) -> None:
        there = make(data=b"null", datacontenttype="application/json").to_cloudevent()
        assert Event.from_cloudevent(there).payload is None

    def test_malformed_json_goes_there_as_bytes(self) -> None:
        for payload in (b"{", "{"):
            there = Event.decode(packed(data=payload, datacontenttype="application/json")).to_cloudevent()
            assert there.get_data() == b"{"


class TestHttp:
    @given(events)
    def test_an_event_comes_back_with_strings(self, event: Event) -> None:
        headers, body = event.to_http()
        assert all(
            value.isascii() and value.isprintable() and " " not in value
            for name, value in headers.items()
            if name != "content-type"
        )
        back = Event.from_http(headers, body)
        assert back.canonical_attributes() == {**event.canonical_attributes()}
        assert (back.payload or b"") == (
            event.payload.encode() if isinstance(event.payload, str) else event.payload or b""
        )

    @given(events)
    def test_the_sdk_reads_our_headers(self, event: Event) -> None:
        headers, body = event.to_http()
        read = sdk_http.from_binary(sdk_http.HTTPMessage(headers, body), JSONFormat())
        assert (read.get_id(), read.get_source(), read.get_type()) == (event.id, event.source, event.type)
        assert event.time is None or read.get_time() == event.time

    @given(events)
    def test_we_read_the_headers_of_the_sdk(self, event: Event) -> None:
        message = sdk_http.to_binary(event.to_cloudevent(), JSONFormat())
        back = Event.from_http(message.headers, message.body)
        assert (back.id, back.source, back.type, back.time) == (
            event.id,
            event.source,
            event.type,
            event.time,
        )
        assert (back.subject, back.datacontenttype) == (event.subject, event.datacontenttype)

    def test_the_example_of_the_standard(self) -> None:
        headers, _ = make(subject="Euro € 😀").to_http()
        assert headers["ce-subject"] == "Euro%20%E2%82%AC%20%F0%9F%98%80"
        quoted = {**headers, "ce-subject": '"a \\"b\\" %20c"'}
        assert Event.from_http(quoted, b"").subject == 'a "b"  c'

    def test_structured_mode_is_recognised(self) -> None:
        event = make(data={"a": 1})
        assert (
            Event.from_http({"Content-Type": "application/cloudevents+json; charset=utf-8"}, event.to_json()) == event
        )

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"ce-datacontenttype": "a/b"}, "must come as the header content-type"),
            ({"ce-subject": "%C0%A0"}, "not percent-encoded UTF-8"),
            ({"CE-ID": ""}, "must not be empty"),
            ({"ce-bad_name": "x"}, "has a bad name"),
            ({"ce-data": "x"}, "is no extension"),
        ],
    )
    def test_headers_that_break_the_standard_are_refused(self, changes: dict[str, str], problem: str) -> None:
        headers, body = make().to_http()
        kept = {name: value for name, value in headers.items() if name not in {key.lower() for key in changes}}
        with pytest.raises(BadEvent, match=problem):
            Event.from_http({**kept, **changes}, body)
