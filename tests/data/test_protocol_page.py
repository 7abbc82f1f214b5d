"""docs/protocol-data.md names every message with its fields, and its examples are what they say."""

from __future__ import annotations

import ast
import re
from typing import Any, get_args

import msgpack  # type: ignore[import-untyped]
import pytest

from echomesh.data import messages, wire
from echomesh.data.config import BEACON_PORT, GROUP, PARTICIPANT_PORT
from echomesh.data.matching import MAX_ENDPOINTS
from echomesh.data.membership import MAX_PEERS
from echomesh.data.messages import Message, Path, Reason
from echomesh.frames import LENGTH_BYTES
from tests.support.markdown import blocks
from tests.support.repository import ROOT

TEXT = (ROOT / "docs" / "protocol-data.md").read_text()
_SIGNATURE = re.compile(r"^([A-Z]\w+\.[A-Z]\w+)\((.*)\)$", re.MULTILINE)
_EXAMPLE = re.compile(r"([A-Z]\w+\.[A-Z]\w+)\n((?:[0-9a-f]+\n)+)(\[.*\])\n?", re.DOTALL)


def kinds() -> dict[str, Any]:
    return {str(kind.__struct_config__.tag): kind for kind in get_args(Message)}


def test_the_page_names_every_message_and_no_other() -> None:
    assert {name for name, _ in _SIGNATURE.findall(TEXT)} == set(kinds())


@pytest.mark.parametrize(("name", "fields"), _SIGNATURE.findall(TEXT))
def test_a_message_has_as_many_fields_as_the_page_says(name: str, fields: str) -> None:
    flat = re.sub(r"\{.*?\}", "record", fields)
    said = [field for field in flat.split(", ") if field]
    assert len(said) == len(kinds()[name].__struct_fields__)
    for word, field in zip(said, kinds()[name].__struct_fields__, strict=True):
        assert "record" in word or word == field


@pytest.mark.parametrize("record", ["Endpoint", "Gone", "Reachable", "Wired", "Credentials", "Process", "Seen"])
def test_the_page_has_every_key_of_a_record(record: str) -> None:
    wanted = set(getattr(messages, record).__struct_fields__)
    assert any(set(keys.split(", ")) == wanted for keys in re.findall(r"\{(.*?)\}", TEXT))


def test_the_examples_are_what_they_say() -> None:
    found = [match for block in blocks(TEXT) if (match := _EXAMPLE.fullmatch(block.code))]
    assert len(found) == 2
    for example in found:
        data = bytes.fromhex(example[2].replace("\n", ""))
        payload = data if example[1].startswith("Beacon") else data[LENGTH_BYTES:]
        told = re.sub(r'b"([0-9a-f]*)"', lambda hexed: repr(bytes.fromhex(hexed[1])), example[3])
        assert msgpack.unpackb(payload) == ast.literal_eval(told)
        if payload is data:
            assert wire.encode_beacon(wire.decode_beacon(data)) == data
        else:
            (message,) = wire.from_participant().feed(data)
            assert wire.encode(message) == data


def test_the_page_has_the_numbers_in_force() -> None:
    for number in (BEACON_PORT, PARTICIPANT_PORT, GROUP, f"{MAX_ENDPOINTS:,}", f"{MAX_PEERS:,}", wire.BEACON_BYTES):
        assert re.search(rf"\b{re.escape(str(number))}\b", TEXT), number
    for word in (*Reason, *Path):
        assert f"`{word.value}`" in TEXT
