"""The bodies of messages, by command. Property names on the wire are the protocol's (`ClientId`).

Properties that nobody knows are ignored, so that both ends can grow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from echomesh.mesh.codes import PORT, Purpose

if TYPE_CHECKING:
    Bytes = bytes | memoryview
else:
    Bytes = memoryview  # when they come, they are part of the message


class Body(Struct, rename="pascal", gc=False):
    """The properties of a command."""


class Figures(Body):
    """Goes with some errors: what a program needs to know of them."""

    figures: list[Any]


class Server(Struct, rename="pascal", gc=False, frozen=True):
    """Where an EventMesh server is reached."""

    urn: str
    port: int = PORT


class Hello(Body):
    """Begins a session, by a password or a ticket.

    `urn`, `port` and `log_id` are those of a calling server, `topics` those of its bridge.
    """

    client_id: str
    environment: str = "TST"
    urn: str | None = None
    port: int | None = None
    password: str | None = None
    buffer_cloud_events: int | None = None
    purpose: int = Purpose.SUBSCRIBE
    is_server: bool = False
    pid: int | None = None
    log_id: bytes | None = None
    topics: list[str] | None = None
    ticket: str | None = None


class Welcome(Body):
    """The session that HELLO made; `log_id` names the server's data directory, for those who keep offsets."""

    session_id: str
    log_id: bytes | None = None
    heartbeat_seconds: float | None = None
    frame_bytes: int | None = None


class Subscribe(Body):
    """Subscribes to topics or filters.

    `start` is `now`, `acknowledged`, `earliest`, `last`, an offset, or a time (a MessagePack timestamp or RFC 3339
    text); without it a known subscription goes on where it was, and a new one begins now.
    """

    client_id: str
    session_id: str
    topics: list[str]
    start: Any = None
    group: str | None = None


class Unsubscribe(Body):
    """Ends subscriptions and forgets where they were."""

    client_id: str
    session_id: str
    topics: list[str]
    group: str | None = None


class Deliver(Body):
    """Events for a client: consecutive from `offset` on; or `lost`, the range [from, to) that can't be had any more."""

    environment: str
    topic: str
    offset: int
    cloud_events: list[Raw] = []
    bridge_servers: list[Server] = []
    lost: tuple[int, int] | None = None
    tries: int | None = None


class Ack(Body):
    """Everything before `offset` was dealt with; with `first`, which groups need, only what is not before that.

    From a server it means: is on disk there, and `origin` names the log.
    """

    client_id: str
    session_id: str
    environment: str
    topic: str
    offset: int
    bridge_servers: list[Server] = []
    is_client: bool = True
    first: int | None = None
    origin: bytes | None = None


class Nack(Body):
    """The event at `offset` could not be dealt with: deliver it again after `delay` seconds."""

    client_id: str
    session_id: str
    topic: str
    offset: int
    delay: float | None = None
    reason: str | None = None


class Forward(Body):
    """Events for a server, consecutive offsets of one origin: the log that they were first published to.

    From the origin itself, `since` says that there are no others in [since, offset). `cloud_events` is an array.
    """

    client_id: str
    session_id: str
    environment: str
    topic: str
    origin: bytes
    offset: int
    cloud_events: Raw
    bridge_servers: list[Server] = []
    since: int | None = None


class Publish(Body, omit_defaults=True):
    """Publishes one event; with `urn` to that server alone. Between servers, `environment` and `hops` are told too."""

    client_id: str
    session_id: str
    topic: str
    cloud_event: Raw
    urn: str | None = None
    port: int | None = None
    environment: str | None = None
    hops: int = 0


class Published(Body):
    """Where the event is in the topic's log."""

    offset: int


class Nacked(Body):
    """What became of a refused event: its `tries` so far; when `dead` it is a dead letter now, and dealt with."""

    tries: int
    dead: bool = False


class Disconnect(Body):
    """Ends a session."""

    client_id: str
    session_id: str


class AddBridge(Body):
    """Bridges to another server; `topics` are filters, all by default. `login` is who this server is there."""

    urn: str
    port: int | None = None
    client_id: str | None = None
    session_id: str | None = None
    topics: list[str] | None = None
    login: str | None = None
    password: str | None = None


class RemoveBridge(Body):
    """Ends a bridge."""

    urn: str
    port: int | None = None
    client_id: str | None = None
    session_id: str | None = None


class InSession(Body):
    """A request without properties of its own."""

    client_id: str
    session_id: str


class BridgeState(Body):
    """One bridge, as BRIDGES tells it."""

    urn: str
    port: int
    active: bool
    topics: list[str]
    behind: int = 0
    reason: str = ""


class Bridges(Body):
    """All bridges of a server."""

    bridges: list[BridgeState]


class AskTicket(Body):
    """Asks for a ticket: `right` is `read` or `stage`, `filters` say for which topics, all that one may by default."""

    client_id: str
    session_id: str
    right: str
    filters: list[str] | None = None


class Ticket(Body):
    """A ticket, and how long it holds."""

    ticket: str
    seconds: float


class Stage(Body):
    """Rows for a staged publish; `done` ends the stage.

    `topics` and `cloud_events` go together, one by one. Or `records` are rows as they stand in the file of a stage, and
    `topics` those that they name for the first time, in the order of their numbers. They are the last, for `parts`.
    """

    client_id: str
    session_id: str
    writer: str
    epoch: int
    run: str
    part: int
    stage: str | None = None
    topics: list[str] = []
    cloud_events: list[Raw] = []
    done: bool = False
    records: Bytes | None = None


class Staged(Body):
    """The stage's name, for the commit, and its rows so far; once it is done, the checksum of them all."""

    stage: str
    rows: int
    checksum: int | None = None


class Commit(Body):
    """Makes stages part of their topics, all or none.

    `rows` and `checksums` are what each stage has to have. With `republish` an epoch that is older than the last one is
    not refused: the writer goes on from there.
    """

    client_id: str
    session_id: str
    writer: str
    epoch: int
    run: str
    stages: list[str]
    rows: list[int] | None = None
    checksums: list[int] | None = None
    republish: bool = False


class CommittedStages(Body):
    """What was committed, the same however often it is asked; `repeated` when it had been done before."""

    epoch: int
    run: str
    rows: int
    repeated: bool = False


class Abort(Body):
    """Drops the stages of an epoch, or of one run in it."""

    client_id: str
    session_id: str
    writer: str
    epoch: int
    run: str | None = None


class Route(Body):
    """A server that can be reached, and the logs on the way there, the nearest first."""

    urn: str
    port: int
    way: list[bytes]


class Routes(Body):
    """All servers that the sender of this can reach, itself included."""

    routes: list[Route]


class Notice(Body):
    """What a server tells without being asked: `kind` is `taken-over` (with topics) or `stopping`."""

    kind: str
    topics: list[str] = []
