from __future__ import annotations

import copy
import multiprocessing
import pickle
import random
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given

from echomesh.errors import BadEvent
from echomesh.events import Event
from tests.events.samples import TIME, events, make


class TestMaking:
    def test_type_and_source_are_enough(self) -> None:
        before = datetime.now(UTC)
        event = Event(type="order.created", source="/shop")
        assert uuid.UUID(event.id).version == 7
        assert event.time is not None
        assert before <= event.time <= datetime.now(UTC)
        assert (event.specversion, event.data, event.datacontenttype) == ("1.0", None, None)

    def test_ids_are_unique_and_in_the_order_of_time(self) -> None:
        ids = [make().id for _ in range(20_000)]
        assert len(set(ids)) == len(ids)
        assert [text[:18] for text in ids] == sorted(text[:18] for text in ids)

    def test_ids_do_not_repeat_after_a_fork_or_a_seed(self) -> None:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            forked = pool.map(_noise, range(2))
        random.seed(1)
        one = _noise(0)
        random.seed(1)
        assert len({*forked, one, _noise(0)}) == 4

    @pytest.mark.parametrize(
        ("data", "datacontenttype", "payload"),
        [
            ({"id": 7}, "application/json", b'{"id":7}'),
            ([1, 2], "application/json", b"[1,2]"),
            (1.5, "application/json", b"1.5"),
            (True, "application/json", b"true"),
            (b"\x00\xff", "application/octet-stream", b"\x00\xff"),
            ("grün", "text/plain", "grün"),
        ],
    )
    def test_data_chooses_its_content_type(self, data: Any, datacontenttype: str, payload: object) -> None:
        for event in (made := make(data=data), Event.decode(made.encode())):
            assert (event.data, event.datacontenttype, event.payload) == (data, datacontenttype, payload)

    def test_a_named_content_type_wins(self) -> None:
        assert make(data=b"[1]", datacontenttype="application/vnd.x+json; charset=utf-8").data == [1]
        assert make(data="[1]", datacontenttype="Text/JSON").data == [1]
        assert make(data={"a": 1}, datacontenttype="application/vnd.x+json").data == {"a": 1}
        assert make(data="<x/>", datacontenttype="application/xml").data == "<x/>"
        assert make(data=b"x", datacontenttype=None).datacontenttype is None

    def test_buffers_become_bytes(self) -> None:
        assert make(data=bytearray(b"ab")).data == make(data=memoryview(b"ab")).data == b"ab"

    def test_json_data_is_decoded_once(self) -> None:
        event = Event.decode(make(data={"a": [1]}).encode())
        assert event.data is event.data

    def test_time_can_be_a_string_with_a_zone(self) -> None:
        assert make(time="2018-04-05T17:31:00Z").time == TIME
        assert make(time="2018-04-05t19:31:00.5+02:00").time == TIME + timedelta(milliseconds=500)
        assert make(time="2018-04-05T17:31:00.123456789z").time == TIME + timedelta(microseconds=123456)
        assert make(time="2016-12-31T23:59:60Z").time == datetime(2017, 1, 1, tzinfo=UTC)
        assert make(time=TIME.astimezone(timezone(timedelta(hours=5)))).time == TIME

    def test_an_event_cannot_be_changed(self) -> None:
        event = make(extensions={"a": 1}, data=[1])
        with pytest.raises(AttributeError):
            event.id = "2"  # type: ignore[misc]
        with pytest.raises(AttributeError):
            event.data = 1  # type: ignore[misc]
        with pytest.raises(TypeError):
            event.extensions["a"] = 2  # type: ignore[index]
        event.data.append(2)
        assert event.payload == b"[1]"

    def test_replace_makes_a_checked_event_with_bytes_of_its_own(self) -> None:
        event = make(data={"a": 1})
        event.encode()
        changed = msgspec.structs.replace(event, subject="7")
        assert Event.decode(changed.encode()).subject == "7"
        assert changed.data == {"a": 1}
        with pytest.raises(BadEvent):
            msgspec.structs.replace(event, subject="")

    @given(events)
    def test_events_are_copied_pickled_and_hashed(self, event: Event) -> None:
        for twin in (copy.copy(event), copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
            assert twin == event
            assert hash(twin) == hash(event)


def _noise(_: int) -> str:
    return make().id[19:]


class TestCanonicalForm:
    def test_each_type_has_its_string(self) -> None:
        event = make(
            id="1",
            time=TIME,
            extensions={
                "yes": True,
                "no": False,
                "int": -7,
                "text": "ü",
                "bin": b"\x00\xff",
                "at": TIME.replace(microsecond=5),
            },
        )
        assert event.canonical_extensions() == {
            "yes": "true",
            "no": "false",
            "int": "-7",
            "text": "ü",
            "bin": "AP8=",
            "at": "2018-04-05T17:31:00.000005Z",
        }
        assert event.canonical_attributes() == {
            "specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2018-04-05T17:31:00Z",
            **event.canonical_extensions(),
        }  # fmt: skip

    @given(events)
    def test_it_survives_the_wire(self, event: Event) -> None:
        assert Event.decode(event.encode()).canonical_attributes() == event.canonical_attributes()
