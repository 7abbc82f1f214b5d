"""Output from memory and from files leaves in its order, whatever the other end takes at once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
import uvloop

from echomesh.log import LogOptions
from echomesh.log.stretch import Stretch
from echomesh.mesh import protocol
from echomesh.mesh.codes import Command
from echomesh.mesh.log_bodies import Fetch, Fetched
from echomesh.mesh.outlet import Outlet
from echomesh.mesh.pipe import Piece
from echomesh.native.log_record import scan
from tests.mesh.support import Raw, an_event, serving

EVENTS = [an_event(number, size=random.Random(number).randrange(500)).encode() for number in range(3000)]


class Sending(asyncio.Protocol):
    """Sends pieces as soon as somebody has connected, some at a time."""

    def __init__(self, turns: list[list[Piece]]) -> None:
        self.turns = turns

    def connection_made(self, transport: Any) -> None:
        outlet = Outlet(transport)
        for pieces in self.turns:
            outlet.send(pieces)
        transport.close()
        outlet.close()


async def _sent(turns: list[list[Piece]], pause_s: float) -> bytes:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Sending(turns), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=1 << 16)
    await asyncio.sleep(pause_s)
    got = await reader.read()
    writer.close()
    server.close()
    return got


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("pause_s", [0.0, 0.2])
def test_all_pieces_come_in_order(tmp_path: Path, run: Any, pause_s: float) -> None:
    # More than sockets have room for, so that some of it goes by the one way and some by the other.
    data = random.Random(3).randbytes(8 << 20)
    path = tmp_path / "file"
    path.write_bytes(data)
    turns: list[list[Piece]] = []
    wanted = b""
    with path.open("rb") as file:
        for turn in range(8):
            turns.append([])
            for number in range(3):
                head, position, size = b"%d.%d" % (turn, number), (turn << 20) + number, (1 << 20) - 9 * number
                turns[-1] += [head, Stretch(file.fileno(), position, size, 0)]
                wanted += head + data[position : position + size]
            turns[-1] += [memoryview(b"more")]
            wanted += b"more"
        got = run(_sent(turns, pause_s))
    assert got == wanted


def test_a_file_that_ends_too_early_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with path.open("rb") as file:
        turns: list[list[Piece]] = [[b"head", Stretch(file.fileno(), 0, 200, 0)], [b"not sent"]]

        async def attempt() -> bytes:
            try:
                return await _sent(turns, 0.0)
            except ConnectionError:
                return b""

        got = uvloop.run(attempt())
    assert len(got) <= 104
    assert b"not sent" not in got


async def _fetch(client: Raw, topic: str, offset: int, until: int, **more: Any) -> Fetched:
    body = Fetch(client.client_id, client.session_id, topic, offset, until, **more)
    message = await client.ask(Command.FETCH_REQUEST, body)
    assert message.status == 0, message.description
    fetched: Fetched = protocol.body_of(message)
    return fetched


def rows(fetched: Fetched) -> list[tuple[int, int, bytes]]:
    shift = fetched.shift or 0
    found = scan(fetched.records, 0, fetched.offset - shift)
    assert found.next_offset + shift == fetched.next_offset
    return [
        (number + shift, time_ns if fetched.time is None else fetched.time, event)
        for number, time_ns, _, event in found
    ]


def test_unchecked_records_are_the_same_from_the_file(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, log_options=LogOptions(adopt_bytes=1, duplicate_bytes=0)) as server:
            await server.log.append_many("plain", EVENTS)
            stage = await server.log.stage("w", epoch=0, run="r")
            for event in EVENTS:
                await stage.add("staged", event)
            await server.log.commit("w", 0, "r", [(await stage.close()).stage])
            client = await server.client()
            for topic in ("plain", "staged"):
                for offset, until in ((0, 3000), (10, 2000), (2990, 3000), (0, 1)):
                    checked = await _fetch(client, topic, offset, until)
                    unchecked = await _fetch(client, topic, offset, until, unchecked=True)
                    assert rows(checked) == rows(unchecked)
                    assert [event for _, _, event in rows(checked)] == EVENTS[offset:until]
                    large = len(checked.records) > 100_000
                    assert (unchecked.shift is not None) == (topic == "staged" and large)
                    assert checked.shift is None
            few = await _fetch(client, "plain", 0, 3000, unchecked=True, max_bytes=100_000)
            assert 0 < few.next_offset < 1000
            assert rows(few) == rows(await _fetch(client, "plain", 0, few.next_offset))

    asyncio.run(run())


def test_many_fetches_at_once_to_one_who_reads_slowly(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, log_options=LogOptions(duplicate_bytes=0)) as server:
            await server.log.append_many("a", EVENTS)
            client = await server.client()
            body = Fetch(client.client_id, client.session_id, "a", 0, 3000, unchecked=True)
            seqs = [client.send(Command.FETCH_REQUEST, body) for _ in range(40)]
            await asyncio.sleep(0.3)
            for seq in seqs:
                message = await client.receive()
                assert message.seq == seq
                assert [event for _, _, event in rows(protocol.body_of(message))] == EVENTS

    asyncio.run(run())
