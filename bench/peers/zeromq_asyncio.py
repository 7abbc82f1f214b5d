"""pyzmq in event loops: PUSH and PULL over ipc://, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from zmq.asyncio import Context
from zmq.constants import PULL, PUSH

from bench.harness.loops import NamedReceiver, NamedSender
from bench.harness.peer import Peer, Receiver, Sender
from bench.native.checker import END, Stamper, stamp


class ZeroMQLoopPeer(Peer):
    """For round trips; role a binds."""

    def _socket(self, kind: int, channel: str) -> Any:
        made = Context.instance().socket(kind)
        address = f"ipc://{self.run.directory}/{channel}"
        if self.role == "a":
            made.bind(address)
        else:
            made.connect(address)
        return made

    def sender(self, channel: str) -> Sender:
        return NamedSender(channel, self.run.size)

    def receiver(self, channel: str) -> Receiver:
        return NamedReceiver(channel)

    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ends = self.loop.run_until_complete(self._ends())
        super().begin()

    async def _ends(self) -> tuple[Any, Any]:
        return self._socket(PUSH, "ping"), self._socket(PULL, "pong")

    def exchange(self, stamps: Stamper[Any], sender: Sender, receiver: Receiver, check: Callable[[Any], bool]) -> None:
        async def run() -> None:
            out, back = self.ends
            for body in stamps:
                await out.send(body)
                check(await back.recv())
            stamp(sender.body, END)
            await out.send(sender.body)

        self.loop.run_until_complete(run())

    def finish(self, sender: Sender) -> None:
        """The end was sent within the loop."""

    def echo(self, is_end: Callable[[Any], bool]) -> None:
        async def run() -> None:
            out, back = self._socket(PULL, "ping"), self._socket(PUSH, "pong")
            while not is_end(body := await out.recv()):
                await back.send(body)

        asyncio.run(run())

    def close(self) -> None:
        Context.instance().destroy(linger=0)


make = ZeroMQLoopPeer
