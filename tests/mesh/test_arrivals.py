"""What a bridge brings: events found in a message as they stand there, and bytes that are none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from echomesh.errors import BadMessage
from echomesh.events import Event
from echomesh.log import AsyncTopicLog
from echomesh.mesh.arrivals import Bundle
from echomesh.mesh.bodies import Forward
from echomesh.native import mesh_event
from echomesh.native.mesh_frames import arrived
from tests.mesh.support import an_array

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=70)),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20),
    max_leaves=30,
)


def a_plain(number: int, source: str, size: int = 0) -> Event:
    """An event with nothing unusual."""
    return Event(type="order.created", source=source, id=f"e{number}", data=b"x" * size)


def found(data: bytes) -> tuple[list[bytes], list[int]] | None:
    """What is found in these bytes, as lists."""
    pieces = arrived(Raw(data))
    return None if pieces is None else (list(pieces[0]), pieces[1])


def test_events_are_found_where_they_stand() -> None:
    events = [a_plain(number, "/arrivals", 100 * number) for number in range(40)]
    raw = an_array(*events)
    stored = [event.encode() for event in events]
    assert found(bytes(raw)) == (stored, list(range(40))), "nobody knows this source yet"
    mesh_event.learn(stored[0])
    assert found(bytes(raw)) == (stored, [])
    pieces = arrived(raw)
    assert pieces is not None
    assert (len(pieces[0]), pieces[0][-1]) == (40, stored[-1])
    with pytest.raises(IndexError):
        pieces[0][40]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 200])
def test_twins_among_them_are_stored_once(shm_dir: Path, count: int) -> None:
    async def test() -> list[int]:
        async with AsyncTopicLog(shm_dir) as log:
            pieces = arrived(an_array(*(a_plain(number * 7 % 50, "/arrivals", number) for number in range(count))))
            assert pieces is not None
            again: list[int] = await log.append_many("t", pieces[0])
            assert await log.append_many("t", pieces[0]) == again
            return again

    expected = [number if number < 50 else number % 50 for number in range(count)]
    assert asyncio.run(test()) == expected


def test_an_event_that_needs_a_closer_look_stands_among_others() -> None:
    plain = [a_plain(number, "/mixed") for number in range(3)]
    events = [*plain, Event(type="t", source="/mixed", id="x", extensions={"tenant": "a"}), *plain]
    mesh_event.learn(plain[0].encode())
    assert found(bytes(an_array(*events))) == ([event.encode() for event in events], [3])


@given(st.lists(VALUES, max_size=20))
@example([[]] * 70_000)
def test_any_values_are_told_apart(values: list[Any]) -> None:
    encoded = [msgspec.msgpack.encode(value) for value in values]
    assert found(msgspec.msgpack.encode(values)) == (encoded, list(range(len(values))))


@given(VALUES, st.data())
def test_what_is_cut_short_or_goes_on_is_no_array(value: Any, data: st.DataObject) -> None:
    whole = msgspec.msgpack.encode([value])
    assert found(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    assert found(whole + b"\x00") is None


@given(st.binary(max_size=200))
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\x91\xdf\xff\xff\xff\xff")
@example(b"\x91\xc9\xff\xff\xff\xff\x01")
def test_bytes_are_an_array_when_msgspec_finds_one(data: bytes) -> None:
    try:
        wanted = [bytes(raw) for raw in msgspec.msgpack.decode(data, type=list[Raw])]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return  # it also looks into texts
    got = found(data)
    assert got is not None
    assert got[0] == wanted


def test_depth_takes_no_stack() -> None:
    deep = b"\x91" * 10_000_000 + b"\xc0"
    assert found(deep) == ([deep[1:]], [0])


@pytest.mark.parametrize("data", [b"\xc0", b"\x80", b"\xa1x", b"\x01"])
def test_what_is_no_array_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage, match="CloudEvents"):
        Bundle(Forward("c", "s", "TST", "t", bytes(16), 0, Raw(data)), "1")
