"""Errors of the mesh: what a server answered, and connections that broke."""

from __future__ import annotations

from typing import Final

from echomesh.errors.general import EchomeshError, short


class MeshError(EchomeshError):
    """A session could not do what was asked."""


class BadMessage(MeshError):
    """Bytes that are no message of the EventMesh protocol; `seq` is its number, where it could be read."""

    def __init__(self, reason: str, seq: str = "") -> None:
        self.reason = reason
        self.seq = seq
        super().__init__(reason)


class FrameTooLarge(BadMessage):
    """A message over the limit of the connection."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"a message of {size} bytes is over the limit of {limit}")

    def __reduce__(self) -> tuple[type[FrameTooLarge], tuple[int, int]]:
        return FrameTooLarge, (self.size, self.limit)


class ConnectionLost(MeshError, ConnectionError):
    """The connection to the server broke, or could not be made."""


class SessionEnded(MeshError):
    """The session was closed, here or by the server; `connect` again for a new one."""


class MeshTimeout(MeshError, TimeoutError):
    """The server did not answer in time; it may still do what was asked."""


class RequestFailed(MeshError):
    """The server refused a request; `description` is what it said."""

    error = ""

    def __init__(self, description: str) -> None:
        self.description = description
        super().__init__(short_text(description) or self.error)


class NoActiveSession(RequestFailed):
    """The session is unknown to the server, or closed."""

    error = "NO_ACTIVE_SESSION"


class NotAuthorized(RequestFailed):
    """Unknown client or wrong password, or a right that the client does not have."""

    error = "NOT_AUTHORIZED"


class NoBridgeServer(RequestFailed):
    """The server named is neither this one nor reachable over its bridges."""

    error = "NO_BRIDGE_SERVER"


class InvalidUrl(RequestFailed):
    """The address of a bridge is malformed."""

    error = "INVALID_URL"


class InvalidClient(RequestFailed):
    """The session belongs to another client."""

    error = "INVALID_CLIENT"


class InvalidSeq(RequestFailed):
    """An empty sequence number, or one that is in flight already."""

    error = "INVALID_SEQ"


class InvalidBridge(RequestFailed):
    """Nobody is there to bridge to, it speaks no EventMesh, or it is the server itself."""

    error = "INVALID_BRIDGE"


class BridgeNotActive(RequestFailed):
    """The bridge to the server named is down."""

    error = "BRIDGE_NOT_ACTIVE"


class BridgeExists(RequestFailed):
    """There is a bridge to that server already."""

    error = "BRIDGE_EXISTS"


class UnknownBridge(RequestFailed):
    """The way of an acknowledgement names a bridge that the server does not have."""

    error = "UNKNOWN_BRIDGE"


class UnauthorizedPublish(RequestFailed):
    """The session is no publisher, or its client may not publish there."""

    error = "UNAUTHORIZED_PUBLISH"


class UnauthorizedSubscribe(RequestFailed):
    """The session is no subscriber, or its client may not subscribe there."""

    error = "UNAUTHORIZED_SUBSCRIBE"


class RateLimited(RequestFailed):
    """More publishes a second than the client may make."""


class BadAccessFile(MeshError):
    """The access file can't be used; what was in force stays in force."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class BadConfig(MeshError):
    """A configuration that can't be used; the message names the key and what it takes."""


BY_CODE: Final[dict[str, type[RequestFailed]]] = {
    kind.error: kind
    for kind in (
        NoActiveSession,
        NotAuthorized,
        NoBridgeServer,
        InvalidUrl,
        InvalidClient,
        InvalidSeq,
        InvalidBridge,
        BridgeNotActive,
        BridgeExists,
        UnknownBridge,
        UnauthorizedPublish,
        UnauthorizedSubscribe,
    )
}


def short_text(text: str) -> str:
    """A sentence from elsewhere, cut where it gets too long to print."""
    return text if len(text) <= 400 else short(text[:400])
