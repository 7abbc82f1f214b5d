"""Addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.node.address import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4889", Address("127.0.0.1", 4889)),
        ("mesh-1.example:0", Address("mesh-1.example", 0)),
        ("[::1]:65535", Address("::1", 65535)),
        (":4889", Address("", 4889)),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


def test_a_default_port_stands_in_for_none() -> None:
    assert Address.parse("mesh.example", 4889) == Address("mesh.example", 4889)
    assert Address.parse("[::1]", 4889) == Address("::1", 4889)


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", "host:port", "host:-1", "host:65536", "host:4²", "::1:4889", "[::1", "[::1]4889", "a b:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Address.parse(text)


@given(st.text(max_size=40), st.one_of(st.none(), st.integers(0, 65535)))
def test_any_text_is_an_address_that_can_be_written_again_or_refused(text: str, port: int | None) -> None:
    try:
        found = Address.parse(text, port)
    except ValueError:
        return
    assert Address.parse(str(found)) == found


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_is_recognized(host: str) -> None:
    assert Address(host, 1).loopback


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.1", "2001:db8::1"])
def test_what_others_can_reach_is_not_loopback(host: str) -> None:
    assert not Address(host, 1).loopback


def test_a_host_that_nobody_knows_is_said_to_be_one() -> None:
    with pytest.raises(ValueError, match="nobody knows"):
        assert Address("nowhere.invalid", 1).loopback
