"""A server that hostile clients meet, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw as RawBytes

from echomesh.mesh.access import Access
from echomesh.mesh.bodies import Publish, Subscribe
from echomesh.mesh.codes import Command
from echomesh.mesh.options import MeshOptions
from tests.faults.mesh_support import still_serves
from tests.mesh.support import Raw, Running, an_event, serving

Test = Callable[[Running], Coroutine[Any, Any, None]]
QUICK = MeshOptions(heartbeat_s=0.2, stranger_s=0.3)
encode = msgspec.msgpack.encode


def run(directory: Path, test: Test, options: MeshOptions | None = None, access: str | None = None) -> None:
    """Whatever a test does, no exception is left unhandled, and the server serves on."""
    unhandled: list[dict[str, Any]] = []

    async def inside() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        known = None if access is None else Access.parse(access)
        async with serving(directory, options, access=known) as server:
            await test(server)
            await still_serves(server, password=None if access is None else "secret")

    asyncio.run(inside())
    assert not unhandled, unhandled


async def subscriber(server: Running, *filters: str, start: Any = None, **hello: Any) -> Raw:
    client = await server.client("shop", **hello)
    body = Subscribe("shop", client.session_id, list(filters), start)
    answer = await client.ask(Command.SUBSCRIBE_REQUEST, body)
    assert answer.status == 0, answer.description
    return client


def publishing(client: Raw, topic: str, number: int = 0, size: int = 0) -> Publish:
    return Publish(client.client_id, client.session_id, topic, RawBytes(an_event(number, size).encode()))
