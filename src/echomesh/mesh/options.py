"""What can be chosen for a server of the mesh."""

from __future__ import annotations

from dataclasses import dataclass

from echomesh.frames import MAX_FRAME, STRANGER_FRAME


@dataclass(frozen=True)
class MeshOptions:
    """Limits and times; the ones given suit a server on one machine."""

    frame_bytes: int = MAX_FRAME
    stranger_bytes: int = STRANGER_FRAME  # of a frame, before HELLO succeeded
    strangers_bytes: int = 64 << 20  # of what all those have sent who have not said HELLO
    stranger_s: float = 10.0  # to say HELLO
    heartbeat_s: float = 10.0  # three of these in silence end a connection
    least_rate: int = 4 << 10  # bytes a second of a frame that takes longer than that
    credit_bytes: int = 1 << 20  # un-acknowledged, for each session
    batch_events: int = 128  # in one message, where the client does not say
    batch_bytes: int = 64 << 10
    in_flight_bytes: int = 4 << 20  # of publishes that wait for the disk, for each connection
    max_tries: int = 5  # deliveries of an event that is refused each time, before it goes to the dead letters
    retry_s: float = 1.0  # until such an event comes again, where the client does not say
    checkpoint_s: float = 5.0  # how often it is kept which events of other servers are here
    max_connections: int = 20_000
    max_filters: int = 1_000  # of one session, and of one subscriber over all its sessions
    max_subscribers: int = 100_000  # clients and groups with subscriptions that are kept, for each environment
    max_topics: int = 20_000  # for each environment
    max_cursors: int = 1_000_000  # places of subscribers in topics that are kept, for all together
    max_stages: int = 1_024  # open at once, for all sessions together
    max_origins: int = 1_000  # other servers whose events come over bridges
    urn: str = "localhost"  # what other servers call this one
    port: int = 4889
