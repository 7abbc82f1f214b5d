"""Ours in event loops: publishers and subscribers of the data plane, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import echomesh
from bench.harness.loops import NamedReceiver, NamedSender
from bench.harness.peer import Peer, Receiver, Sender
from bench.native.checker import END, Stamper, stamp
from bench.peers.mesh_data import MATCH_SECONDS, options, wait_until_gone


class DataLoopPeer(Peer):
    """For round trips."""

    def sender(self, channel: str) -> Sender:
        return NamedSender(channel, self.run.size)

    def receiver(self, channel: str) -> Receiver:
        return NamedReceiver(channel)

    async def _ends(self, out: str, back: str) -> tuple[echomesh.Publisher, echomesh.Subscriber]:
        self.mesh = echomesh.connect(**options(self.run))
        publisher, subscriber = await self.mesh.publisher(out), await self.mesh.subscribe(back)
        await publisher.matched(1, MATCH_SECONDS)
        return publisher, subscriber

    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ends = self.loop.run_until_complete(self._ends("ping", "pong"))

    def exchange(self, stamps: Stamper[Any], sender: Sender, receiver: Receiver, check: Callable[[Any], bool]) -> None:
        async def run() -> None:
            publisher, subscriber = self.ends
            for body in stamps:
                await publisher.send(body)
                check(await subscriber.receive())
            stamp(sender.body, END)
            await publisher.send(sender.body)
            await self.mesh.close()

        self.loop.run_until_complete(run())
        self.loop.close()

    def finish(self, sender: Sender) -> None:
        """The end was sent within the loop."""

    def echo(self, is_end: Callable[[Any], bool]) -> None:
        async def run() -> None:
            publisher, subscriber = await self._ends("pong", "ping")
            async for message in subscriber:
                if is_end(message):
                    break
                await publisher.send(message)
            await self.mesh.close()

        asyncio.run(run())

    def close(self) -> None:
        wait_until_gone(self.run)


make = DataLoopPeer
