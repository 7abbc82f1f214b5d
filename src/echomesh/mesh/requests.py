"""What a server does for each command. A handler answers, or raises `Refusal`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from echomesh.errors import EchomeshError, LoginBusy
from echomesh.mesh import checks, publishing, reading, staged, tickets
from echomesh.mesh.bodies import (
    Ack,
    AddBridge,
    Disconnect,
    Hello,
    InSession,
    Nack,
    Nacked,
    RemoveBridge,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from echomesh.mesh.codes import ENVIRONMENTS, Command, ErrorCode, Purpose, Status
from echomesh.mesh.ports import Pending, Rights
from echomesh.mesh.protocol import Message
from echomesh.mesh.refusal import MOST_NAME_BYTES, Refusal, failed, forbidden
from echomesh.mesh.session import Session
from echomesh.mesh.tickets import PURPOSES, TicketRights
from echomesh.native.blocks import Block
from echomesh.native.mesh_publish import Lane

if TYPE_CHECKING:
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.delivery import Share

MOST_BATCH: Final = 10_000
LONGEST_DELAY_S: Final = 3600.0

Handler = Callable[["Connection", Message, Any, float], None]


def heartbeat(connection: Connection, message: Message, body: None, now: float) -> None:
    """Answers that the server is there; no session is needed."""
    connection.answer(message.command, message.seq)


def hello(connection: Connection, message: Message, body: Hello, now: float) -> None:
    """Checks who it is, and begins a session."""
    core = connection.core
    if connection.session is not None:
        raise failed("this connection has a session already: open another one")
    if body.environment not in ENVIRONMENTS:
        raise failed(f"Environment is one of {', '.join(ENVIRONMENTS)}")
    if body.purpose not in (Purpose.SUBSCRIBE, Purpose.PUBLISH):
        raise failed("Purpose is 0 (subscribe) or 1 (publish)")
    if len(body.client_id.encode()) > MOST_NAME_BYTES:
        raise failed(f"ClientId has at most {MOST_NAME_BYTES} bytes")
    if core.stopping:
        raise failed("the server is stopping: connect again soon")
    if wait := core.guesses.wait(connection.peer, now, body.client_id):
        raise forbidden(f"too many wrong passwords: try again in {wait:.0f} s", ErrorCode.NOT_AUTHORIZED)
    connection.checking = True
    connection.begin(message)

    def checked(rights: Rights | None) -> None:
        if not connection.finish(message.seq):
            return
        later = core.now
        try:
            _welcome(connection, message, body, rights, later)
        except Refusal as refusal:
            connection.refuse(message, refusal)
        except EchomeshError as error:
            connection.refuse(message, failed(str(error)))
        connection.checked(later)

    access = core.access_of(connection)
    try:
        if body.ticket is None:
            access.verify(body.client_id, body.password, checked)
        else:
            found = core.tickets.verify(body.ticket, body.client_id, access)
            checked(None if found is None else TicketRights(*found, core.tickets.left(found[0])))
    except LoginBusy as error:
        connection.finish(message.seq)
        connection.refuse(message, failed(str(error)))
        connection.checked(now)


def _welcome(connection: Connection, message: Message, body: Hello, rights: Rights | None, now: float) -> None:
    core = connection.core
    if rights is None:
        core.guesses.failed(connection.peer, now, body.client_id)
        core.counts.refused_hellos += 1
        why = "unknown client or wrong password" if body.ticket is None else "the ticket is worth nothing (any more)"
        raise forbidden(why, ErrorCode.NOT_AUTHORIZED)
    if not rights.may_use(body.environment):
        raise forbidden(f"{body.client_id} may not use {body.environment}", ErrorCode.NOT_AUTHORIZED)
    if body.is_server and not rights.server:
        raise forbidden(f"{body.client_id} has no right to speak as a server", ErrorCode.NOT_AUTHORIZED)
    if body.is_server:
        core.bridges.checked(body)
    ticket = rights if isinstance(rights, TicketRights) else None
    if ticket is not None and body.purpose != PURPOSES[ticket.right]:
        raise failed(f"a ticket to {ticket.right} is for Purpose {int(PURPOSES[ticket.right])}")
    core.guesses.succeeded(connection.peer, body.client_id)
    batch = min(max(body.buffer_cloud_events or core.options.batch_events, 1), MOST_BATCH)
    session = Session(core.new_id(), body, rights, connection, batch)
    if rights.publishes_per_second is not None:
        session.rate = core.rate(body.client_id, rights.publishes_per_second)
    core.sessions[session.id] = session
    core.known(connection)
    connection.session = session
    if ticket is not None:
        session.allowed = ticket.allowed
        core.later(now + ticket.left_s, lambda: connection.close() if connection.session is session else None)
    elif session.purpose is Purpose.PUBLISH and not session.is_server:
        connection.lane = Lane(
            connection,
            core.waiting,
            core.log.append,
            session.environment,
            session.client_id,
            session.id,
            session.may,
            connection.in_flight,
            session.rate,
        )
    connection.splitter.limit = core.options.frame_bytes
    connection.splitter.direct = Block
    welcome = Welcome(session.id, core.log.log_id, core.options.heartbeat_s, core.options.frame_bytes)
    connection.answer(message.command, message.seq, welcome)
    if body.is_server:
        core.bridges.welcomed(session, body, now)


def disconnect(connection: Connection, message: Message, body: Disconnect, now: float) -> None:
    """Ends the session, and the connection with it."""
    checks.session_of(connection, body.client_id, body.session_id)
    connection.answer(message.command, message.seq)
    connection.core.end_session(connection, now)
    connection.close()


def subscribe(connection: Connection, message: Message, body: Subscribe, now: float) -> None:
    """Subscribes; answered once that is on disk."""
    core = connection.core
    session = checks.subscriber(connection, body.client_id, body.session_id)
    core.subscriptions.subscribe(session, body.topics, body.start, body.group)
    session.delivery.held += 1
    connection.begin(message)

    def synced(pending: Pending) -> None:
        _synced(connection, message, pending)
        session.delivery.held -= 1
        core.to_pump[session.delivery] = None

    core.when_synced(synced)


def unsubscribe(connection: Connection, message: Message, body: Unsubscribe, now: float) -> None:
    """Ends subscriptions for good."""
    core = connection.core
    session = checks.subscriber(connection, body.client_id, body.session_id)
    core.subscriptions.unsubscribe(session, body.topics, body.group)
    connection.begin(message)
    core.when_synced(lambda pending: _synced(connection, message, pending))


def _synced(connection: Connection, message: Message, pending: Pending) -> None:
    if connection.finish(message.seq):
        try:
            pending.result()
        except Exception as error:
            connection.answer(message.command, message.seq, status=Status.FAIL, description=str(error))
        else:
            connection.answer(message.command, message.seq)


def acknowledge(connection: Connection, message: Message, body: Ack, now: float) -> None:
    """Takes note of what a client has dealt with; only what is wrong is answered."""
    core = connection.core
    session = checks.session_of(connection, body.client_id, body.session_id)
    if body.bridge_servers and not core.bridges.knows(body.bridge_servers[-1]):
        raise failed("the way names a bridge that is not one of this server's", ErrorCode.UNKNOWN_BRIDGE)
    if body.environment != session.environment:
        raise failed(f"the session is of {session.environment}")
    if not session.delivery.acknowledge(body.topic, body.offset, body.first) and body.topic not in session.gone:
        raise failed(f"the session has no subscription that matches {body.topic[:80]!r}")


def refuse_event(connection: Connection, message: Message, body: Nack, now: float) -> None:
    """An event that the client could not deal with: again later, or to the dead letters."""
    core = connection.core
    session = checks.subscriber(connection, body.client_id, body.session_id)
    share = session.delivery.release(body.topic, body.offset)
    if share is None:
        raise failed(f"{body.topic[:80]!r} {body.offset} is not one that the session has to acknowledge")
    tries = share.tries.get(body.offset, 1)
    if tries >= core.options.max_tries:
        connection.begin(message)
        publishing.bury(core, share, body, tries, lambda error: _buried(connection, message, share, body, tries, error))
        return
    share.tries[body.offset] = tries + 1
    core.subscriptions.keep_tries(share)
    delay = core.options.retry_s if body.delay is None else min(body.delay, LONGEST_DELAY_S)
    core.later(now + delay if delay > 0.0 else now, lambda: core.again(share, body.offset))
    connection.answer(message.command, message.seq, Nacked(tries))


def _buried(
    connection: Connection, message: Message, share: Share, body: Nack, tries: int, error: Exception | None
) -> None:
    core = connection.core
    if error is not None:
        core.later(core.now + core.options.retry_s, lambda: core.again(share, body.offset))
    else:
        core.counts.dead_letters += 1
        share.waiting.discard(body.offset)
        share.tries.pop(body.offset, None)
        core.subscriptions.keep_tries(share)
        core.store(share)
        core.subscriptions.wake(share)
    if connection.finish(message.seq):
        if error is None:
            connection.answer(message.command, message.seq, Nacked(tries, dead=True))
        else:
            connection.answer(message.command, message.seq, status=Status.FAIL, description=str(error))


def add_bridge(connection: Connection, message: Message, body: AddBridge, now: float) -> None:
    """Makes a bridge."""
    connection.core.bridges.add(connection, message, body, now)


def remove_bridge(connection: Connection, message: Message, body: RemoveBridge, now: float) -> None:
    """Ends a bridge."""
    connection.core.bridges.remove(connection, message, body, now)


def bridges(connection: Connection, message: Message, body: InSession, now: float) -> None:
    """Tells which bridges there are."""
    connection.core.bridges.tell(connection, message, body, now)


HANDLERS: Final[dict[int, Handler]] = {
    Command.HEARTBEAT_REQUEST: heartbeat,
    Command.HELLO_REQUEST: hello,
    Command.SUBSCRIBE_REQUEST: subscribe,
    Command.ASYNC_MESSAGE_TO_CLIENT_ACK: acknowledge,
    Command.DISCONNECT_REQUEST: disconnect,
    Command.PUBLISH_MESSAGE_REQUEST: publishing.publish,
    Command.UNSUBSCRIBE_REQUEST: unsubscribe,
    Command.NACK_REQUEST: refuse_event,
    Command.TOPICS_REQUEST: reading.topics,
    Command.OFFSETS_REQUEST: reading.offsets,
    Command.FETCH_REQUEST: reading.fetch,
    Command.STAGE_REQUEST: staged.stage,
    Command.COMMIT_REQUEST: staged.commit,
    Command.ABORT_REQUEST: staged.abort,
    Command.ADD_BRIDGE_REQUEST: add_bridge,
    Command.REMOVE_BRIDGE_REQUEST: remove_bridge,
    Command.BRIDGES_REQUEST: bridges,
    Command.TICKET_REQUEST: tickets.give,
}
