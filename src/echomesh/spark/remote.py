"""A log read over a server: the driver asks with its password, tasks fetch with the ticket that it got for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from echomesh.errors import (
    ConnectionLost,
    DataLoss,
    EchomeshError,
    HoleError,
    LogBehind,
    LogCorrupt,
    OffsetGone,
    RequestFailed,
    UnknownTopic,
)
from echomesh.log import arrow
from echomesh.mesh.bodies import AskTicket, Ticket
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.direct import Direct, FetchedView
from echomesh.mesh.log_bodies import AskOffsets, AskTopics, Fetch, Offsets, Topics
from echomesh.native.log_record import scan
from echomesh.spark.options import SourceOptions
from echomesh.spark.places import Places, spot_at_server
from echomesh.spark.reach import Range
from echomesh.spark.secret import Secret, read_password
from echomesh.spark.trust import Trust, context, read_trust

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_BYTES: Final = 2 << 20
AHEAD: Final = 2  # requests on their way while an answer is turned into columns
TOPICS_AT_ONCE: Final = 2_000
SAMPLES: Final = 64
SAMPLE_BYTES: Final = 1 << 16
USUAL_BYTES: Final = 512.0


def connect(chosen: Any, purpose: Purpose) -> Direct:
    """The driver's own session; `chosen` are the options of a source or a sink."""
    password = None if chosen.password_file is None else read_password(chosen.password_file)
    return Direct(
        chosen.server,
        chosen.client_id,
        password=password,
        environment=chosen.environment,
        purpose=purpose,
        tls=context(read_trust(chosen.tls)),
    )


def ticket_for(session: Direct, right: str, filters: Sequence[str] | None) -> Secret:
    """A new ticket for tasks."""
    body = AskTicket("", "", right, None if filters is None else list(filters))
    given: Ticket = session.ask(Command.TICKET_REQUEST, body)
    return Secret(given.ticket)


