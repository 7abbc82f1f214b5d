"""A real server with HTTP in a thread of its own, and readers that know nothing of how it is made."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from echomesh.events import Event
from echomesh.log import AsyncTopicLog, LogOptions
from echomesh.mesh.access import Access, open_access
from echomesh.mesh.http import HttpOptions, HttpServer, serve_http
from echomesh.mesh.options import MeshOptions
from echomesh.mesh.ports import AccessPort
from echomesh.mesh.server import MeshServer
from echomesh.mesh.state import StateFile
from echomesh.mesh.verifying import AsyncAccess

PATIENCE_S = 30.0
STRUCTURED = {"Content-Type": "application/cloudevents+json"}
BATCHED = {"Content-Type": "application/cloudevents-batch+json"}

T = TypeVar("T")


@dataclass
class Answer:
    """What the server said."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> tuple[int, str, str]:
        """HTTP's status, the mesh's status and error; the answer must be whole problem details."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        assert self.json["title"]
        assert self.json["detail"]
        return self.status, self.json["mesh_status"], self.json["mesh_error"]


@dataclass
class Sent:
    """One event as a browser's EventSource would have it."""

    event: str
    data: str
    last_id: str
    comments: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def cloud_event(self) -> Event:
        assert self.event == "message", self
        return Event.from_json(self.data)


class Reader:
    """Reads server-sent events as the standard says: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self.connection = connection
        self.response = response
        self.last_id = ""
        self.blocks = 0

    def line(self) -> str:
        """One line; `EOFError` at the end."""
        raw = self.response.readline()
        if not raw:
            raise EOFError
        return raw.decode().rstrip("\n")

    def block(self) -> Sent:
        """What stands before the next empty line, dispatched or not."""
        event, data, comments = "", [], []
        while line := self.line():
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "":
                comments.append(value)
            elif name == "event":
                event = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                self.last_id = value
            else:
                assert name == "retry", line
        self.blocks += 1
        return Sent(event or "message", "\n".join(data), self.last_id, comments)

    def next(self) -> Sent:
        """The next event that a browser would dispatch."""
        while not (sent := self.block()).data:
            pass
        return sent

    def events(self, count: int) -> list[Event]:
        """The next so many CloudEvents."""
        return [self.next().cloud_event for _ in range(count)]

    def ids(self, count: int) -> list[str]:
        """The ids of the next so many CloudEvents."""
        return [event.id for event in self.events(count)]

    def rest(self) -> list[Sent]:
        """All until the end."""
        found = []
        try:
            while True:
                found.append(self.next())
        except EOFError:
            return found

    def close(self) -> None:
        # The response holds the socket too.
        self.response.close()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Web:
    """A mesh server with HTTP, on one directory, until `close`. No error may be logged on the way."""

    def __init__(
        self,
        directory: Path,
        clients: str | None = None,
        http_options: HttpOptions | None = None,
        *,
        options: MeshOptions | None = None,
        log_options: LogOptions | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self.directory = directory
        self.access = Access() if clients is None else Access.parse(clients, "clients.toml")
        self.faults: list[str] = []
        self.port = self.mesh_port = 0
        self.server: MeshServer
        self.http: HttpServer
        self.log: AsyncTopicLog
        self._open = clients is None
        self._http_options = http_options
        self._options = options
        self._log_options = log_options
        self._tls = tls
        self._host = host
        self._loop_factory = loop_factory
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            self._thread.join()
            raise self._failed

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                self._failed = error
            finally:
                self._ready.set()

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.faults.append(repr(context)))
        watching = _Watching(self.faults)
        logging.getLogger("uvicorn.error").addHandler(watching)
        self._stop = asyncio.Event()
        access = AsyncAccess(lambda: self.access, loop)
        local: AccessPort | None = open_access() if self._open else None
        async with AsyncTopicLog(self.directory, self._log_options) as self.log:
            state = StateFile(
                self.directory / "mesh.state",
                self.log.log_id,
                threaded=True,
                notify=lambda: loop.call_soon_threadsafe(lambda: self.server.settled()),
            )
            self.server = MeshServer(self.log, access, state, self._options, local_access=local)
            self.http = await serve_http(self.server, self._host, 0, tls=self._tls, options=self._http_options)
            self.port = self.http.addresses[0][1]
            self.mesh_port = (await self.server.listen("127.0.0.1", 0))[0][1]
            self._ready.set()
            await self._stop.wait()
            await self.http.close()
            await self.server.close()
            state.close()
            access.close()
        logging.getLogger("uvicorn.error").removeHandler(watching)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs something in the server's own thread."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(PATIENCE_S)

    def see(self, look: Callable[[], T]) -> T:
        """Looks at something in the server's own thread."""

        async def work() -> T:
            return look()

        return self.run(work)

    def close(self) -> None:
        """Stops it, and checks that nothing went wrong inside."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE_S)
        if self._failed is not None:
            raise self._failed
        assert self.faults == []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # What a client does

    def connection(self) -> http.client.HTTPConnection:
        """A connection, not yet made."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    @contextmanager
    def socket(self) -> Iterator[socket.socket]:
        """A bare connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as made:
            yield made

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        who: str | None = None,
        password: str = "secret",
    ) -> Answer:
        """One request on a connection of its own."""
        connection = self.connection()
        try:
            connection.request(method, path, body, {**(headers or {}), **basic(who, password)})
            return answer(connection.getresponse())
        finally:
            connection.close()

    def publish(self, topic: str, *events: Event, who: str | None = None) -> list[int]:
        """Publishes events in one batch; their offsets."""
        body = b"[" + b",".join(event.to_json() for event in events) + b"]"
        given = self.ask("POST", f"/topics/{topic}", body, BATCHED, who=who)
        assert given.status == 200, given
        return [entry["offset"] for entry in given.json]

    def subscribe(self, path: str, headers: Mapping[str, str] | None = None, *, who: str | None = None) -> Reader:
        """Subscribes, and waits until that has begun."""
        connection = self.connection()
        connection.request("GET", f"/topics/{path}", headers={**(headers or {}), **basic(who)})
        response = connection.getresponse()
        assert response.status == 200, answer(response)
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        return Reader(connection, response)


class _Watching(logging.Handler):
    def __init__(self, faults: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        self._faults.append(self.format(record))


def answer(response: http.client.HTTPResponse) -> Answer:
    """A response, read whole."""
    return Answer(response.status, response.headers, response.read())


def basic(who: str | None, password: str = "secret") -> dict[str, str]:
    """The header of HTTP Basic."""
    if who is None:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{who}:{password}".encode()).decode()}


def an_event(number: int | str = 0, **more: Any) -> Event:
    """An event that is like no other."""
    return Event(**{"type": "order.created", "source": "/shop", "id": f"e{number}", **more})


def some_events(count: int, first: int = 0, **more: Any) -> list[Event]:
    """So many of them."""
    return [an_event(number, **more) for number in range(first, first + count)]
