"""`echomesh pub`: events from the command line, a file or standard input, through a session."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echomesh.cli.common import JsonOption, state
from echomesh.cli.events_in import Done, attributes_of, event_of, events_of_lines, whole_event
from echomesh.cli.log_common import EnvironmentOption, TopicArgument
from echomesh.cli.peer import EveryOption, PeerOption, publish
from echomesh.cli.session import (
    SERVER,
    CaOption,
    ClientOption,
    Interrupt,
    Login,
    PasswordFileOption,
    ServerOption,
    TlsOption,
)
from echomesh.errors import StorageError, UsageError
from echomesh.events import Event
from echomesh.topics import parse_topic

if TYPE_CHECKING:
    from echomesh.mesh.client import Session

_STANDARD_INPUT = 0
_TOGETHER = 1024
WAIT_S = 5.0

Chunks = Iterator[list[Event]]


def pub(
    topic: TopicArgument,
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="Data of an event; without it, each line of standard input is one."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Each line of this file is an event; - is standard input.", show_default=False
        ),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Lines are whole events in CloudEvents' JSON format, or those of `sub`.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="So many events of DATA; without DATA, numbers.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="So many a second.", show_default=False)
    ] = None,
    type: Annotated[str, typer.Option(metavar="TYPE", help="What happened.")] = "message",
    source: Annotated[
        str | None, typer.Option(metavar="URI", help="Where; this host when not given.", show_default=False)
    ] = None,
    subject: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is about.", show_default=False)] = None,
    content_type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Of the data. Objects and arrays in JSON are JSON, the rest is text."),
    ] = None,
    extension: Annotated[
        list[str] | None, typer.Option("--extension", "-x", metavar="NAME=VALUE", help="One more attribute.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="To this server of the mesh alone.", show_default=False),
    ] = None,
    peer: PeerOption = False,
    every: EveryOption = None,
    wait: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="With --peer: for a first subscriber.")
    ] = WAIT_S,
    server: ServerOption = SERVER,
    client: ClientOption = None,
    password_file: PasswordFileOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
    environment: EnvironmentOption = "TST",
    as_json: JsonOption = False,
) -> None:
    """Publish events, and say their offsets once they are on the server's disk.

    With --peer, send raw messages to subscribers of this machine through shared memory, with no server in between:
    DATA, a whole --file, or each line of standard input.
    """
    state.json = as_json
    if peer:
        publish(topic, data, file, count, every if rate is None else 1 / rate, wait, as_json)
        return
    if every is not None:
        rate = 1 / every
    topic = parse_topic(topic)
    attributes = attributes_of(type, source, subject, extension)
    if data is not None and (file is not None or events):
        raise UsageError("DATA is one event, and --file and --events are for lines: give one or the other")
    if count is not None and (file is not None or events):
        raise UsageError("--count is for DATA or numbers: without it, all lines are published")
    if data is not None:
        chunks = _repeated(lambda _: event_of(data, content_type, attributes), count or 1)
    elif count is not None:
        chunks = _repeated(lambda number: event_of(f'{{"number": {number}}}', content_type, attributes), count)
    elif events:
        chunks = _lines(file, whole_event)
    else:
        chunks = _lines(file, lambda line: event_of(line.decode(), content_type, attributes))
    login = Login(server, client, password_file, tls, ca, environment)
    done = login.run(lambda session: _publish(session, topic, chunks, rate, to))
    done.report(topic, as_json, "nothing to publish")


def _repeated(make: Callable[[int], Event], count: int) -> Chunks:
    for first in range(0, count, _TOGETHER):
        yield [make(number) for number in range(first, min(count, first + _TOGETHER))]


def _lines(file: Path | None, parse: Callable[[bytes], Event]) -> Chunks:
    if file is None or str(file) == "-":
        yield from events_of_lines(_STANDARD_INPUT, parse, "standard input", "published")
        return
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(f"{file}: {error.strerror or error}") from None
    try:
        yield from events_of_lines(handle, parse, str(file), "published")
    finally:
        os.close(handle)


async def _publish(session: Session, topic: str, chunks: Chunks, rate: float | None, to: str | None) -> Done:
    # Nothing is read from a pipe before the server has let us in.
    await session.topics(topic)
    publishing = _Publishing(session, topic, to)
    try:
        await Interrupt().before(publishing.all(chunks, rate))
    finally:
        await publishing.rest()
    return publishing.done


class _Publishing:
    """Events on their way, many at once, and the offsets of those that are on disk."""

    def __init__(self, session: Session, topic: str, to: str | None) -> None:
        self.done = Done()
        self._session = session
        self._topic = topic
        self._to = to
        self._waiting: deque[asyncio.Future[int]] = deque()

    async def all(self, chunks: Chunks, rate: float | None) -> None:
        """Publishes all of them; with a rate, each when it is due."""
        began, number = time.monotonic(), numbers()
        async for chunk in _beside(chunks):
            for event in chunk:
                if rate is not None:
                    await asyncio.sleep(max(0.0, began + next(number) / rate - time.monotonic()))
                await self._session.room()
                self._waiting.append(self._session.publish_soon(self._topic, event, server=self._to))
                self._settle()

    def _settle(self) -> None:
        while self._waiting and self._waiting[0].done():
            self.done.add([self._waiting.popleft().result()])

    async def rest(self) -> None:
        """Waits for the answers that are due."""
        await asyncio.gather(*self._waiting, return_exceptions=True)
        self._settle()


async def _beside(chunks: Chunks) -> AsyncIterator[list[Event]]:
    """The chunks, read by a thread that may wait for input for ever without keeping anybody from leaving."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[Event] | BaseException | None] = asyncio.Queue(2)

    def read() -> None:
        try:
            for chunk in chunks:
                asyncio.run_coroutine_threadsafe(queue.put(chunk), loop).result()
            end = None
        except BaseException as error:
            end = error
        asyncio.run_coroutine_threadsafe(queue.put(end), loop)

    threading.Thread(target=read, daemon=True).start()
    while (found := await queue.get()) is not None:
        if isinstance(found, BaseException):
            raise found
        yield found
