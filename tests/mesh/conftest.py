"""What many tests of the mesh need: servers to talk to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from echomesh.mesh.access import Access
from echomesh.mesh.options import MeshOptions
from tests.mesh.http_support import Web
from tests.mesh.support import Running, serving

Test = Callable[[Running], Coroutine[Any, Any, None]]


@pytest.fixture
def run(shm_dir: Path) -> Callable[..., None]:
    """Runs a test with a server, for a minute at most."""

    def go(test: Test, options: MeshOptions | None = None, access: Access | None = None) -> None:
        async def inside() -> None:
            async with serving(shm_dir, options, access=access) as server, asyncio.timeout(60):
                await test(server)

        asyncio.run(inside())

    return go


@pytest.fixture
def web(shm_dir: Path) -> Iterator[Web]:
    """A server with HTTP that lets everybody in."""
    with Web(shm_dir) as web:
        yield web
