"""A user process, as far as participants are concerned: a nukleus, and links of publishers and subscribers.

`python -m tests.data.control_process NAME` reads commands as lines of JSON and answers each with a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from echomesh.data.config import DataOptions
from echomesh.data.link import PublisherLink, SubscriberLink
from echomesh.data.looking import look
from echomesh.data.messages import Process, PubInsertSubscriber
from echomesh.data.proof import leave_proof
from echomesh.data.starting import Home
from echomesh.errors import EchomeshError
from echomesh.nukleus import SMALL, Nukleus, Stream

RING_BYTES = 64 << 10


class Streams:
    """Takes every stream, and counts what happens to them."""

    def __init__(self) -> None:
        self.begun = 0
        self.reset = 0
        self.received: list[str] = []
        self.initiated: dict[int, Stream] = {}

    def on_begin(self, stream: Stream) -> None:
        self.begun += 1
        if stream.initiated:
            self.initiated[stream.outbound_id] = stream
        else:
            stream.reply()

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        self.received.append(bytes(payload).decode())

    def on_end(self, stream: Stream) -> None:
        stream.end()

    def on_reset(self, stream: Stream) -> None:
        self.reset += 1


class UserProcess:
    """What the commands do."""

    def __init__(self, name: str) -> None:
        self.options = DataOptions()
        self.streams = Streams()
        self.nukleus = Nukleus(
            name, self.streams, directory=self.options.root, capacities=SMALL, stream_capacity=RING_BYTES
        )
        self._driven = asyncio.create_task(self.nukleus.serve())
        self.process = Process(name, str(self.options.root), leave_proof(self.nukleus.place), os.getpid())
        self.links: dict[str, PublisherLink | SubscriberLink] = {}
        self.lost: dict[str, list[str]] = {}
        self.failed: list[str] = []

    async def do(self, command: dict[str, Any]) -> Any:
        """One command, and its answer."""
        match command:
            case {"pub": topic}:
                return await self._open(topic, publishes=True)
            case {"sub": topic}:
                return await self._open(topic, publishes=False)
            case {"close": id}:
                await self.links.pop(id).close()
            case {"list": id}:
                return {other.hex(): told.path.value for other, told in self.links[id].matched.items()}
            case {"wired": id}:
                found = self.links[id]
                assert isinstance(found, PublisherLink)
                return {other.hex(): told.stream for other, told in found.matched.items()}
            case {"send": id, "text": text}:
                await self._send(id, text)
            case {"look": _}:
                found_here = await asyncio.to_thread(look, self.options)
                return {"ips": [seen.ip for seen in found_here.participants], "counters": found_here.counters}
            case {"fork": seconds}:
                return forked(seconds)
            case {"reset": id}:
                found = self.links[id]
                for other, told in list(found.matched.items()):
                    assert isinstance(told, PubInsertSubscriber)
                    (await self._stream(told.stream)).reset()
                    found.forget(other)
            case {"facts": _}:
                return {
                    "begun": self.streams.begun,
                    "reset": self.streams.reset,
                    "received": self.streams.received,
                    "lost": self.lost,
                    "failed": self.failed,
                    "connections": {id: found.connections for id, found in self.links.items()},
                    "rings": sorted(path.name for path in self.nukleus.place.streams.iterdir()),
                    "references": len(self.nukleus.references),
                }
            case _:
                raise ValueError(command)
        return None

    async def _open(self, topic: str, *, publishes: bool) -> Any:
        lost: list[str] = []

        def gone(id: bytes) -> None:
            lost.append(id.hex())

        def failed(error: Exception) -> None:
            self.failed.append(type(error).__name__)

        made: PublisherLink | SubscriberLink
        if publishes:
            made = PublisherLink(
                self.options,
                topic,
                self.process,
                on_subscriber=lambda told: None,
                on_subscriber_lost=gone,
                on_failed=failed,
            )
        else:
            made = SubscriberLink(
                self.options,
                topic,
                self.process,
                on_publisher=lambda told: None,
                on_publisher_lost=gone,
                on_failed=failed,
            )
        try:
            await made.open()
        except EchomeshError as error:
            return {"error": type(error).__name__, "said": str(error)}
        self.links[made.id.hex()] = made
        self.lost[made.id.hex()] = lost
        return made.id.hex()

    async def _stream(self, number: int) -> Stream:
        # The participant may be quicker than the subscriber's answer to the stream's beginning.
        while number not in self.streams.initiated:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return self.streams.initiated[number]

    async def _send(self, id: str, text: str) -> None:
        found = self.links[id]
        assert isinstance(found, PublisherLink)
        for told in list(found.matched.values()):
            (await self._stream(told.stream)).send(text.encode())

    async def close(self) -> None:
        """Leaves as a user's program does."""
        for found in self.links.values():
            await found.close()
        self.nukleus.stop()
        await self._driven
        self.nukleus.close()


def forked(seconds: float) -> int:
    """A child that has all of its parent's files open, for so long."""
    child = os.fork()
    if not child:
        time.sleep(seconds)
        os._exit(0)
    return child


async def main(name: str) -> None:
    """Does commands until there are no more."""
    if given := os.environ.get("ECHOMESH_TEST_ADDRESS"):
        # One in a container sees other files than the participant, and pretends to be beside it all the same.
        port, cookie = given.split(":")
        home = Home(DataOptions().meeting())
        home.enter()
        home.publish(int(port), bytes.fromhex(cookie))
    process = UserProcess(name)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    say("ready")
    while line := await reader.readline():
        say(await process.do(json.loads(line)))
    await process.close()


def say(value: Any) -> None:
    """Answers."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
