"""The controller for asyncio; `echomesh.nukleus.sync.Controller` is the same without `await`."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType

from echomesh.nukleus import sync
from echomesh.nukleus.commands import Message
from echomesh.nukleus.directory import Directory


class Controller:
    """Sends commands to a nukleus and waits for its answers without blocking the event loop.

        async with Controller("echo") as echo:
            await echo.capture("client")

    A command is a few microseconds of work and a wait, which a thread does: commands are rare.
    """

    def __init__(
        self, nukleus: str, *, directory: str | os.PathLike[str] | Directory | None = None, timeout: float = 5.0
    ) -> None:
        self._sync = sync.Controller(nukleus, directory=directory, timeout=timeout)
        self.nukleus = nukleus

    async def capture(self, source: str, *, timeout: float | None = None) -> None:
        """Makes the nukleus read streams from `source`."""
        await asyncio.to_thread(self._sync.capture, source, timeout=timeout)

    async def uncapture(self, source: str, *, timeout: float | None = None) -> None:
        """Makes it read that source no more; its streams are reset."""
        await asyncio.to_thread(self._sync.uncapture, source, timeout=timeout)

    async def route(self, destination: str, *, timeout: float | None = None) -> None:
        """Makes the nukleus write streams to `destination`, which must have captured it."""
        await asyncio.to_thread(self._sync.route, destination, timeout=timeout)

    async def unroute(self, destination: str, *, timeout: float | None = None) -> None:
        """Makes it write to that destination no more; its streams are reset."""
        await asyncio.to_thread(self._sync.unroute, destination, timeout=timeout)

    async def bind(self, source: str, reference: int = 0, *, timeout: float | None = None) -> int:
        """Makes it accept streams of `source`, and gives the reference that they must name."""
        return await asyncio.to_thread(self._sync.bind, source, reference, timeout=timeout)

    async def unbind(self, reference: int, *, timeout: float | None = None) -> None:
        """Makes it accept streams for a bind reference no more."""
        await asyncio.to_thread(self._sync.unbind, reference, timeout=timeout)

    async def prepare(self, destination: str, reference: int, *, timeout: float | None = None) -> int:
        """Makes it ready to initiate streams to a bind reference of `destination`, and gives the reference for that."""
        return await asyncio.to_thread(self._sync.prepare, destination, reference, timeout=timeout)

    async def unprepare(self, reference: int, *, timeout: float | None = None) -> None:
        """Ends a prepare reference."""
        await asyncio.to_thread(self._sync.unprepare, reference, timeout=timeout)

    async def connect(self, reference: int, *, timeout: float | None = None) -> int:
        """Makes it initiate a stream for a prepare reference, and gives the stream's id."""
        return await asyncio.to_thread(self._sync.connect, reference, timeout=timeout)

    async def call(self, command: Message, timeout: float | None = None) -> Message:
        """Sends any command and gives its response."""
        return await asyncio.to_thread(self._sync.call, command, timeout)

    def counters(self) -> dict[str, int]:
        """The nukleus's counters, by label."""
        return self._sync.counters()

    async def close(self) -> None:
        """Lets go of the nukleus's files."""
        self._sync.close()

    async def __aenter__(self) -> Controller:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