class ServerReach:
    """The topics of a server, for the driver."""

    def __init__(self, chosen: SourceOptions) -> None:
        self._options = chosen
        self._session = connect(chosen, Purpose.SUBSCRIBE)
        self._averages: dict[str, float] = {}
        self.log_id = ""
        self.bounds(["**/nothing/of/this/name"])  # who may not come is told at once

    def __repr__(self) -> str:
        return f"ServerReach({self._options.server})"

    def _ask(self, command: Command, body: Any) -> Any:
        answer = self._session.ask(command, body)
        self.log_id = self._session.log_id.hex()
        return answer

    def bounds(self, filters: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The first offset that is kept and the end of each topic that matches one of these filters, by name."""
        found: Topics = self._ask(Command.TOPICS_REQUEST, AskTopics("", "", filters=list(filters)))
        states = sorted(found.topics, key=lambda state: state.topic)
        return {state.topic: (state.earliest, state.latest) for state in states}

    def at_time(self, topics: Sequence[str], time_us: int) -> dict[str, int]:
        """The offset of the first event that was appended at this time or later; the end when there is none."""
        found = self._many(topics, time_us * 1000)
        return {
            name: state[1] if state[2] is None else state[2]
            for name, state in zip(topics, found, strict=True)
            if state is not None
        }

    def _many(self, topics: Sequence[str], time_ns: int | None) -> list[tuple[int, int, int | None] | None]:
        # In pieces, so that the server does other things in between.
        found: list[tuple[int, int, int | None] | None] = []
        for at in range(0, len(topics), TOPICS_AT_ONCE):
            asked = AskOffsets("", "", time=time_ns, topics=list(topics[at : at + TOPICS_AT_ONCE]))
            answer: Offsets = self._ask(Command.OFFSETS_REQUEST, asked)
            found.extend(answer.many or ())
        return found

    def sizes(self, ranges: Sequence[Range]) -> list[int]:
        """About how many bytes each of these has, by a look into some of the largest."""
        unknown = [one for one in ranges if one.topic not in self._averages]
        for one in sorted(unknown, key=lambda one: one.start - one.until)[:SAMPLES]:
            if (average := self._sampled(one)) is not None:
                self._averages[one.topic] = average
        known = self._averages
        usual = sum(known.values()) / len(known) if known else USUAL_BYTES
        return [round((until - start) * known.get(name, usual)) for name, start, until in ranges]

    def _sampled(self, one: Range) -> float | None:
        try:
            body = Fetch("", "", one.topic, one.start, one.until, SAMPLE_BYTES)
            found: FetchedView = self._ask(Command.FETCH_REQUEST, body)
        except RequestFailed:
            return None
        count = found.next_offset - found.offset
        return None if found.lost or not count else len(found.records) / count

    def way(self) -> ServerWay:
        """What tasks carry: a ticket of its own for each batch."""
        chosen = self._options
        ticket = ticket_for(self._session, "read", chosen.subscribe)
        return ServerWay(*carried(chosen, ",".join(chosen.subscribe), ticket), self.log_id)

    def places(self, ranges: Sequence[Range]) -> Places:
        """At the server, unless the JVM does not know whom the machine trusts."""
        known, found = read_trust(self._options.tls) is not True, Places()
        for number, (topic, start, until) in enumerate(ranges):
            found.add(number, start, until, spot_at_server(topic), known=known)
        return found

    def close(self) -> None:
        """Lets go of the connection."""
        self._session.close()
        self._averages.clear()


@dataclass(frozen=True)
class Pass:
    """Where a task goes, and with which ticket."""

    server: str
    client_id: str
    environment: str
    scope: str
    ticket: Secret
    trust: Trust = field(repr=False)


def carried(chosen: Any, scope: str, ticket: Secret) -> tuple[str, str, str, str, Secret, Trust]:
    """What a `Pass` is made of; `chosen` are the options of a source or a sink."""
    return chosen.server, chosen.client_id, chosen.environment, scope, ticket, read_trust(chosen.tls)


_sessions: dict[tuple[object, ...], Direct] = {}  # of a worker process, which does one task at a time


def session_of(known: Pass, purpose: Purpose) -> Direct:
    """The worker's session for this purpose, with the connection of the task before if that still holds.

    The ticket of the newest task is the one that the next connection is made with.
    """
    key = (known.server, known.client_id, known.environment, known.scope, known.trust, purpose)
    session = _sessions.get(key)
    if session is None:
        tls = context(known.trust)
        session = Direct(known.server, known.client_id, environment=known.environment, purpose=purpose, tls=tls)
        _sessions[key] = session
    session.hello.ticket = known.ticket.reveal()
    return session


@dataclass(frozen=True)
class ServerWay(Pass):
    """The way of a task to a server."""

    log_id: str

    def for_jvm(self) -> tuple[object, ...] | None:
        """What Server.java knows of it."""
        if self.trust is True:
            return None
        address, trusted = Direct(self.server, self.client_id).server, self.trust or None
        known = (address.urn, address.port, self.client_id, self.environment, self.scope)
        return (*known, self.ticket.reveal(), bytes.fromhex(self.log_id), trusted)

    def scan(self, topic: str, start: int, until: int, builder: arrow.Builder) -> Iterator[pa.RecordBatch]:
        """The events of these offsets as record batches; see `Way`."""
        session = session_of(self, Purpose.SUBSCRIBE)
        builder.turn(topic)
        for found in _answers(session, topic, start, until):
            if found.log_id.hex() != self.log_id:
                raise DataLoss(topic, found.offset, until - 1, f"{self.server} has become another log")
            if found.lost is not None:
                yield from builder.rest()
                raise _gap(topic, found)
            records = scan(found.records, 0, found.offset)
            if records.next_offset != found.next_offset:
                raise LogCorrupt(topic, records.next_offset, found.next_offset - 1)
            yield from builder.add(records)


def _gap(topic: str, found: FetchedView) -> EchomeshError:
    assert found.lost is not None
    first, last = found.lost[0], found.lost[1] - 1
    if found.why == "corrupt":
        return LogCorrupt(topic, first, last)
    return HoleError(topic, first, last) if found.why == "hole" else OffsetGone(topic, first, last)


def _answers(session: Direct, topic: str, start: int, until: int) -> Iterator[FetchedView]:
    """Answers in order. The next ones are asked for before this one is dealt with.

    How far an answer goes is known only when it is there, so what is ahead of it is asked for by a guess of where it
    ends, made from the answer before.
    """
    offset = start
    while offset < until:
        try:
            for found in _run(session, topic, offset, until):
                offset = found.next_offset
                yield found
        except ConnectionLost:
            session.close()
            # One plain request, which waits for the server as long as it may take.
            found = session.ask(Command.FETCH_REQUEST, Fetch("", "", topic, offset, until, FETCH_BYTES))
            _check(topic, found, until)
            offset = found.next_offset
            yield found
        except RequestFailed as refusal:
            raise _missing(session, topic, refusal) from None


def _run(session: Direct, topic: str, offset: int, until: int) -> Iterator[FetchedView]:
    # (seq, from, to) of what was asked and is not answered.
    asked: deque[tuple[str, int, int]] = deque()
    step, ahead = 0, offset
    try:
        while offset < until:
            while ahead < until and len(asked) < (AHEAD if step else 1):
                end = min(until, ahead + step) if step else until
                body = Fetch("", "", topic, ahead, end, FETCH_BYTES * (2 if step else 1))
                asked.append((session.send(Command.FETCH_REQUEST, body), ahead, end))
                ahead = end if step else until
            seq, first, end = asked.popleft()
            found: FetchedView = session.receive(seq)
            _check(topic, found, end)
            offset = found.next_offset
            yield found
            if found.lost is not None:
                return
            count = offset - first
            if offset < end:
                # Less than was asked for: what follows in flight does not join on.
                _drain(session, asked)
                ahead = offset
            step = max(1, round(count * FETCH_BYTES / max(1, len(found.records))))
    finally:
        if asked:
            _drain(session, asked)


def _drain(session: Direct, asked: deque[tuple[str, int, int]]) -> None:
    while asked:
        try:
            session.receive(asked.popleft()[0])
        except RequestFailed:
            continue
        except ConnectionLost:
            asked.clear()


def _check(topic: str, found: FetchedView, end: int) -> None:
    if found.next_offset <= found.offset and found.lost is None:
        raise LogBehind(topic, end, found.offset)


def _missing(session: Direct, topic: str, refusal: RequestFailed) -> EchomeshError:
    found: Offsets = session.ask(Command.OFFSETS_REQUEST, AskOffsets("", "", topics=[topic]))
    return UnknownTopic(topic, session.hello.environment) if found.many == [None] else refusal
