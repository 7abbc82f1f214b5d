"""The examples of docs/protocol-eventmesh.md are what they say, and a real server holds the same conversation."""

from __future__ import annotations

import ast
import asyncio
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]
import pytest

from echomesh.mesh import bodies, protocol
from echomesh.mesh.codes import Command, ErrorCode
from tests.mesh.support import serving
from tests.support.markdown import blocks
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "protocol-eventmesh.md"
TEXT = PAGE.read_text()

_HEAD = re.compile(r"(?P<who>[A-Z]) (?P<way>[→←]) (?P<command>[A-Z_]+)")
_HEX = re.compile(r"[0-9a-f]{2,}(?=\s{2,}|$)")


class Example(NamedTuple):
    """One message of the page."""

    who: str
    to_server: bool
    command: Command
    frame: bytes
    fields: list[Any] | None


def literal(text: str) -> list[Any]:
    """The fields as the page writes them."""
    text = re.sub(r'b"([0-9a-f]*)"', lambda found: repr(bytes.fromhex(found[1])), text)
    for word, value in (("nil", "None"), ("true", "True"), ("false", "False")):
        text = re.sub(rf"\b{word}\b", value, text)
    fields: list[Any] = ast.literal_eval(text)
    return fields


def examples() -> list[Example]:
    found = []
    for block in blocks(TEXT):
        for part in block.code.split("\n\n"):
            lines = part.strip().splitlines()
            head = _HEAD.fullmatch(lines[0]) if lines else None
            if head is None:
                continue
            hexed = [match[0] for line in lines[1:] if (match := _HEX.match(line))]
            told = "\n".join(line for line in lines[1:] if not _HEX.match(line))
            frame = bytes.fromhex("".join(hexed))
            fields = literal(told) if told else None
            found.append(Example(head["who"], head["way"] == "→", Command[head["command"]], frame, fields))
    return found


EXAMPLES = examples()


def test_there_is_an_example_of_each_command_of_a_simple_client() -> None:
    assert {int(example.command) for example in EXAMPLES} == {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 14, 15}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.who}-{example.command.name}")
def test_an_example_is_what_it_says(example: Example) -> None:
    (size,) = struct.unpack(">I", example.frame[:4])
    assert size == len(example.frame) - 4
    fields = msgpack.unpackb(example.frame[4:])
    assert len(fields) == 8
    assert fields[2] == example.command
    if example.fields is not None:
        assert fields == example.fields
    message = protocol.decode(example.frame[4:])
    if not message.status:
        protocol.body_of(message)


def test_a_real_server_holds_the_conversation(shm_dir: Path) -> None:
    async def talk() -> None:
        async with serving(shm_dir) as server, asyncio.timeout(20):
            names = iter(("session-a", "session-b"))
            server.server.core.new_id = lambda: next(names)
            ways: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
            for example in EXAMPLES:
                if example.who not in ways:
                    ways[example.who] = await asyncio.open_connection("127.0.0.1", server.port)
                reader, writer = ways[example.who]
                if example.to_server:
                    writer.write(example.frame)
                    continue
                (size,) = struct.unpack(">I", await reader.readexactly(4))
                assert known(await reader.readexactly(size)) == known(example.frame[4:])
            assert await ways["A"][0].read() == b""
            for _, writer in ways.values():
                writer.close()

    asyncio.run(talk())


def known(payload: bytes) -> list[Any]:
    """The fields, but for what is random."""
    fields: list[Any] = msgpack.unpackb(payload)
    if isinstance(fields[7], dict) and "LogId" in fields[7]:
        fields[7]["LogId"] = len(fields[7]["LogId"])
    return fields


def test_the_page_names_every_command_with_its_code() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| \[?([A-Z_]+)", TEXT, re.MULTILINE))
    assert rows == {str(int(command)): command.name for command in Command}


def test_the_page_names_every_error_and_every_property() -> None:
    for code in ErrorCode:
        assert code == "" or f"`{code}`" in TEXT
    kinds: list[Any] = [kind for kind in vars(bodies).values() if isinstance(kind, type)]
    for kind in [kind for kind in kinds if issubclass(kind, bodies.Body | bodies.Server)]:
        for name in kind.__struct_encode_fields__:
            assert f"`{name}`" in TEXT, f"{kind.__name__}: {name}"
