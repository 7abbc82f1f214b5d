"""CRC32C and the hash of an event's identity, against others who compute the same."""

from __future__ import annotations

import google_crc32c
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from echomesh.events import Event
from echomesh.native.log_sums import crc32c, crc32c_by_table, identity

KEY = bytes(range(16))


@given(st.binary(max_size=300), st.integers(0, 300))
def test_the_sum_is_the_one_of_the_reference_with_and_without_the_processor(data: bytes, cut: int) -> None:
    assert crc32c(data) == crc32c_by_table(data) == google_crc32c.value(data)
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)


def test_the_known_value_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_events_are_the_same_exactly_if_source_and_id_are() -> None:
    def hashed(source: str, id: str, subject: str | None = None) -> bytes | None:
        return identity(KEY, Event(type="t", source=source, id=id, subject=subject).encode())

    assert hashed("/a", "1") == hashed("/a", "1", subject="x")
    different = {
        hashed("/a", "1"),
        hashed("/a", "2"),
        hashed("/b", "1"),
        hashed("/a1", "x"),
        hashed("/", "a1"),
    }
    assert len(different) == 5
    assert None not in different
    assert hashed("/a", "1") != identity(bytes(16), Event(type="t", source="/a", id="1").encode())


@given(st.binary(max_size=100))
def test_bytes_that_are_no_event_have_no_identity_and_do_no_harm(data: bytes) -> None:
    assert identity(KEY, data) is None or data[0] & 0xF0 == 0x80 or data[0] in (0xDE, 0xDF)


def test_an_event_cut_anywhere_is_looked_at_safely() -> None:
    whole = msgspec.msgpack.encode(
        {"specversion": "1.0", "id": "1", "type": "t", "n": 7, "source": "/s", "data": b"x" * 300}
    )
    for length in range(len(whole)):
        identity(KEY, whole[:length])
    assert identity(KEY, whole) is not None
