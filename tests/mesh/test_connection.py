"""A connection: however its bytes are cut, each request is answered once, in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Raw

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Publish
from echomesh.mesh.codes import Command
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


async def _answers(receive: Callable[[], Awaitable[Message]]) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < PUBLISHES:
        answer = await receive()
        assert answer.status == 0
        if answer.command == Command.PUBLISH_MESSAGE_RESPONSE:
            assert answer.seq == f"p{len(offsets)}"
            offsets.append(protocol.body_of(answer).offset)
    return offsets
