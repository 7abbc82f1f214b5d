"""HTTP beside the EventMesh protocol: CloudEvents are posted, and subscriptions are server-sent events.

`serve_http` needs the extra `node`; the rest of the mesh does not.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from echomesh.errors import UsageError

if TYPE_CHECKING:
    from echomesh.mesh.http_app import Face
    from echomesh.mesh.http_wire import Wires
    from echomesh.mesh.server import MeshServer


@dataclass(frozen=True)
class HttpOptions:
    """Limits and times of HTTP. How large a body may be is said by `MeshOptions.frame_bytes`."""

    origins: tuple[str, ...] = ()  # pages of these origins may use it (CORS); "*" for all
    hosts: tuple[str, ...] = ()  # names besides localhost that a server without an access file answers to
    heartbeat_s: float = 15.0  # a comment goes to a subscriber after so much silence
    retry_s: float = 1.0  # after which a browser connects again
    idle_s: float = 10.0  # to send the head of a request, and between two requests
    body_s: float = 10.0  # to send a body, and more for a large one:
    body_rate: int = 16 << 10  # a second more for each of so many bytes
    stall_s: float = 30.0  # for a reader to take 64 KiB
    max_connections: int = 2_000
    max_requests: int = 256  # being published or checked at once
    max_streams: int = 1_000  # subscriptions at once
    max_events: int = 10_000  # of one batch
    max_topics: int = 2_000  # that one subscription may match when it begins
    held_bytes: int = 256 << 20  # of all bodies together


class HttpServer:
    """HTTP that is being served. Close it before the server that it belongs to."""

    def __init__(self, face: Face, wires: Wires, listening: asyncio.Server) -> None:
        self._face = face
        self._wires = wires
        self._listening = listening
        self._closed = False
        self.addresses: Sequence[tuple[str, int]] = [
            cast("tuple[str, int]", socket.getsockname()[:2]) for socket in listening.sockets
        ]

    async def close(self, grace: float = 5.0) -> None:
        """Ends subscriptions, answers what was asked, and frees the address."""
        if self._closed:
            return
        self._closed = True
        self._listening.close()
        self._face.close()
        await self._wires.close(grace)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._listening.wait_closed()
        self._face.bodies.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def serve_http(
    server: MeshServer,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    options: HttpOptions | None = None,
) -> HttpServer:
    """Serves HTTP for a mesh server, in the same event loop, with the same clients, rights and limits."""
    try:
        from echomesh.mesh.http_app import Face
        from echomesh.mesh.http_wire import Wires
    except ImportError as error:
        raise UsageError(f"HTTP needs {error.name}: pip install 'echomesh[node]'") from None
    face = Face(server, options or HttpOptions())
    wires = Wires(face.app(), face.options)
    loop = asyncio.get_running_loop()
    try:
        listening = await loop.create_server(cast(Any, wires.protocol), host, port, ssl=tls, backlog=2048)
    except BaseException:
        face.close()
        raise
    return HttpServer(face, wires, listening)
