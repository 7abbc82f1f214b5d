"""Staged publishes over a session, for writers that commit many events at once, all or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from echomesh.errors import StageMissing
from echomesh.mesh import checks
from echomesh.mesh.bodies import Abort, Body, Commit, CommittedStages, Stage, Staged
from echomesh.mesh.codes import Status
from echomesh.mesh.ports import Pending
from echomesh.mesh.protocol import Message
from echomesh.mesh.refusal import MOST_NAME_BYTES, failed

if TYPE_CHECKING:
    from echomesh.log.staging import StageWriter
    from echomesh.mesh.connection import Connection


def stage(connection: Connection, message: Message, body: Stage, now: float) -> None:
    """Takes rows for a stage; the first request of one begins it, and one with `Done` ends it."""
    core = connection.core
    session = checks.publisher(connection, body.client_id, body.session_id)
    if len(body.topics) != len(body.cloud_events):
        raise failed("Topics and CloudEvents go together: one topic for each event")
    _check(body)
    checks.within_rate(session, now, len(body.topics))
    rows = []
    for name, raw in zip(body.topics, body.cloud_events, strict=True):
        event = bytes(raw)
        checks.sound(event)
        rows.append((session.may.get(name) or checks.publishable(session, name), event))
    writer: StageWriter | None = None
    if body.stage is not None:
        writer = session.stages.get(body.stage)
        if writer is None:
            raise failed(f"the session has no open stage {body.stage[:80]!r}")
    else:
        core.stages.begin(session)
    begins = int(writer is None)

    def work() -> Staged:
        into = writer or core.log.staging.stage(body.writer, body.epoch, body.run, body.part)
        session.stages[into.name] = into
        if connection.session is not session:
            into.abort()
            raise StageMissing(into.name, "its session ended")
        for topic, event in rows:
            into.add(topic, event, environment=session.environment)
        if body.done:
            into.close()
            session.stages.pop(into.name, None)
        return Staged(into.name, into.rows)

    def behind() -> None:
        session.beginning -= begins
        core.stages.look(session)

    _later(connection, message, work, behind)


def commit(connection: Connection, message: Message, body: Commit, now: float) -> None:
    """Makes stages part of their topics."""
    core = connection.core
    checks.publisher(connection, body.client_id, body.session_id)
    _check(body)

    def work() -> CommittedStages:
        done = core.log.staging.commit(body.writer, body.epoch, body.run, list(body.stages))
        for environment, topic in done.offsets:
            grown.append((environment, topic))
        return CommittedStages(body.epoch, body.run, done.rows)

    grown: list[tuple[str, str]] = []

    def behind() -> None:
        for environment, topic in grown:
            core.grew(environment, topic)

    _later(connection, message, work, behind)


def abort(connection: Connection, message: Message, body: Abort, now: float) -> None:
    """Drops the stages of an epoch."""
    core = connection.core
    checks.publisher(connection, body.client_id, body.session_id)
    _check(body)
    _later(connection, message, lambda: core.log.staging.abort(body.writer, body.epoch))


def _check(body: Stage | Commit | Abort) -> None:
    if not 0 < len(body.writer.encode()) <= MOST_NAME_BYTES:
        raise failed(f"Writer is a name of 1 to {MOST_NAME_BYTES} bytes")
    if not 0 <= body.epoch < 1 << 63:
        raise failed("Epoch is from 0 to 2^63 - 1")
    if not isinstance(body, Abort) and len(body.run.encode()) > MOST_NAME_BYTES:
        raise failed(f"Run has at most {MOST_NAME_BYTES} bytes")


def _later(
    connection: Connection,
    message: Message,
    work: Callable[[], Body | None],
    behind: Callable[[], object] = lambda: None,
) -> None:
    """Does the work beside the event loop, then `behind` in the loop, and answers."""
    core = connection.core
    connection.begin(message, len(message.body))
    pending = core.log.beside(work)

    def settled(finished: Pending) -> None:
        behind()
        try:
            result = finished.result()
        except Exception as error:
            if connection.finish(message.seq):
                connection.answer(message.command, message.seq, status=Status.FAIL, description=str(error))
            return
        if connection.finish(message.seq):
            connection.answer(message.command, message.seq, result if isinstance(result, Body) else None)

    core.when_done(pending, settled)
