"""Publishing: from a request to the log, and the answer once it is on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from echomesh.errors import BadEvent, EchomeshError, LogCorrupt, OffsetsLost
from echomesh.events import Event
from echomesh.frames import framed
from echomesh.mesh import checks, protocol
from echomesh.mesh.bodies import Nack, Publish, Server
from echomesh.mesh.codes import PORT, Command, Status
from echomesh.mesh.ports import Pending
from echomesh.mesh.protocol import Message
from echomesh.mesh.ways import HERE
from echomesh.topics import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.core import MeshCore
    from echomesh.mesh.delivery import Share

DEAD: Final = "dead/"
MOST_REMEMBERED: Final = 4096


def publish(connection: Connection, message: Message, body: Publish, now: float) -> None:
    """Appends the event; with an address, at that server alone."""
    core = connection.core
    session = checks.publisher(connection, body.client_id, body.session_id)
    topic = session.may.get(body.topic) or checks.publishable(session, body.topic)
    checks.within_rate(session, now)
    event = bytes(body.cloud_event)
    checks.sound(event)
    if body.urn and not core.is_here(Server(body.urn, body.port or PORT)):
        core.bridges.routing.publish(connection, message, session, body, topic, event)
        return
    origin = HERE if body.urn else None
    pending = core.log.append(topic, event, environment=session.environment, origin=origin)
    connection.begin(message, len(event))
    core.waiting.add(pending, connection, message.seq, session.environment, topic)


def published(pending: Pending, connection: Connection, seq: str) -> None:
    """The append was answered: so is the request."""
    if not connection.finish(seq):
        return
    try:
        offset = pending.result()
    except Exception as error:
        connection.answer(Command.PUBLISH_MESSAGE_REQUEST, seq, status=Status.FAIL, description=str(error))
    else:
        connection.write(framed(protocol.published(seq, offset)))


def bury(core: MeshCore, share: Share, body: Nack, tries: int, done: Callable[[Exception | None], None]) -> None:
    """Puts an event that is refused again and again where somebody can look at it, with the reason."""
    topic = _dead_topic(share.topic)
    try:
        records = core.log.read(share.environment, share.topic, body.offset, max_bytes=1, max_records=1)
        letter = _letter(records.events()[0], share.topic, body, tries)
        pending = core.log.append(topic, letter, environment=share.environment)
    except (OffsetsLost, LogCorrupt):
        done(None)  # nothing is left of it to look at
        return
    except EchomeshError as error:
        done(error)
        return

    def settled(finished: Pending) -> None:
        try:
            finished.result()
        except Exception as error:
            done(error)
        else:
            core.grew(share.environment, topic)
            done(None)

    core.when_done(pending, settled)


def _dead_topic(topic: str) -> str:
    if topic.startswith(DEAD):
        return topic
    return (DEAD + topic).encode()[:MAX_TOPIC_BYTES].decode(errors="ignore").rstrip("/")


def _letter(stored: bytes, topic: str, body: Nack, tries: int) -> bytes:
    try:
        event = Event.decode(stored)
    except BadEvent:
        return stored
    why = {
        "deadtopic": topic,
        "deadoffset": str(body.offset),
        "deadtries": tries,
        "deadreason": (body.reason or "refused")[:1000] or "refused",
    }
    try:
        return msgspec.structs.replace(event, extensions={**event.extensions, **why}).encode()
    except BadEvent:
        return stored
