"""Events for the tests of Arrow and Parquet, and what their rows should be by a plain model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from echomesh.errors import BadEvent, NotAnEvent
from echomesh.events import Event
from echomesh.log.arrow import SCHEMA, Builder, table
from echomesh.native.log_record import encode, scan

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
REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def packed(**attributes: Any) -> bytes:
    return msgpack.packb(REQUIRED | attributes)  # type: ignore[no-any-return]


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


def agree(data: bytes, around: bytes | None = None) -> None:
    """The scanner takes these bytes if and only if `Event.decode` does, and finds the same in them.

    They stand alone, or between two events, of which the first says what the scanner expects.
    """
    events, at = ([data], 0) if around is None else ([around, data, around], 1)
    try:
        event = Event.decode(data)
    except BadEvent:
        with pytest.raises(NotAnEvent) as caught:
            rows(events)
        assert caught.value.offset == at
    else:
        assert rows(events)[at] == row(event, at)


def values(batch: pa.RecordBatch, column: str) -> list[Any]:
    return batch.column(column).to_pylist()


def all_of(builder: Builder, events: list[bytes]) -> list[pa.RecordBatch]:
    return [*builder.add(records(events)), *builder.rest()]
