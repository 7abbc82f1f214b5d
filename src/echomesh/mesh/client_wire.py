"""Messages of a client that come often, read in one pass; and what a refusal is in Python."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from echomesh.errors import FencedWriter, LogError, RequestFailed, StageMissing, StaleWriter
from echomesh.errors.mesh import BY_CODE, RateLimited
from echomesh.mesh.bodies import Figures, Server
from echomesh.mesh.codes import Status
from echomesh.mesh.protocol import Message, encode_value


class HotBody(Struct, rename="pascal", gc=False):
    """What the answers to publishes and the deliveries have in their bodies."""

    offset: int | None = None
    topic: str = ""
    cloud_events: list[Raw] = []
    lost: tuple[int, int] | None = None
    tries: int | None = None
    bridge_servers: list[Server] = []


class HotMessage(Struct, array_like=True, gc=False):
    """A message whose body is read as well, as far as it is a hot one."""

    magic: Literal["EventMesh"]
    version: Literal["0000"]
    command: int
    status: int | None
    description: str | None
    error: str | None
    seq: str
    body: HotBody | None = None


_figures: Final = msgspec.msgpack.Decoder(Figures | None).decode
_STAGE_ERRORS: Final[dict[str | None, type[LogError]]] = {
    "STALE_WRITER": StaleWriter,
    "FENCED_WRITER": FencedWriter,
    "STAGE_MISSING": StageMissing,
}
decode_hot: Final = msgspec.msgpack.Decoder(HotMessage).decode


def publish_body(client_id: str, session_id: str, topic: str, server: Server | None) -> bytes:
    """The body of a publish up to where the event's bytes follow."""
    entries: dict[str, object] = {"ClientId": client_id, "SessionId": session_id, "Topic": topic}
    if server is not None:
        entries.update(Urn=server.urn, Port=server.port)
    body = encode_value(entries)
    # The map gets one entry more; it stays a small one.
    return bytes((body[0] + 1,)) + body[1:] + encode_value("CloudEvent")


def failure(status: int | None, error: str | None, description: str | None) -> RequestFailed:
    """What a refusal is in Python."""
    kind = BY_CODE.get(error or "")
    if kind is None:
        kind = RateLimited if status == Status.TPS_OVERLOAD else RequestFailed
    return kind(description or "")


def stage_error(message: Message) -> LogError | None:
    """What a refusal of a staged publish is in Python, with its figures; None for any other refusal."""
    kind = _STAGE_ERRORS.get(message.error)
    if kind is None:
        return None
    try:
        body = _figures(message.body)
        return kind(*body.figures) if body is not None else None
    except (msgspec.MsgspecError, TypeError):
        return None
