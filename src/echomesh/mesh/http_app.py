"""What can be asked over HTTP: publish, subscribe, which topics there are, and whether the server is well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from echomesh.errors import EchomeshError
from echomesh.mesh import http_publish as publishing
from echomesh.mesh.codes import ErrorCode
from echomesh.mesh.http_auth import Caller, forbidden, identify
from echomesh.mesh.http_group import Member
from echomesh.mesh.http_problems import Problem, on_bug, on_http_exception, on_problem, unavailable
from echomesh.mesh.http_stream import EventStream, Source
from echomesh.mesh.http_tails import Tail, Tails
from echomesh.mesh.refusal import Refusal
from echomesh.mesh.subscriptions import parse_start
from echomesh.topics import matches, parse_filter, parse_topic

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from echomesh.mesh.http import HttpOptions
    from echomesh.mesh.server import MeshServer

JSON: Final = "application/json"
MOST_LISTED: Final = 10_000
_OFFSET: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_ACCEPTS_EVENTS: Final = re.compile(r"\s*(text/event-stream|text/\*|\*/\*)\s*(;|$)", re.IGNORECASE)


class Face:
    """HTTP for one server: who asks is judged, counted and answered."""

    def __init__(self, server: MeshServer, options: HttpOptions) -> None:
        self.server = server
        self.options = options
        self.tails = Tails(server.core)
        self.bodies = publishing.Bodies(options, server.core.options.frame_bytes)
        self._streams: set[EventStream] = set()
        self._requests = 0
        self._closing = False

    def app(self) -> ASGIApp:
        """The ASGI app."""
        app = Starlette(
            routes=[
                Route("/health", self.health, methods=["GET"]),
                Route("/topics", self.topics, methods=["GET"]),
                Route("/topics/{topic:path}", self.publish, methods=["POST"]),
                Route("/topics/{topic:path}", self.subscribe, methods=["GET"]),
            ],
            middleware=self._cors(),
            exception_handlers={
                Problem: on_problem,
                Refusal: on_problem,
                EchomeshError: on_problem,
                HTTPException: on_http_exception,
                Exception: on_bug,
            },
        )
        app.router.redirect_slashes = False
        return app

    def _cors(self) -> list[Middleware]:
        origins = self.options.origins
        if not origins:
            return []
        return [
            Middleware(
                CORSMiddleware,
                allow_origins=origins,
                allow_methods=("GET", "POST"),
                allow_headers=("*",),
                # Passwords that a browser remembers go with pages that are named, not with everybody's.
                allow_credentials="*" not in origins,
                expose_headers=("Retry-After",),
            )
        ]

    def close(self) -> None:
        """Ends every subscription."""
        self._closing = True
        for stream in self._streams:
            stream.end("the server is stopping: connect again soon")
        self.tails.close()

    # What can be asked

    async def health(self, request: Request) -> Response:
        """Whether it serves."""
        well = not self._stopping
        return _json({"status": "ok" if well else "stopping"}, 200 if well else 503)

    async def topics(self, request: Request) -> Response:
        """The topics that the client may subscribe to, in the order of their names."""
        with self._counted():
            caller = await self._caller(request)
            asked = request.query_params
            filter = parse_filter(asked.get("filter", "**"))
            after, most = asked.get("after", ""), _number(asked.get("limit", str(MOST_LISTED)), MOST_LISTED)
            log, rights = self.server.core.log, caller.rights
            names = sorted(
                found.name
                for found in log.topics()
                if found.environment == caller.environment and found.name > after and matches(filter, found.name)
            )
            listed: list[dict[str, object]] = []
            for name in names:
                if len(listed) < most and (rights.admin or rights.may_subscribe(name)):
                    earliest, end = log.bounds(caller.environment, name) or (0, 0)
                    listed.append({"topic": name, "earliest": earliest, "end": end})
            return _json({"environment": caller.environment, "topics": listed})

    async def publish(self, request: Request) -> Response:
        """Publishes the events of the body."""
        with self._counted():
            caller = await self._caller(request)
            topic = parse_topic(_name(request))
            if not caller.rights.may_publish(topic):
                raise forbidden(f"{caller.client_id} may not publish to {topic}", ErrorCode.UNAUTHORIZED_PUBLISH)
            mode = publishing.mode_of(request.headers)
            self.bodies.check(request.headers)
            body = await self.bodies.read(request.receive)
            try:
                events = await self.bodies.parse(mode, request.headers, body)
                offsets = await publishing.publish(self.server, caller, topic, events)
            finally:
                self.bodies.free(len(body))
            answers = [{"topic": topic, "offset": offset} for offset in offsets]
            return _json(answers if mode == publishing.BATCHED else answers[0])

    async def subscribe(self, request: Request) -> Any:
        """Subscribes: server-sent events until either end has enough."""
        with self._counted():
            accepted = request.headers.get("accept", "*/*")
            if not any(_ACCEPTS_EVENTS.match(part) for part in accepted.split(",")):
                raise Problem(406, "a subscription is text/event-stream")
            caller = await self._caller(request)
            filter = parse_filter(_name(request))
            if not caller.rights.may_subscribe(filter):
                raise forbidden(f"{caller.client_id} may not subscribe to {filter}", ErrorCode.UNAUTHORIZED_SUBSCRIBE)
            if len(self._streams) >= self.options.max_streams:
                raise unavailable(f"{len(self._streams)} subscriptions are all that the server takes", 10.0)
            if request.method == "HEAD":
                return Response(media_type="text/event-stream")
            source = await self._source(request, caller, filter)
            beat = min(self.options.heartbeat_s, self.server.core.options.heartbeat_s)
            stream = EventStream(source, caller, beat, self.options.retry_s, self._streams.discard)
            self._streams.add(stream)
            if self._stopping:
                stream.end("the server is stopping: connect again soon")
            return stream

    async def _source(self, request: Request, caller: Caller, filter: str) -> Source:
        asked = request.query_params
        start = _start(asked.get("start"))
        position = asked.get("position", "").lower() in ("1", "true", "yes")
        if group := asked.get("group"):
            member = Member(self.server, caller, position=position)
            await member.join(filter, start, group)
            return member
        if start == "acknowledged":
            raise Problem(400, "acknowledged needs a group: alone, the reader keeps the place (Last-Event-ID)")
        tail = Tail(self.tails, caller.environment, filter, position=position)
        if token := request.headers.get("last-event-id") or asked.get("after"):
            tail.resume(token)
        else:
            tail.begin(start, self.options.max_topics)
        return tail

    # What all have in common

    @property
    def _stopping(self) -> bool:
        return self._closing or self.server.core.stopping

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._stopping:
            raise unavailable("the server is stopping: try again soon")
        if self._requests >= self.options.max_requests:
            raise unavailable("the server has too much to do: try again soon")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    async def _caller(self, request: Request) -> Caller:
        return await identify(self.server.core, request, self.options.hosts)


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type=JSON)


def _name(request: Request) -> str:
    """What stands behind `/topics/`, decoded with care: bytes that are no UTF-8 are not replaced but refused."""
    try:
        return unquote_to_bytes(request.scope["raw_path"]).decode().removeprefix("/topics/")
    except UnicodeDecodeError:
        raise Problem(400, "the topic in the path is not UTF-8") from None


def _number(text: str, most: int) -> int:
    if not _OFFSET.fullmatch(text):
        raise Problem(400, "limit is a number")
    return min(int(text), most)


def _start(text: str | None) -> Any:
    """An offset as a number; in a time, the `+` of its zone may have come as a space."""
    if text is None or text == "":
        return None
    return int(text) if _OFFSET.fullmatch(text) else parse_start(text.replace(" ", "+"))
