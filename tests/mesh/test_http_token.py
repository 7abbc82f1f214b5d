"""Tokens: the place in many topics, brought back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import UsageError
from echomesh.mesh import http_token

LOG = bytes(range(16))
places = st.dictionaries(st.integers(0, 1 << 20), st.integers(0, (1 << 63) - 1), max_size=50)


def token(found: dict[int, int], log_id: bytes = LOG) -> str:
    return http_token.encode(log_id, sorted(found.items()))


@given(places)
def test_a_place_comes_back_as_it_was(found: dict[int, int]) -> None:
    made = token(found)
    assert http_token.decode(made, LOG) == {number: offset for number, offset in found.items() if offset}
    assert made.isascii()
    assert not set(made) & set("=+/ \n\r\0")


@given(places)
def test_a_place_in_another_log_is_known_as_one(found: dict[int, int]) -> None:
    assert http_token.decode(token(found, bytes(16)), LOG) is None


def test_a_place_in_many_topics_is_short() -> None:
    made = token({number: 1000 + number for number in range(1000)})
    assert len(made) < 4.1 * 1000 + 20


@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]*", fullmatch=True) | st.binary().map(lambda data: "AQ" + data.hex()))
def test_what_is_no_token_is_refused_and_never_more(text: str) -> None:
    try:
        found = http_token.decode(text, LOG)
    except UsageError:
        return
    assert found is None or all(0 <= offset < 1 << 63 for offset in found.values())


@given(places.filter(bool), st.data())
def test_a_token_that_is_cut_is_refused_or_tells_of_fewer_topics(found: dict[int, int], data: st.DataObject) -> None:
    made = token(found)
    cut = made[: data.draw(st.integers(0, len(made) - 1))]
    try:
        kept = http_token.decode(cut, LOG)
    except UsageError:
        return
    assert kept is not None
    assert len(kept) <= len(found)


@pytest.mark.parametrize("text", ["", "A", "AQ", "AQABAgMEBQYHgA", "AQABAgMEBQYHAA", "A" * (40 << 10), "AgABAgMEBQYH"])
def test_malformed_tokens_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Last-Event-ID"):
        http_token.decode(text, LOG)
