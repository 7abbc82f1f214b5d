"""Requests about what is in the log: topics, offsets, and records as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from echomesh.errors import BadTopic, HoleError, LogBehind, LogCorrupt, OffsetGone, OffsetsLost
from echomesh.frames import LENGTH_BYTES
from echomesh.mesh import checks, protocol
from echomesh.mesh.log_bodies import AskOffsets, AskTopics, Fetch, Fetched, Offsets, Topics, TopicState
from echomesh.mesh.protocol import Message
from echomesh.mesh.refusal import failed
from echomesh.topics import Matcher, parse_filter

if TYPE_CHECKING:
    from echomesh.log.stretch import Stretch
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.ports import LogPort
    from echomesh.mesh.session import Session

MOST_BYTES: Final = 4 << 20
LEAST_STRETCH: Final = 64 << 10
MOST_TOPICS: Final = 10_000
MOST_FILTERS: Final = 1_000
_T = TypeVar("_T")


def _at_once(log: LogPort, look: Callable[[], _T]) -> _T:
    """What is found at one moment: of a commit of stages, in a thread beside this one, all of its topics or none."""
    while True:
        moves = log.moves
        found = look()
        if log.moves == moves:
            return found


def topics(connection: Connection, message: Message, body: AskTopics, now: float) -> None:
    """The topics of the session's environment that its client may subscribe to."""
    session = checks.session_of(connection, body.client_id, body.session_id)
    if body.filters is not None and len(body.filters) > MOST_FILTERS:
        raise failed(f"Filters has at most {MOST_FILTERS} entries")
    matcher: Matcher[None] = Matcher()
    try:
        for filter in [body.filter] if body.filters is None else body.filters:
            matcher.add(parse_filter(filter), None)
    except BadTopic as error:
        raise failed(str(error)) from None
    log = connection.core.log

    def look() -> list[TopicState]:
        found = []
        for name in log.topics():
            if name.environment != session.environment or not matcher.match(name.name):
                continue
            if session.rights.admin or session.rights.may_subscribe(name.name):
                earliest, end = log.bounds(name.environment, name.name) or (0, 0)
                found.append(TopicState(name.name, earliest, end, name.level))
        return found

    connection.answer(message.command, message.seq, Topics(_at_once(log, look)))


def offsets(connection: Connection, message: Message, body: AskOffsets, now: float) -> None:
    """Where a topic begins and ends, or many of them."""
    session = checks.session_of(connection, body.client_id, body.session_id)
    log = connection.core.log
    if body.topics is not None:
        if len(body.topics) > MOST_TOPICS:
            raise failed(f"Topics has at most {MOST_TOPICS} entries: ask in several requests")
        names = body.topics
        many = _at_once(log, lambda: [_offsets(connection, session, name, body.time) for name in names])
        connection.answer(message.command, message.seq, Offsets(log.log_id, 0, 0, None, many))
        return
    found = _offsets(connection, session, body.topic, body.time)
    if found is None:
        found = (0, 0, None if body.time is None else 0)
    connection.answer(message.command, message.seq, Offsets(log.log_id, *found))


def _offsets(
    connection: Connection, session: Session, name: str, time_ns: int | None
) -> tuple[int, int, int | None] | None:
    topic = checks.readable(session, name)
    log = connection.core.log
    bounds = log.bounds(session.environment, topic)
    if bounds is None:
        return None
    at_time = None
    while time_ns is not None and at_time is None:
        try:
            at_time = log.offset_at(session.environment, topic, time_ns)
        except OffsetGone:
            continue  # retention was quicker, and the next look begins behind it
    return (*bounds, at_time)


def fetch(connection: Connection, message: Message, body: Fetch, now: float) -> None:
    """Records as they are stored."""
    session = checks.session_of(connection, body.client_id, body.session_id)
    topic = checks.readable(session, body.topic)
    log = connection.core.log
    bounds = log.bounds(session.environment, topic)
    if bounds is None:
        raise failed(f"no topic {topic} in {session.environment}")
    until = bounds[1] if body.until is None else min(body.until, bounds[1])
    if body.offset >= until:
        connection.answer(message.command, message.seq, Fetched(log.log_id, body.offset, body.offset))
        return
    wanted = MOST_BYTES if body.max_bytes is None else min(max(body.max_bytes, 1), MOST_BYTES)
    if body.unchecked and _sent(connection, message, session.environment, topic, body.offset, until, wanted):
        return
    try:
        records = log.read(session.environment, topic, body.offset, max_bytes=wanted, max_records=until - body.offset)
    except (OffsetsLost, LogCorrupt) as lost:
        behind = lost.last + 1
        why = "corrupt" if isinstance(lost, LogCorrupt) else "hole" if isinstance(lost, HoleError) else "gone"
        answer = Fetched(log.log_id, body.offset, behind, lost=(body.offset, behind), why=why)
    except LogBehind as error:
        raise failed(str(error)) from None
    else:
        raw = records.raw()
        head = protocol.fetched_head(message.seq, log.log_id, body.offset, records.next_offset, len(raw))
        _write(connection, head, raw)
        return
    connection.answer(message.command, message.seq, answer)


def _sent(
    connection: Connection, message: Message, environment: str, topic: str, offset: int, until: int, most: int
) -> bool:
    """Answers with a stretch of a file, if that is worth while."""
    log = connection.core.log
    found = log.stretch(environment, topic, offset, until, most)
    if found is None or len(found) < LEAST_STRETCH:
        return False
    stage = (found.shift, found.time_ns) if found.time_ns >= 0 else None
    _write(connection, protocol.fetched_head(message.seq, log.log_id, offset, found.until, len(found), stage), found)
    return True


def _write(connection: Connection, head: bytes, records: memoryview | Stretch) -> None:
    connection.write((len(head) + len(records)).to_bytes(LENGTH_BYTES, "big") + head)
    connection.write(records)
