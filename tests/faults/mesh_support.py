"""Real server processes, to be killed; and what is in their logs afterwards."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from msgspec import Raw as RawBytes

from echomesh.events import Event
from echomesh.log import LogReader
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Publish, Subscribe
from echomesh.mesh.codes import Command, Purpose
from tests.faults.mesh_process import serve
from tests.mesh.support import Running, an_event

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 60.0


_forking = get_context("forkserver")
_forking.set_forkserver_preload(["tests.faults.mesh_process"])


class ServerProcess:
    """A server on a directory, in a process of its own: started again, it serves at the same port."""

    def __init__(self, directory: Path, *, config: str = "") -> None:
        self.directory = directory
        self.port = 0
        self._config = directory.with_name(f"{directory.name}.toml")
        self._config.write_text(config)
        self._errors = directory.with_name(f"{directory.name}.err")
        self._errors.touch()
        self._process: ForkServerProcess | None = None

    async def start(self) -> None:
        """Starts a process, and waits until it serves."""
        self.directory.mkdir(exist_ok=True)
        here, there = _forking.Pipe(duplex=False)
        arguments = (str(self.directory), (HOST, self.port), str(self._config), str(self._errors), there)
        self._process = _forking.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        there.close()
        assert await asyncio.to_thread(here.poll, PATIENCE_S), self.said
        try:
            self.port = here.recv()
        except EOFError:
            raise AssertionError(self.said) from None
        here.close()

    @property
    def address(self) -> str:
        """Where it serves."""
        return f"{HOST}:{self.port}"

    @property
    def said(self) -> str:
        """What it wrote to standard error, over all its lives."""
        return self._errors.read_text()

    @property
    def memory(self) -> int:
        """Its own memory in bytes, without the files that it has mapped."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) << 10

    async def kill(self) -> None:
        """Kills it (-9)."""
        if self._process is not None:
            self._process.kill()
            await self._ended()

    async def stop(self) -> None:
        """Lets it end as it should."""
        if self._process is not None:
            self._process.terminate()
            assert await self._ended() == 0, self.said

    async def _ended(self) -> int | None:
        assert self._process is not None
        process, self._process = self._process, None
        await asyncio.to_thread(process.join, PATIENCE_S)
        code = process.exitcode
        process.close()
        return code


def events_of(directory: Path, topic: str, environment: str = "TST") -> list[Event]:
    """What a log has in this topic; its server has ended, or runs."""
    found: list[Event] = []
    with LogReader(directory) as reader:
        records = reader.topic(topic, environment=environment)
        at = records.earliest
        while len(batch := records.read(at)):
            found += [Event.decode(event) for event in batch.events()]
            at = batch.next_offset
    return found


async def until(reached: Callable[[], bool], what: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Waits for something that other processes do; `what` says how far it is when it does not come."""
    try:
        async with asyncio.timeout(patience_s):
            while not reached():  # noqa: ASYNC110 - it happens in other processes
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(what()) from None


async def fill(server: Running, topic: str, events: int, size: int = 0, first: int = 0) -> None:
    """Puts numbered events into a topic of a server in this process."""
    encoded = [an_event(number, size).encode() for number in range(first, first + events)]
    await server.log.append_many(topic, encoded)
    server.server.core.grew("TST", topic)
    server.server.flush_soon()


async def still_serves(server: Running, password: str | None = None) -> None:
    """A good client publishes, and another one gets it."""
    reader, writer = [await server.client("good", password=password, purpose=purpose) for purpose in Purpose]
    subscribed = Subscribe("good", reader.session_id, ["good/topic"], "now")
    assert (await reader.ask(Command.SUBSCRIBE_REQUEST, subscribed)).status == 0
    event = an_event(random.randrange(1 << 60))
    body = Publish("good", writer.session_id, "good/topic", RawBytes(event.encode()))
    assert (await writer.ask(Command.PUBLISH_MESSAGE_REQUEST, body)).status == 0
    delivered = protocol.body_of(await reader.receive())
    assert [bytes(each) for each in delivered.cloud_events] == [event.encode()]
