"""Hostile connections and frames: nobody gets in, nobody keeps others waiting, nothing is kept for a liar."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Hello
from echomesh.mesh.codes import MAGIC, VERSION, Command, Purpose
from echomesh.mesh.options import MeshOptions
from tests.faults.hostile_support import QUICK, encode, run
from tests.mesh.support import Raw, Running

DEPTH = 100_000


# Connections


def test_who_drips_bytes_is_closed_in_time(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        stranger, known = await server.connect(), await server.client()
        frame = framed(protocol.encode(Command.HELLO_REQUEST, "1", Hello("shop")))
        for client in (stranger, known):
            with suppress(ConnectionError):
                for byte in frame[:-1]:
                    client.write(bytes((byte,)))
                    await client.writer.drain()
                    if client.reader.at_eof():
                        break
                    await asyncio.sleep(0.05)
            assert await client.closed()

    run(shm_dir, test, QUICK)


def test_who_never_reads_its_answers_is_closed_in_time(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionError):
            while server.server.core.connections:
                client.send(Command.HEARTBEAT_REQUEST, seq="x" * 1000)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await client.writer.drain()
        client.writer.transport.abort()

    run(shm_dir, test, QUICK)


@pytest.mark.parametrize("length", [65_537, 1 << 20, 1 << 31, (1 << 32) - 1])
def test_huge_lengths_are_refused_before_anything_is_kept_for_them(shm_dir: Path, length: int) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        client.write(struct.pack(">I", length))
        assert await client.closed()

    run(shm_dir, test)


def test_a_length_over_the_limit_of_a_session_is_refused(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.client()
        client.write(struct.pack(">I", (1 << 20) + 1))
        assert await client.closed()

    run(shm_dir, test, MeshOptions(frame_bytes=1 << 20))


@pytest.mark.parametrize("magic", ["EventMash", "", "\0", "EventMesh\0", "x" * 10_000])
def test_a_wrong_magic_value_is_answered_and_the_connection_closed(shm_dir: Path, magic: str) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        client.write(framed(encode((magic, VERSION, 0, 0, "", "", "7", None))))
        answer = await client.receive()
        assert (answer.seq, answer.status) == ("7", 1)
        assert len(answer.description or "") < 200
        assert await client.closed()

    run(shm_dir, test)


# Nesting


def nested(kind: bytes, closed: bytes = b"\xc0", depth: int = DEPTH) -> bytes:
    return kind * depth + closed


@pytest.mark.parametrize("kind", [b"\x91", b"\x81\xa1a", b"\x81"], ids=["arrays", "maps", "maps as keys"])
@pytest.mark.parametrize("place", ["message", "body", "event", "extension", "start", "seq"])
def test_deep_nesting_is_refused(shm_dir: Path, kind: bytes, place: str) -> None:
    deep = nested(kind)

    def payload(client: Raw, purpose: Purpose) -> bytes:
        who = {"ClientId": client.client_id, "SessionId": client.session_id}
        head = (MAGIC, VERSION, int(Command.PUBLISH_MESSAGE_REQUEST), 0, "", "", "7")
        event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
        if place == "message":
            return deep
        if place == "body":
            return with_last(head, deep)
        if place == "event":
            return with_last(head, with_entry({**who, "Topic": "a"}, "CloudEvent", deep))
        if place == "extension":
            return with_last(head, with_entry({**who, "Topic": "a"}, "CloudEvent", with_entry(event, "deep", deep)))
        if place == "start":
            subscribe = (MAGIC, VERSION, int(Command.SUBSCRIBE_REQUEST), 0, "", "", "7")
            return with_last(subscribe, with_entry({**who, "Topics": ["a"]}, "Start", deep))
        return b"\x98" + b"".join(encode(field) for field in head[:-1]) + deep + b"\xc0"

    async def test(server: Running) -> None:
        purpose = Purpose.SUBSCRIBE if place == "start" else Purpose.PUBLISH
        client = await server.client(purpose=purpose)
        client.write(framed(payload(client, purpose)))
        answer = None
        with suppress(EOFError):
            answer = await client.receive()
        assert answer is None or answer.status == 1

    run(shm_dir, test)


def with_last(fields: tuple[Any, ...], last: bytes) -> bytes:
    """A MessagePack array of these and one that is encoded already."""
    return bytes((0x90 | (len(fields) + 1),)) + b"".join(map(encode, fields)) + last


def with_entry(entries: dict[str, Any], name: str, value: bytes) -> bytes:
    """A MessagePack map of these and one whose value is encoded already."""
    return bytes((0x80 | (len(entries) + 1),)) + encode(entries)[1:] + encode(name) + value
