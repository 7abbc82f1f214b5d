"""Staged publishes over a session, for writers that commit many events at once, all or none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from echomesh.errors import StageMissing
from echomesh.mesh import checks
from echomesh.mesh.bodies import Abort, Body, Commit, CommittedStages, Stage, Staged
from echomesh.mesh.ports import Pending
from echomesh.mesh.protocol import Message
from echomesh.mesh.refusal import MOST_NAME_BYTES, Refusal, failed, refused_by
from echomesh.native.log_stage import check_rows, count_rows

if TYPE_CHECKING:
    from echomesh.log.staging import StageWriter
    from echomesh.mesh.bodies import Bytes
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.session import Session

    Rows = Callable[[StageWriter], None]

_log = logging.getLogger(__name__)


def stage(connection: Connection, message: Message, body: Stage, now: float) -> None:
    """Takes rows for a stage; the first request of one begins it, and one with `Done` ends it."""
    core = connection.core
    session = checks.publisher(connection, body.client_id, body.session_id)
    _check(body)
    rows = _rows(session, body, now) if body.records is None else _records(session, body, now, body.records)
    writer: StageWriter | None = None
    if body.stage is not None:
        writer = session.stages.get(body.stage)
        if writer is None:
            raise failed(f"the session has no open stage {body.stage[:80]!r}")
    else:
        core.stages.begin(session)
    begun: list[StageWriter] = []
    kept: list[bool] = []

    def work() -> Staged:
        into = writer or core.log.staging.stage(body.writer, body.epoch, body.run, body.part)
        if writer is None:
            begun.append(into)
        if connection.session is not session:
            raise StageMissing(into.name, "its session ended")
        rows(into)
        checksum = into.close().checksum if body.done else None
        kept.append(True)
        return Staged(into.name, into.rows, checksum)

    def behind() -> None:
        # In the event loop's thread, as all else that is done with the session's stages.
        session.beginning -= int(writer is None)
        if writer is not None and body.done and kept:
            session.stages.pop(writer.name, None)
        for into in begun:
            if not kept or (connection.session is not session and not body.done):
                core.log.beside(into.abort)
            elif not body.done:
                session.stages[into.name] = into
        core.stages.look(session)

    _later(connection, message, work, behind)


def _rows(session: Session, body: Stage, now: float) -> Rows:
    """Rows one by one, judged now."""
    if len(body.topics) != len(body.cloud_events):
        raise failed("Topics and CloudEvents go together: one topic for each event")
    checks.within_rate(session, now, len(body.topics))
    rows = []
    for name, raw in zip(body.topics, body.cloud_events, strict=True):
        event = bytes(raw)
        checks.sound(event)
        rows.append((session.may.get(name) or checks.publishable(session, name), event))

    def add(into: StageWriter) -> None:
        for topic, event in rows:
            into.add(topic, event, environment=session.environment)

    return add


def _records(session: Session, body: Stage, now: float, records: Bytes) -> Rows:
    """Rows as they will be stored, judged beside the event loop: there are many of them."""
    if body.cloud_events:
        raise failed("Records and CloudEvents exclude each other")
    count = count_rows(records)
    if count < 0:
        raise failed("Records are not rows of a stage")
    checks.within_rate(session, now, count)
    topics = [session.may.get(name) or checks.publishable(session, name) for name in body.topics]
    named = [(session.environment, topic) for topic in topics]

    def add(into: StageWriter) -> None:
        if len(set(named)) < len(named) or any(key in into.topics for key in named):
            raise failed("a topic is named twice: a stage has one number for each")
        try:
            check_rows(records, into.rows + 1, len(into.topics) + len(named), checks.sound)
        except ValueError as error:
            raise failed(str(error)) from None
        into.put_rows(records, count, named)

    return add


def commit(connection: Connection, message: Message, body: Commit, now: float) -> None:
    """Makes stages part of their topics."""
    core = connection.core
    checks.publisher(connection, body.client_id, body.session_id)
    _check(body)
    sums = _sums(body)

    def work() -> CommittedStages:
        done = core.log.staging.commit(
            body.writer, body.epoch, body.run, list(body.stages), sums=sums, republish=body.republish
        )
        if not done.repeated:
            grown.extend(done.offsets)
        elif sums is not None and sum(rows for rows, _ in sums) != done.rows:
            others.append(done.rows)
        return CommittedStages(body.epoch, body.run, done.rows, done.repeated)

    grown: list[tuple[str, str]] = []
    others: list[int] = []

    def behind() -> None:
        for environment, topic in grown:
            core.grew(environment, topic)
        for rows in others:
            core.counts.repeated_otherwise += 1
            _log.warning(
                "writer=%.80s epoch=%d was committed with %d rows, and came again with another number of them",
                body.writer, body.epoch, rows,
            )  # fmt: skip

    _later(connection, message, work, behind)


def abort(connection: Connection, message: Message, body: Abort, now: float) -> None:
    """Drops the stages of an epoch."""
    core = connection.core
    checks.publisher(connection, body.client_id, body.session_id)
    _check(body)
    _later(connection, message, lambda: core.log.staging.abort(body.writer, body.epoch, body.run))


def _check(body: Stage | Commit | Abort) -> None:
    if not 0 < len(body.writer.encode()) <= MOST_NAME_BYTES:
        raise failed(f"Writer is a name of 1 to {MOST_NAME_BYTES} bytes")
    if not 0 <= body.epoch < 1 << 63:
        raise failed("Epoch is from 0 to 2^63 - 1")
    if len((body.run or "").encode()) > MOST_NAME_BYTES:
        raise failed(f"Run has at most {MOST_NAME_BYTES} bytes")


def _sums(body: Commit) -> list[tuple[int, int]] | None:
    if body.rows is None or body.checksums is None:
        return None
    if not len(body.rows) == len(body.checksums) == len(body.stages):
        raise failed("Stages, Rows and Checksums go together, one by one")
    return list(zip(body.rows, body.checksums, strict=True))


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
                connection.refuse(message, error if isinstance(error, Refusal) else refused_by(error))
            return
        if connection.finish(message.seq):
            connection.answer(message.command, message.seq, result if isinstance(result, Body) else None)

    core.when_done(pending, settled)
