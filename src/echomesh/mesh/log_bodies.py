"""The bodies of requests about what is in the log: topics, offsets, and records as they are stored."""

from __future__ import annotations

from echomesh.mesh.bodies import Body


class AskTopics(Body):
    """Which topics there are, of those that match the filter, or one of `filters`."""

    client_id: str
    session_id: str
    filter: str = "**"
    filters: list[str] | None = None


class TopicState(Body):
    """One topic, as TOPICS tells it."""

    topic: str
    earliest: int
    latest: int
    level: str = "disk"


class Topics(Body):
    """The topics of the session's environment, all of one moment."""

    topics: list[TopicState]


class AskOffsets(Body):
    """Where a topic begins and ends, and which offset was the first at `time` (nanoseconds since 1970) or later.

    With `topics`, the same for many of them.
    """

    client_id: str
    session_id: str
    topic: str = ""
    time: int | None = None
    topics: list[str] | None = None


class Offsets(Body):
    """`latest` is the offset that the next event gets; `at_time` answers `time`.

    `many` answers `topics`, in their order: (earliest, latest, at time), and nothing for a topic that is not there.
    """

    log_id: bytes
    earliest: int
    latest: int
    at_time: int | None = None
    many: list[tuple[int, int, int | None] | None] | None = None


class Fetch(Body):
    """Records as they are stored, from `offset` on and before `until`; `unchecked` is for who checks their sums."""

    client_id: str
    session_id: str
    topic: str
    offset: int
    until: int | None = None
    max_bytes: int | None = None
    unchecked: bool = False


class Fetched(Body):
    """`records` is a run of stored records (see the format of the log), or `lost` says which can't be had.

    `why` is then `gone` (retention), `hole` (an unclean stop) or `corrupt`. With `shift` and `time` they are a stage's.
    """

    log_id: bytes
    offset: int
    next_offset: int
    records: bytes = b""
    lost: tuple[int, int] | None = None
    why: str | None = None
    shift: int | None = None
    time: int | None = None
