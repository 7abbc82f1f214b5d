"""Whether a request may be made: its session, its client, its purpose, its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echomesh.errors import BadEvent, BadTopic
from echomesh.events import Event
from echomesh.mesh.codes import Command, ErrorCode, Purpose, Status
from echomesh.mesh.refusal import Refusal, failed, forbidden
from echomesh.native import mesh_event
from echomesh.topics import parse_topic

if TYPE_CHECKING:
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.session import Session

MOST_REMEMBERED: Final = 4096


def session_of(connection: Connection, client_id: str | None, session_id: str | None) -> Session:
    """The session that a request names, which must be the one of its connection and client."""
    session = connection.session
    if session is None or session.id != session_id:
        other = connection.core.sessions.get(session_id or "")
        if other is not None and other.client_id != client_id:
            raise failed("the session is another client's", ErrorCode.INVALID_CLIENT)
        raise failed("no such session here: say HELLO first", ErrorCode.NO_ACTIVE_SESSION)
    if session.client_id != client_id:
        raise failed("the session is another client's", ErrorCode.INVALID_CLIENT)
    return session


def publisher(connection: Connection, client_id: str, session_id: str) -> Session:
    """The session of a request to publish."""
    session = session_of(connection, client_id, session_id)
    if session.purpose is not Purpose.PUBLISH:
        raise forbidden("the session is one that subscribes", ErrorCode.UNAUTHORIZED_PUBLISH)
    return session


def subscriber(connection: Connection, client_id: str, session_id: str) -> Session:
    """The session of a request to subscribe."""
    session = session_of(connection, client_id, session_id)
    if session.purpose is not Purpose.SUBSCRIBE:
        raise forbidden("the session is one that publishes", ErrorCode.UNAUTHORIZED_SUBSCRIBE)
    return session


def admin(connection: Connection, client_id: str | None, session_id: str | None) -> Session:
    """The session of a request that needs the right `admin`."""
    session = session_of(connection, client_id, session_id)
    if not session.rights.admin:
        raise forbidden(f"{session.client_id} has no right `admin`", ErrorCode.NOT_AUTHORIZED)
    return session


def within_ticket(allowed: frozenset[Command], command: int) -> None:
    """Refuses what the ticket of a session is not for."""
    if command not in allowed:
        raise forbidden(f"the session's ticket is not for {Command(command).name}", ErrorCode.NOT_AUTHORIZED)


def within_rate(session: Session, now: float, count: int = 1) -> None:
    """Refuses what is more than the client may publish in a second."""
    if session.rate is not None and (wait := session.rate.take(now, count)):
        limit = session.rights.publishes_per_second
        raise Refusal(
            Status.TPS_OVERLOAD, ErrorCode.NONE, f"at most {limit:g} publishes a second: try again in {wait:.3f} s"
        )


def topic_of(name: str) -> str:
    """The topic in its one spelling."""
    try:
        return parse_topic(name)
    except BadTopic as error:
        raise failed(str(error)) from None


def publishable(session: Session, name: str) -> str:
    """The topic in its one spelling, if the client may publish there."""
    topic = topic_of(name)
    if not session.rights.may_publish(topic):
        raise forbidden(f"{session.client_id} may not publish to {topic}", ErrorCode.UNAUTHORIZED_PUBLISH)
    session.connection.core.topics.admit(session.environment, topic)
    if len(session.may) >= MOST_REMEMBERED:
        session.may.clear()
    session.may[name] = topic
    return topic


def readable(session: Session, name: str) -> str:
    """The topic in its one spelling, if the client may subscribe to it."""
    topic = topic_of(name)
    if not session.rights.may_subscribe(topic):
        raise forbidden(f"{session.client_id} may not read {topic}", ErrorCode.UNAUTHORIZED_SUBSCRIBE)
    return topic


def sound(event: bytes) -> None:
    """Refuses an event that breaks the standard."""
    if not mesh_event.sound(event):
        try:
            Event.decode(event)
        except BadEvent as error:
            raise failed(str(error)) from None
        mesh_event.learn(event)
