"""Events of all kinds for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import strategies as st

from echomesh.errors import BadEvent
from echomesh.events import Event, rules

TIME = datetime(2018, 4, 5, 17, 31, tzinfo=UTC)
MINIMAL = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}

allowed = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), min_size=1, max_size=30)
sources = st.sampled_from(["/shop/7", "urn:uuid:6e8bc430", "https://u@h:8/p?q=1#f", "1-555-123", "a%20b", "?q", "//h"])
times = st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.timezones())
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63),
        st.floats(allow_nan=False, allow_infinity=False),
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)
attributes = st.one_of(
    st.booleans(), st.integers(-(2**31), 2**31 - 1), allowed, st.just(""), st.binary(max_size=20), times
)
extensions = st.dictionaries(st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True), attributes, max_size=4).map(
    lambda found: {name: value for name, value in found.items() if name not in rules.CORE and name != "data"}
)
events = st.builds(
    Event,
    type=allowed,
    source=sources,
    id=allowed,
    time=st.none() | times,
    subject=st.none() | allowed,
    dataschema=st.none() | st.sampled_from(["https://example.com/a.json", "urn:x:y", "http://h/#/definitions/a"]),
    extensions=extensions,
    data=st.one_of(
        st.none(),
        st.binary(max_size=200),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
        json_values.filter(lambda value: not isinstance(value, str)),
    ),
)


def make(**changes: Any) -> Event:
    return Event(**{"type": "t", "source": "/s", **changes})


def packed(**changes: Any) -> bytes:
    return msgspec.msgpack.encode({**MINIMAL, **changes})


def made_and_decoded(**changes: Any) -> list[Callable[[], Event]]:
    """The two ways in: by the constructor and by the wire."""
    return [lambda: make(**changes), lambda: Event.decode(packed(**changes))]


def lowered(event: Event) -> Event:
    """The event as forms without types have it: Binary and Timestamp extensions are strings there."""
    extensions = {
        name: value if isinstance(value, bool | int) else rules.canonical(value)
        for name, value in event.extensions.items()
    }
    return msgspec.structs.replace(event, extensions=extensions)


def decode_or_refuse(stored: bytes, decode: Callable[[Any], Event] = Event.decode) -> None:
    try:
        event = decode(stored)
    except BadEvent:
        return
    # What was let in is an event in every form.
    assert Event.decode(msgspec.structs.replace(event).encode()) == event
    assert Event.from_json(event.to_json()).id == event.id
