from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from echomesh.errors import BadEvent, BadEventData, BadEventEncoding, EchomeshError
from echomesh.events import Event, rules
from tests.events.samples import MINIMAL, made_and_decoded, make, packed


class TestRefusing:
    """Each rule of the standard, both for events that are made and for bytes that come in."""

    @pytest.mark.parametrize("name", ["id", "source", "type", "subject", "datacontenttype", "dataschema"])
    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ("", "must not be empty"),
            (7, "must be a string"),
            (b"x", "must be a string"),
            ("a\nb", "U\\+000A"),
            ("a\x00", "U\\+0000"),
            ("\x7f", "U\\+007F"),
            ("\x9f", "U\\+009F"),
            ("\ufdd0", "U\\+FDD0"),
            ("\U0010ffff", "U\\+10FFFF"),
        ],
    )
    def test_text_that_the_standard_forbids(self, name: str, value: object, problem: str) -> None:
        for refuse in made_and_decoded(**{name: value}):
            with pytest.raises(BadEvent, match=f"'{name}' = .* ?{problem}") as caught:
                refuse()
            assert (caught.value.attribute, caught.value.value) == (name, value)

    def test_lone_surrogates(self) -> None:
        for name in ("id", "source", "type", "subject"):
            with pytest.raises(BadEvent, match="U\\+D800"):
                make(**{name: "\ud800"})
        with pytest.raises(BadEventData, match="no UTF-8 form"):
            make(data="\ud800")
        with pytest.raises(BadEvent, match="U\\+DFFF"):
            make(extensions={"a": "\udfff"})

    def test_text_may_be_anything_else(self) -> None:
        for text in ("\u00a0", "\u200b", "\ue000", "\U0001f600", " ", "\ufffd"):
            assert Event.decode(make(id=text, subject=text).encode()).subject == text

    @pytest.mark.parametrize(
        "value", ["a b", "/ü", "<x>", "a%2", "a%zz", "1:a", ":a", "http://[::1", "a#b#c", "a\\b", "//h:p"]
    )
    def test_a_source_that_is_no_uri_reference(self, value: str) -> None:
        for refuse in made_and_decoded(source=value):
            with pytest.raises(BadEvent, match="must be a URI-reference"):
                refuse()

    @pytest.mark.parametrize(
        "value",
        ["/", "/a//b", "a", "../x", "?q", "#f", "mailto:a@b", "urn:a:b", "http://[::1]:80/", "//h/p", "a/b:c",
         "./a:b", "file:///x", "https://u:p@h?x#y", "1-555-123-4567", "x:", "http://[v1.a:b]/"],
    )  # fmt: skip
    def test_a_source_that_is_one(self, value: str) -> None:
        assert Event.decode(packed(source=value)).source == value

    def test_a_hostile_uri_is_judged_quickly(self) -> None:
        for value in (
            "//" + "a" * 100_000 + "\\",
            "a" * 100_000 + "|",
            "//" + "@" * 50_000,
            "%41" * 50_000 + "%",
        ):
            with pytest.raises(BadEvent):
                make(source=value)
        with pytest.raises(BadEvent):
            make(datacontenttype="a/b" + ";" * 100_000 + "=")

    @pytest.mark.parametrize("value", ["/schema", "schema.json", "//h/x", "http:// x", "1http://x"])
    def test_a_dataschema_that_is_no_absolute_uri(self, value: str) -> None:
        for refuse in made_and_decoded(dataschema=value):
            with pytest.raises(BadEvent, match="must be an absolute URI"):
                refuse()

    @pytest.mark.parametrize("value", ["json", "a/", "/b", "a/b/c", "a b/c", "a/b;x", "a/b; x=", 'a/b; x="', "é/b"])
    def test_a_datacontenttype_that_is_no_media_type(self, value: str) -> None:
        for refuse in made_and_decoded(datacontenttype=value):
            with pytest.raises(BadEvent, match="must be a media type"):
                refuse()

    def test_media_types_have_parameters(self) -> None:
        for value in ("text/plain;charset=utf-8", 'a/b; x="q \\" z"; y=1', "a/b;"):
            assert make(datacontenttype=value).datacontenttype == value

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ("2018-04-05", "RFC 3339"),
            ("2018-04-05T17:31:00", "RFC 3339"),
            ("2018-04-05 17:31:00Z", "RFC 3339"),
            ("2018-04-05T17:31Z", "RFC 3339"),
            ("2018-04-05T17:31:00+0530", "RFC 3339"),
            ("2018-04-05T17:31:00.Z", "RFC 3339"),
            ("٢٠١٨-04-05T17:31:00Z", "RFC 3339"),
            ("2018-13-05T17:31:00Z", "no time of the years"),
            ("2018-04-05T17:31:60Z", "no time of the years"),
            ("2018-04-05T24:00:01Z", "no time of the years"),
            ("2018-04-05T17:31:00+24:00", "no time of the years"),
            ("0000-01-01T00:00:00Z", "no time of the years"),
            ("0001-01-01T00:00:00+01:00", "no time of the years"),
            ("9999-12-31T23:59:60Z", "no time of the years"),
            (7, "must be a datetime"),
            (True, "must be a datetime"),
        ],
    )
    def test_a_time_that_is_none(self, value: object, problem: str) -> None:
        for refuse in made_and_decoded(time=value):
            with pytest.raises(BadEvent, match=f"'time' = .*{problem}"):
                refuse()

    def test_a_time_without_a_zone_or_out_of_range(self) -> None:
        with pytest.raises(BadEvent, match="has no time zone"):
            make(time=datetime(2018, 4, 5))
        with pytest.raises(BadEvent, match="years 1 to 9999"):
            make(time=datetime.min.replace(tzinfo=timezone(timedelta(hours=1))))

    @pytest.mark.parametrize("name", ["", "A", "a_b", "a-b", "é", "a b", "a\n", "\u0661", 7])
    def test_an_extension_with_a_bad_name(self, name: Any) -> None:
        with pytest.raises(BadEvent, match="has a bad name"):
            make(extensions={name: "x"})
        if isinstance(name, str):
            with pytest.raises(BadEvent, match="has a bad name"):
                Event.decode(packed(**{name: "x"}))

    @pytest.mark.parametrize("name", [*sorted(rules.CORE), "data"])
    def test_an_extension_with_a_name_of_the_core(self, name: str) -> None:
        with pytest.raises(BadEvent, match="is no extension"):
            make(extensions={name: "x"})

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            (2**31, "beyond 32 bits"),
            (-(2**31) - 1, "beyond 32 bits"),
            (1.5, "must be a bool, int"),
            (None, "must be a bool"),
            ([], "must be a bool"),
            ({}, "must be a bool"),
            ("a\n", "U\\+000A"),
        ],
    )
    def test_an_extension_of_no_cloudevents_type(self, value: object, problem: str) -> None:
        with pytest.raises(BadEvent, match=problem):
            make(extensions={"a": value})
        with pytest.raises(BadEvent, match="is nil" if value is None else problem):
            Event.decode(packed(a=value))

    def test_extensions_that_are_no_mapping_or_too_many(self) -> None:
        with pytest.raises(BadEvent, match="must be a mapping"):
            make(extensions=[("a", 1)])
        many = {f"a{number}": number for number in range(rules.MAX_EXTENSIONS)}
        full = make(extensions=many, subject="s", dataschema="urn:a", data=b"x")
        assert Event.decode(full.encode()) == full
        with pytest.raises(BadEvent, match="more than the 246 allowed"):
            make(extensions={**many, "b": 1})
        with pytest.raises(BadEventEncoding, match="over the limit of 255"):
            Event.decode(packed(**many, **{f"b{number}": 1 for number in range(9)}))

    @pytest.mark.parametrize("value", ["0.3", "1", "", 1, None])
    def test_another_version_of_the_standard(self, value: object) -> None:
        with pytest.raises(BadEvent, match=r"'specversion' = .* must be '1.0'"):
            make(specversion=value)
        with pytest.raises(BadEvent, match=r"'specversion' = .* (must be '1.0'|is nil)"):
            Event.decode(packed(specversion=value))

    @pytest.mark.parametrize("name", sorted(MINIMAL))
    def test_a_required_attribute_that_is_missing(self, name: str) -> None:
        rest = {key: value for key, value in MINIMAL.items() if key != name}
        with pytest.raises(BadEvent, match=f"'{name}' = None is missing"):
            Event.decode(msgspec.msgpack.encode(rest))
        with pytest.raises(BadEvent, match=f"'{name}' = None is missing"):
            Event.from_json(json.dumps(rest))

    @pytest.mark.parametrize(
        ("data", "datacontenttype", "problem"),
        [
            ({"a": 1}, "application/xml", "a dict is written as JSON only"),
            ({"a": 1}, None, "a dict is written as JSON only"),
            (object(), "application/json", "can't be written as JSON"),
            ({"a": float("nan")}, "application/json", "NaN and infinity"),
            ([None, (float("inf"),)], "application/json", "NaN and infinity"),
            ("\ud800", "application/json", "no JSON document"),
            ("hello", "application/json", "no JSON document: .* json.dumps"),
            (["\ud800"], "application/json", "can't be written as JSON"),
        ],
    )
    def test_data_that_cannot_be_written_as_its_type(self, data: Any, datacontenttype: str, problem: str) -> None:
        with pytest.raises(BadEventData, match=problem) as caught:
            make(data=data, datacontenttype=datacontenttype)
        assert caught.value.datacontenttype in (datacontenttype, "application/json")

    def test_data_that_refers_to_itself(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(BadEventData, match="can't be written as JSON"):
            make(data=loop)

    @pytest.mark.parametrize("payload", [b"", b"{", "nope", b"\xff", b"NaN", b"[" * 100_000, b"1 2"])
    def test_received_data_that_is_no_json_is_kept_and_told_when_read(self, payload: bytes | str) -> None:
        event = Event.decode(packed(data=payload, datacontenttype="application/json"))
        assert event.payload == payload
        with pytest.raises(BadEventData, match="is no JSON"):
            _ = event.data

    def test_errors_stay_short_whatever_a_stranger_sends(self) -> None:
        for value in ("x\n" * 500_000, b"x" * 1_000_000, ["x" * 1_000_000] * 100):
            with pytest.raises(EchomeshError) as caught:
                Event.decode(packed(subject=value))
            assert len(str(caught.value)) < 1000


def test_what_was_checked_is_remembered_in_bounded_memory() -> None:
    for number in range(3000):
        make(
            source=f"/s/{number}",
            type=f"t{number}",
            extensions={f"e{number}": 1},
            datacontenttype=f"a/b{number}",
        )
        make(source="/" + "x" * 1000 + str(number))
    for known in (rules.known_sources, rules.known_types, rules.known_media_types):
        assert 0 < len(known.values) <= known.VALUES
        assert all(len(value) <= known.LENGTH for value in known.values)
