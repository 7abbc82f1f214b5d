"""A way to a server that a test can cut, hold up and close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Passes bytes on, both ways, until it is told to do something else."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.connections = 0
        self.open = True
        self.pace_s = 0.0
        """A pause after each 64 KiB, for a way that is slow."""
        self._pairs: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def cut(self) -> None:
        """Breaks the connections that there are; new ones work."""
        for writer in list(self._pairs):
            writer.transport.abort()

    def close(self) -> None:
        """Breaks them, and lets no new one through."""
        self.open = False
        self.cut()

    def hold(self) -> None:
        """Passes nothing on, and breaks nothing."""
        self._flowing.clear()

    def go_on(self) -> None:
        """Passes on what was held."""
        self._flowing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        if not self.open:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._pairs |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            self._pairs -= {writer, back}
            for end in (writer, back):
                end.transport.abort()
                with suppress(OSError):
                    await end.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
                if self.pace_s:
                    await asyncio.sleep(self.pace_s)
        writer.close()


@asynccontextmanager
async def proxy(target: int, made: Proxy | None = None) -> AsyncIterator[Proxy]:
    """A proxy before a server of this machine."""
    made = made or Proxy(target)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.go_on()
        made.close()
        await server.wait_closed()
