"""Publishing over HTTP: the three modes of CloudEvents, bodies with a bound in size and time, answers from the disk."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from echomesh.errors import BadEvent, EchomeshError
from echomesh.events import Event
from echomesh.events.rules import is_json
from echomesh.mesh.codes import Status
from echomesh.mesh.http_problems import CLOSE, Problem, from_error, from_refusal, retry, unavailable
from echomesh.mesh.refusal import Refusal

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import Receive

    from echomesh.mesh.http import HttpOptions
    from echomesh.mesh.http_auth import Caller
    from echomesh.mesh.ports import Pending
    from echomesh.mesh.server import MeshServer

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
BINARY: Final = ""
LARGE_BYTES: Final = 64 << 10  # bodies from here on are looked at beside the event loop
_TEXT: Final = re.compile(r'text/[^;]+(\s*;\s*charset="?(utf-8|us-ascii)"?)?\s*', re.IGNORECASE)


class _Versioned(Struct, gc=False):
    specversion: Literal["1.0"]


# What is no list of events is refused at its first element, before millions of small ones take memory.
_check_batch: Final = msgspec.json.Decoder(list[_Versioned]).decode
_decode_batch: Final = msgspec.json.Decoder(list[Raw]).decode


class Bodies:
    """Bodies of requests while they come; all of them together have a bound too."""

    def __init__(self, options: HttpOptions, limit: int) -> None:
        self._options = options
        self._limit = limit
        self._beside = ThreadPoolExecutor(1, "echomesh-http-bodies")
        self.held = 0

    def check(self, headers: Headers) -> None:
        """Refuses by its head what would be refused anyway."""
        encoding = headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise Problem(415, "bodies come as they are: no Content-Encoding", headers={"Accept-Encoding": "identity"})
        if int(headers.get("content-length", "0")) > self._limit:
            raise self._too_large()

    async def read(self, receive: Receive) -> bytes:
        """The body, whole. Give its length back with `free`."""
        body = bytearray()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        more = True
        try:
            while more:
                patience = self._options.body_s + len(body) / self._options.body_rate
                async with asyncio.timeout_at(begun + patience):
                    message = await receive()
                if message["type"] == "http.disconnect":
                    raise Problem(400, "the connection ended before the body")
                chunk = message.get("body", b"")
                more = message.get("more_body", False)
                self.held += len(chunk)
                body += chunk
                self._check(len(body))
        except TimeoutError:
            self.held -= len(body)
            raise Problem(408, "the body came too slowly", headers=CLOSE) from None
        except Problem:
            self.held -= len(body)
            raise
        return bytes(body)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise self._too_large()
        if self.held > self._options.held_bytes:
            raise unavailable("the server has too many bodies to read: try again soon")

    async def parse(self, mode: str, headers: Headers, body: bytes) -> list[bytes]:
        """The events in a body. Large ones are looked at one after the other, and others have their turn meanwhile."""
        most = self._options.max_events
        if len(body) < LARGE_BYTES:
            return parse(mode, headers, body, most)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._beside, parse, mode, headers, body, most)

    def close(self) -> None:
        """No more large ones."""
        self._beside.shutdown(wait=False)

    def free(self, size: int) -> None:
        """A body is dealt with."""
        self.held -= size

    def _too_large(self) -> Problem:
        return Problem(413, f"a body has at most {self._limit} bytes", headers=CLOSE)


def mode_of(headers: Headers) -> str:
    """`STRUCTURED`, `BATCHED` or `BINARY`; 415 for what is none of them."""
    content_type = headers.get("content-type", "")
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    if media_type in (STRUCTURED, BATCHED):
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
                raise Problem(415, "CloudEvents in JSON are UTF-8")
        return media_type
    if media_type.startswith("application/cloudevents"):
        raise Problem(415, f"of the event formats JSON alone is known here: {STRUCTURED} or {BATCHED}")
    if not any(name.startswith("ce-") for name in headers):
        raise Problem(
            415,
            f"send {STRUCTURED}, {BATCHED}, or the headers ce-specversion, ce-id, ce-source and ce-type with any body",
        )
    return BINARY


def parse(mode: str, headers: Headers, body: bytes, most: int) -> list[bytes]:
    """The events in a request, as they are stored; `BadEvent` for one that breaks the standard."""
    if mode == STRUCTURED:
        return [Event.from_json(body).encode()]
    if mode == BINARY:
        return [_as_text(Event.from_http(_attributes(headers), body)).encode()]
    try:
        count = len(_check_batch(body))
        if count > most:
            raise Problem(413, f"a batch has at most {most} events, not {count}")
        found = _decode_batch(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Problem(400, f"no batch of events: {error}") from None
    return [_event(number, raw) for number, raw in enumerate(found)]


def _event(number: int, raw: Raw) -> bytes:
    try:
        return Event.from_json(bytes(raw)).encode()
    except BadEvent as error:
        raise Problem(400, f"nothing was published, for event {number} of the batch: {error}") from None


def _as_text(event: Event) -> Event:
    """The event with text as data where its type says so: headers can't tell text from bytes, but readers can."""
    kind, payload = event.datacontenttype, event.payload
    if kind is None or not isinstance(payload, bytes) or not _TEXT.fullmatch(kind) or is_json(kind):
        return event
    try:
        return msgspec.structs.replace(event, data=payload.decode())
    except UnicodeDecodeError:
        return event


def _attributes(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers.items():
        if name == "content-type" or name.startswith("ce-"):
            if name in found:
                raise Problem(400, f"the header {name} is there twice")
            try:
                found[name] = value.encode("latin-1").decode()
            except UnicodeDecodeError:
                raise Problem(400, f"the header {name} is not UTF-8") from None
    return found


async def publish(server: MeshServer, caller: Caller, topic: str, events: list[bytes]) -> list[int]:
    """Appends the events one behind the other; their offsets, once they are on disk."""
    core = server.core
    loop = asyncio.get_running_loop()
    if not events:
        return []
    limit = caller.rights.publishes_per_second
    if limit is not None and (wait := core.rate(caller.client_id, limit).take(loop.time(), len(events))):
        raise Problem(
            429,
            f"at most {limit:g} publishes a second: try again in {wait:.3f} s",
            status=Status.TPS_OVERLOAD,
            headers=retry(wait),
        )
    try:
        core.topics.admit(caller.environment, topic)
    except Refusal as refusal:
        raise from_refusal(refusal) from None
    on_disk: asyncio.Future[Any] = loop.create_future()

    def settled(pending: Pending) -> None:
        try:
            offsets = pending.result()
        except Exception as error:
            if not on_disk.done():
                on_disk.set_exception(error)
        else:
            core.counts.published += len(events)
            core.grew(caller.environment, topic)
            if not on_disk.done():
                on_disk.set_result(offsets)

    try:
        core.when_done(core.log.append_many(topic, events, environment=caller.environment), settled)
        server.flush_soon()
        return list(await on_disk)
    except EchomeshError as error:
        raise from_error(error) from None
