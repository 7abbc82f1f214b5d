"""A connection: however its bytes are cut, each request is answered once, in order."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Raw

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Publish
from echomesh.mesh.codes import Command
from echomesh.mesh.connection import PART_BYTES
from echomesh.mesh.protocol import Message
from tests.mesh.support import an_event, serving
from tests.support.counts import count

PUBLISHES = 200


def test_requests_in_pieces_of_any_size_are_answered_once_and_in_order(shm_dir: Path) -> None:
    async def test(seed: int) -> None:
        chance = random.Random(seed)
        async with serving(shm_dir / str(seed)) as running:
            client = await running.publisher()
            frames = []
            for number in range(PUBLISHES):
                event = Raw(an_event(number, size=chance.choice((0, 10, 1000, 100_000))).encode())
                body = Publish("shop", client.session_id, "orders", event)
                frames.append(framed(protocol.encode(Command.PUBLISH_MESSAGE_REQUEST, f"p{number}", body)))
                if chance.random() < 0.1:
                    frames.append(framed(protocol.encode(Command.HEARTBEAT_REQUEST, f"h{number}")))
            data = b"".join(frames)
            answering = asyncio.create_task(_answers(client.receive))
            while data:
                cut = chance.choice((1, 3, 7, 200, 5000, 100_000))
                client.write(data[:cut])
                data = data[cut:]
                await asyncio.sleep(0)
            assert await answering == list(range(PUBLISHES))

    for seed in range(count(3, 100)):
        (shm_dir / str(seed)).mkdir()
        asyncio.run(test(seed))


def test_publishes_are_answered_while_others_of_the_same_read_are_still_taken(shm_dir: Path) -> None:
    async def test() -> None:
        async with serving(shm_dir) as running:
            client = await running.publisher()
            client.write(_publishes(client.session_id, range(1)))  # the first one is judged by Python, and its topic
            assert (await client.receive()).status == 0
            (connection,) = running.server.core.connections
            parts, look = 0, connection.on_part
            assert look is not None

            def part() -> None:
                nonlocal parts
                parts += 1
                deadline = time.monotonic() + 10
                while running.server.core.waiting and time.monotonic() < deadline:
                    look()
                    time.sleep(0.001)
                assert not running.server.core.waiting

            connection.on_part = part
            # No turn of the event loop meanwhile.
            connection.receive(_publishes(client.session_id, range(1, PUBLISHES)), 0.0)
            assert parts == (PUBLISHES - 1) * 2100 // PART_BYTES
            for number in range(1, PUBLISHES):
                answer = await client.receive()
                assert (answer.seq, protocol.body_of(answer).offset) == (f"p{number}", number)

    asyncio.run(test())


def _publishes(session_id: str, numbers: range) -> bytes:
    made = []
    for number in numbers:
        body = Publish("shop", session_id, "orders", Raw(an_event(number, size=2000).encode()))
        made.append(framed(protocol.encode(Command.PUBLISH_MESSAGE_REQUEST, f"p{number}", body)))
    return b"".join(made)


async def _answers(receive: Callable[[], Awaitable[Message]]) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < PUBLISHES:
        answer = await receive()
        assert answer.status == 0
        if answer.command == Command.PUBLISH_MESSAGE_RESPONSE:
            assert answer.seq == f"p{len(offsets)}"
            offsets.append(protocol.body_of(answer).offset)
    return offsets
