"""Errors of the mesh: what a server answered, and connections that broke."""

from __future__ import annotations

from typing import Final

from echomesh.errors.general import EchomeshError, short


class MeshError(EchomeshError):
    """A session could not do what was asked."""


class BadMessage(MeshError):
    """Bytes that are no message of the EventMesh protocol; `seq` and `command` are its own, where readable."""

    command = 0

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


class SessionBusy(MeshError):
    """More is in flight than the session may have; `await session.room()` before the next."""

    def __init__(self, events: int, waiting_bytes: int) -> None:
        self.events = events
        self.waiting_bytes = waiting_bytes
        super().__init__(f"{events} publishes of {waiting_bytes} bytes wait for their answers: await some of them")


class TakenOver(MeshError):
    """A newer session of the same client has subscribed to `topics`: they go there now."""

    def __init__(self, topics: list[str]) -> None:
        self.topics = topics
        super().__init__(
            f"a newer session of this client id took over {short(topics)}: give each process a client id of its own, "
            "or let them share the events as a group"
        )


class WrongEventLoop(MeshError, RuntimeError):
    """A session is used from another event loop or thread than the one that it began in."""

    def __init__(self) -> None:
        super().__init__(
            "this session belongs to another event loop: make a session in each event loop, or use "
            "echomesh.sync.session, which is for any number of threads"
        )


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


class LoginBusy(MeshError):
    """So many passwords wait to be checked that a server takes no more; try again soon."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        super().__init__(f"{waiting} passwords wait to be checked: try again in a few seconds")


class BadAccessFile(MeshError):
    """The access file can't be used; what was in force stays in force."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class StateTooNew(MeshError):
    """A state file of a version that this echomesh does not know."""

    def __init__(self, path: str, version: int, known: int) -> None:
        self.path = path
        self.version = version
        self.known = known
        super().__init__(
            f"{path} is of version {version}, and this echomesh knows {known}: run the newer echomesh that wrote it"
        )


class BadConfig(MeshError):
    """A configuration that can't be used; the message names the key and what it takes."""

    def __init__(self, reason: str, key: str = "") -> None:
        self.key = key
        super().__init__(reason)


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
