"""What the tests of a session share."""

from __future__ import annotations

import asyncio
from typing import Any

from echomesh.mesh.client import Received, Session, Subscription, session
from tests.mesh.support import Running


def connect(server: Running, client_id: str = "shop", **options: Any) -> Session:
    return session(f"127.0.0.1:{server.port}", client_id=client_id, **options)


async def some(subscription: Subscription, number: int) -> list[Received]:
    """The next events; in automatic mode the last of them is not acknowledged yet."""
    async with asyncio.timeout(20):
        return [await anext(subscription) for _ in range(number)]


def ids(received: list[Received]) -> list[str]:
    return [found.id for found in received]
