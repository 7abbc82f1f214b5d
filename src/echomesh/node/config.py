"""The configuration of a node: every key, what it takes and means, and what it is when nobody says anything."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from echomesh.log.options import LogOptions
from echomesh.mesh.codes import PORT
from echomesh.mesh.options import MeshOptions
from echomesh.node.address import Address
from echomesh.node.keys import BridgeLogin, address, count, file, flag, logins, size, span, text, texts

ACCESS_FILE: Final = "access.toml"
PASSWORD_VARIABLE: Final = "ECHOMESH_BRIDGE_PASSWORD"
LISTEN: Final = Address("127.0.0.1", PORT)

_LOG = LogOptions()
_MESH = MeshOptions()


@dataclass(frozen=True)
class HttpConfig:
    """HTTP beside the mesh: events are posted, and subscriptions are server-sent events. Needs echomesh[node]."""

    listen: Annotated[
        Address | None,
        address(empty="no HTTP"),
        "Where HTTP is served; with the certificate of [tls], HTTPS.",
    ] = None
    origins: Annotated[
        tuple[str, ...],
        texts("https://shop.example"),
        "Pages of these origins may use it from a browser (CORS).",
    ] = ()
    hosts: Annotated[
        tuple[str, ...],
        texts("mesh.example"),
        "Names besides localhost by which a server without an access file may be called.",
    ] = ()


@dataclass(frozen=True)
class TlsConfig:
    """TLS 1.3 for those who connect to this server."""

    certificate: Annotated[
        Path | None,
        file("/etc/echomesh/server.pem", empty="no TLS"),
        "The certificate of this server, and those between it and its CA behind it (PEM). With it, all must use TLS.",
    ] = None
    key: Annotated[
        Path | None,
        file("/etc/echomesh/server.key", empty="it stands in the same file"),
        "The certificate's private key (PEM).",
    ] = None
    client_ca: Annotated[
        Path | None,
        file("/etc/echomesh/clients-ca.pem", empty="no certificates of clients"),
        "Who connects must show a certificate that one of these CAs has signed (PEM), besides the password.",
    ] = None


@dataclass(frozen=True)
class BridgesConfig:
    """How this server and others reach each other, for the bridges that `echomesh bridge add` makes."""

    urn: Annotated[
        str | None,
        text("mesh-1.example", empty="the listen address, or this host's name when that is every interface"),
        "The name or address by which other servers reach this one; a publish to this server alone names it too.",
    ] = None
    port: Annotated[
        int | None,
        count(1, 65535, empty="the listen port"),
        "The port that goes with it, where that is another one.",
    ] = None
    client: Annotated[
        str,
        text("mesh-1"),
        "The client id by which this server logs in at others.",
    ] = "server"
    password_file: Annotated[
        Path | None,
        file("/etc/echomesh/bridge-password", empty=f"the variable {PASSWORD_VARIABLE}"),
        "A file whose first line is the password for that.",
    ] = None
    logins: Annotated[
        tuple[BridgeLogin, ...],
        logins(),
        "Other servers where it is somebody else, each with `client` and `password_file`: "
        'logins = { "mesh-2.example:4889" = { client = "mesh-1", password_file = "secret" } }. '
        "What `echomesh bridge add --as` said counts more.",
    ] = ()
    tls: Annotated[
        bool,
        flag(),
        "Whether to connect with TLS. Who asks for a certificate is shown the one of [tls].",
    ] = False
    ca: Annotated[
        Path | None,
        file("/etc/echomesh/ca.pem", empty="those that this machine trusts"),
        "The CAs that the other servers' certificates come from (PEM).",
    ] = None


@dataclass(frozen=True)
class LogConfig:
    """The topic log in the data directory."""

    retention_time: Annotated[
        float | None,
        span(1.0, empty="for ever"),
        "Events are kept so long. Whole segments are removed, the oldest first.",
    ] = None
    retention_bytes: Annotated[
        int | None,
        size(1 << 20, empty="all"),
        "So much of each topic is kept; the segment in use stays in any case.",
    ] = None
    segment_bytes: Annotated[
        int,
        size(1 << 16, 1 << 30),
        "The events of a topic stand in files of about this size, the segments.",
    ] = _LOG.segment_bytes
    duplicate_events: Annotated[
        int,
        count(0, 1 << 30),
        "An event whose source and id are among the last so many of its topic is not stored again, ...",
    ] = _LOG.duplicate_events
    duplicate_time: Annotated[
        float,
        span(0.0),
        "... unless that one is older than this.",
    ] = _LOG.duplicate_s
    duplicate_bytes: Annotated[
        int,
        size(),
        "Memory for that, for all topics together; with 0, no event is a duplicate.",
    ] = _LOG.duplicate_bytes
    kept_bytes: Annotated[
        int,
        size(16 << 20, 1 << 36),
        "Memory for events that are on disk in the journal and not yet in the segments; less of it costs speed.",
    ] = _LOG.kept_bytes
    memory_topic_bytes: Annotated[
        int,
        size(1 << 20),
        "So much is kept of each topic of the level `none`, which is in memory alone.",
    ] = _LOG.memory_topic_bytes
    parquet_after: Annotated[
        float | None,
        span(1.0, empty="never"),
        "Full segments older than this become Parquet files, which are smaller, where PyArrow is installed.",
    ] = _LOG.parquet_after_s

    def options(self) -> LogOptions:
        """The same, for the log."""
        return LogOptions(
            segment_bytes=self.segment_bytes,
            retention_bytes=self.retention_bytes,
            retention_s=self.retention_time,
            parquet_after_s=self.parquet_after,
            kept_bytes=self.kept_bytes,
            memory_topic_bytes=self.memory_topic_bytes,
            duplicate_events=self.duplicate_events,
            duplicate_s=self.duplicate_time,
            duplicate_bytes=self.duplicate_bytes,
        )


@dataclass(frozen=True)
class MeshConfig:
    """Limits and times of sessions."""

    heartbeat: Annotated[
        float,
        span(0.1, 3600.0),
        "A client that is not heard of for three times this is gone; clients are told, and say something in time.",
    ] = _MESH.heartbeat_s
    hello_within: Annotated[
        float,
        span(0.1, 3600.0),
        "Who connects has so long to say who it is.",
    ] = _MESH.stranger_s
    strangers_bytes: Annotated[
        int,
        size(1 << 16, 1 << 36),
        "What all those have sent together who have not said yet who they are. Beyond it, those that began first are "
        "cut off.",
    ] = _MESH.strangers_bytes
    least_rate: Annotated[
        int,
        size(1, 1 << 30),
        "Bytes a second of a message that takes longer than three heartbeats to come; who is slower is cut off.",
    ] = _MESH.least_rate
    max_connections: Annotated[
        int,
        count(1, 1_000_000),
        "More are refused.",
    ] = _MESH.max_connections
    max_filters: Annotated[
        int,
        count(1, 1_000_000),
        "Topics and filters of one session, and of one subscriber over all its sessions.",
    ] = _MESH.max_filters
    max_subscribers: Annotated[
        int,
        count(1, 10_000_000),
        "Clients and groups whose subscriptions are kept, in each environment.",
    ] = _MESH.max_subscribers
    max_cursors: Annotated[
        int,
        count(1, 100_000_000),
        "Places of subscribers in topics, one for each topic that a client or group has subscribed to. At that number "
        "new subscriptions and new topics are refused.",
    ] = _MESH.max_cursors
    max_topics: Annotated[
        int,
        count(1, 10_000_000),
        "Topics in each environment; a publish to yet another one is refused.",
    ] = _MESH.max_topics
    max_stages: Annotated[
        int,
        count(1, 100_000),
        "Stages of bulk writers such as Spark that are open at once; each is an open file.",
    ] = _MESH.max_stages
    max_origins: Annotated[
        int,
        count(1, 1_000_000),
        "Other servers whose events come over bridges, near and far; those of yet another one are refused.",
    ] = _MESH.max_origins
    frame_bytes: Annotated[
        int,
        size(1 << 16, 1 << 30),
        "The largest message, and so about the largest event.",
    ] = _MESH.frame_bytes
    credit_bytes: Annotated[
        int,
        size(1 << 10, 1 << 30),
        "Events that a session may have without acknowledging them.",
    ] = _MESH.credit_bytes
    in_flight_bytes: Annotated[
        int,
        size(1 << 10, 1 << 30),
        "Publishes of one connection that may wait for the disk.",
    ] = _MESH.in_flight_bytes
    batch_events: Annotated[
        int,
        count(1, 10_000),
        "Events in one message to a client, where it does not say how many.",
    ] = _MESH.batch_events
    batch_bytes: Annotated[
        int,
        size(1 << 10, 1 << 26),
        "Bytes of events in one message to a client.",
    ] = _MESH.batch_bytes
    max_tries: Annotated[
        int,
        count(1, 1000),
        "An event that was delivered so often and refused each time goes to the topic dead/TOPIC.",
    ] = _MESH.max_tries
    retry_after: Annotated[
        float,
        span(0.0, 3600.0),
        "A refused event comes again after this, where the client does not say when.",
    ] = _MESH.retry_s

    def options(self, urn: str, port: int) -> MeshOptions:
        """The same, for a server that others reach there."""
        return MeshOptions(
            frame_bytes=self.frame_bytes,
            stranger_s=self.hello_within,
            strangers_bytes=self.strangers_bytes,
            heartbeat_s=self.heartbeat,
            least_rate=self.least_rate,
            credit_bytes=self.credit_bytes,
            batch_events=self.batch_events,
            batch_bytes=self.batch_bytes,
            in_flight_bytes=self.in_flight_bytes,
            max_tries=self.max_tries,
            retry_s=self.retry_after,
            max_connections=self.max_connections,
            max_filters=self.max_filters,
            max_subscribers=self.max_subscribers,
            max_topics=self.max_topics,
            max_cursors=self.max_cursors,
            max_stages=self.max_stages,
            max_origins=self.max_origins,
            urn=urn,
            port=port,
        )


@dataclass(frozen=True)
class Config:
    """The configuration of a node."""

    data: Annotated[
        Path | None,
        file("/var/lib/echomesh", empty="$XDG_DATA_HOME/echomesh, or ~/.local/share/echomesh"),
        "The directory of the log and of all else that must survive; it is made when there is none.",
    ] = None
    listen: Annotated[
        Address,
        address(),
        "Where clients and other servers connect; 0.0.0.0 is every interface.",
    ] = LISTEN
    access: Annotated[
        Path | None,
        file("/etc/echomesh/access.toml", empty=f"{ACCESS_FILE} in the data directory"),
        "Who may what; `echomesh clients` writes it. Without such a file everybody on this machine may everything, "
        "and nobody else can connect.",
    ] = None
    http: HttpConfig = field(default_factory=HttpConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    bridges: BridgesConfig = field(default_factory=BridgesConfig)
    log: LogConfig = field(default_factory=LogConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)

    @property
    def directory(self) -> Path:
        """The data directory."""
        return default_directory() if self.data is None else self.data

    @property
    def access_file(self) -> Path | None:
        """The access file: the one that is named, or the data directory's own if there is one."""
        own = self.directory / ACCESS_FILE
        return self.access if self.access is not None else own if own.exists() else None

    @property
    def urn(self) -> str:
        """What other servers call this one."""
        host = self.listen.host
        return self.bridges.urn or (socket.gethostname() if host in ("", "0.0.0.0", "::") else host)


def default_directory() -> Path:
    """Where a node of this user has its data."""
    home = os.environ.get("XDG_DATA_HOME", "")
    # The standard wants relative ones to be ignored.
    base = Path(home) if home.startswith("/") else Path("~/.local/share").expanduser()
    return base / "echomesh"
