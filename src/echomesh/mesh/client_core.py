"""The core of a client: what it asked and is not answered yet, over as many connections as that takes.

Pure: bytes come in through `receive` and go out through `take_output`, `now` is an argument. What happened comes as
typed events (`client_events`). The same core goes on after its connection broke: `connected` says HELLO again, makes
the subscriptions again, and sends what was not answered, in order.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from echomesh.errors import BadMessage, ConnectionLost, RateLimited, RequestFailed
from echomesh.frames import MAX_FRAME, Splitter
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Ack, Body, Disconnect, Hello, Nack, Subscribe, Unsubscribe, Welcome
from echomesh.mesh.client_acks import Run, TopicAcks
from echomesh.mesh.client_events import Answered, Broken, Delivery, Ended, Happening, Refused, Stored, Told, Up
from echomesh.mesh.client_outbox import Asked, Outbox, State
from echomesh.mesh.client_wire import HotMessage, decode_hot, failure, stage_error
from echomesh.mesh.codes import Command
from echomesh.mesh.ranges import LARGEST

CREDIT_BYTES: Final = 1 << 20
HEARTBEAT_S: Final = 10.0

_PUBLISHED: Final = int(Command.PUBLISH_MESSAGE_RESPONSE)
_DELIVERED: Final = int(Command.ASYNC_MESSAGE_TO_CLIENT)
_MALFORMED: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class ClientCore(Outbox):
    """One session of a client, for one purpose; see the module."""

    def __init__(
        self,
        hello: Hello,
        *,
        credit_bytes: int = CREDIT_BYTES,
        heartbeat_s: float = HEARTBEAT_S,
        max_frame: int = MAX_FRAME,
    ) -> None:
        super().__init__(hello, max_frame)
        self.log_id: bytes | None = None
        self.generation = 0
        """Counts the connections: what was delivered over an older one comes again."""
        self.complaint: RequestFailed | None = None
        """The last refusal that belongs to no request; it may say why the server closes the connection."""
        self._max_frame = max_frame
        self._ack_bytes = credit_bytes // 2
        self._heartbeat_s = heartbeat_s
        self._heard = self._asked = 0.0
        self._splitter = Splitter(max_frame)
        self._subscriptions: list[Asked] = []
        self._acks: dict[str, TopicAcks] = {}
        self._unacked: dict[TopicAcks, None] = {}
        self._settled_bytes = 0

    # A connection begins and ends

    def connected(self, now: float) -> None:
        """A new connection is there: says HELLO."""
        self.state = State.GREETING
        self.generation += 1
        self.complaint = None
        self._splitter = Splitter(self._max_frame)
        self._heard = self._sent = self._asked = now
        self._ground()
        self._send(Command.HELLO_REQUEST, f"hello-{self.generation}", self.hello)

    def disconnected(self) -> list[Happening]:
        """The connection is gone. What may be asked again waits for the next one; the rest fails."""
        self.state = State.DOWN
        self._ground()
        self._unacked.clear()
        self._settled_bytes = 0
        for acks in self._acks.values():
            acks.reset()
        once = [asked for asked in self._pending.values() if not asked.again]
        self._pending = {seq: asked for seq, asked in self._pending.items() if asked.again}
        error = ConnectionLost("the connection broke before the answer: it may have been done, or not")
        return [Refused(asked.token, error) for asked in once if not asked.resumes]

    # Requests

    def subscribe(self, topics: list[str], token: Any, *, start: Any = None, group: str | None = None) -> None:
        """Subscribes, now and again on each new connection."""
        self.request(Command.SUBSCRIBE_REQUEST, Subscribe("", "", topics, start, group), token)

    def unsubscribe(self, topics: list[str], token: Any, *, group: str | None = None) -> None:
        """Ends subscriptions; the server forgets where they were."""
        for wanted in self._subscriptions:
            if wanted.body.group == group:
                wanted.body.topics = [topic for topic in wanted.body.topics if topic not in topics]
        self._subscriptions = [wanted for wanted in self._subscriptions if wanted.body.topics]
        self.request(Command.UNSUBSCRIBE_REQUEST, Unsubscribe("", "", topics, group), token)

    def disconnect(self) -> None:
        """Asks the server to end the session; `Ended` follows."""
        self.flush()
        self.state = State.LEAVING
        self._send(Command.DISCONNECT_REQUEST, "disconnect", Disconnect(self.hello.client_id, self.session_id))

    # Acknowledgements

    def settle(self, delivery: Delivery, first: int, end: int | None = None) -> None:
        """The event at `first`, or those up to before `end`, were dealt with. The server is told by `flush`, or when
        half of the credit is used.
        """
        acks = delivery.acks
        self._settled_bytes += acks.settle(first, first + 1 if end is None else end)
        self._unacked[acks] = None
        if self._settled_bytes >= self._ack_bytes:
            self.flush()

    def nack(self, delivery: Delivery, offset: int, token: Any, delay: float | None, reason: str | None) -> bool:
        """Asks for the event once more, later. False when it comes again anyway, since its connection is gone."""
        if delivery.generation != self.generation or self.state is not State.UP:
            return False
        delivery.acks.give_back(offset)
        self._unacked[delivery.acks] = None
        self.request(Command.NACK_REQUEST, Nack("", "", delivery.topic, offset, delay, reason), token, again=False)
        return True

    def flush(self) -> None:
        """Acknowledges all that was settled and has no gap before it."""
        self._settled_bytes = 0
        if self.state is not State.UP:
            return
        hello, session_id = self.hello, self.session_id
        for acks in self._unacked:
            for done in acks.take():
                body = Ack(hello.client_id, session_id, hello.environment, acks.topic, done.end, first=done.first)
                self._send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, done.seq, body)
        self._unacked.clear()

    # Time

    def timer(self) -> float:
        """When `tick` wants to be called."""
        return min(
            self._heard + 3 * self._heartbeat_s, max(self._asked, min(self._sent, self._heard)) + self._heartbeat_s
        )

    def tick(self, now: float) -> list[Happening]:
        """Sends a heartbeat after an interval in silence; a server that is silent for three is lost."""
        if self.state is State.DOWN:
            return []
        if now >= self._heard + 3 * self._heartbeat_s:
            return [Broken(ConnectionLost(f"the server was silent for {now - self._heard:.1f} s"))]
        if now >= max(self._asked, min(self._sent, self._heard)) + self._heartbeat_s:
            self._asked = now
            self._send(Command.HEARTBEAT_REQUEST, self._next_seq(), None)
        return []

    @property
    def receiving(self) -> bool:
        """Whether part of a message is here, and the rest is on its way."""
        return bool(self._splitter.waiting)

    # Bytes

    def receive(self, data: bytes, now: float) -> list[Happening]:
        """What came, and what it means."""
        self._heard = now
        happened: list[Happening] = []
        stored = Stored([], [])
        splitter, at, end = self._splitter, 0, len(data)
        try:
            while at < end:
                cut = end
                if splitter.waiting:
                    cut = min(end, at + splitter.missing)
                elif (at := self.flight.answers(data, at, stored.tokens, stored.offsets)) == end:
                    break
                for payload in splitter.feed(data[at:cut]):
                    self._message(payload, stored, happened)
                at = cut
            splitter.check()
        except BadMessage as error:
            happened.append(Broken(ConnectionLost(f"the server speaks no EventMesh: {error}")))
        if stored.tokens:
            happened.insert(0, stored)
        return happened

    def _message(self, payload: bytes, stored: Stored, happened: list[Happening]) -> None:
        try:
            message = decode_hot(payload)
        except _MALFORMED:
            self._other(payload, happened)
            return
        if message.command == _DELIVERED:
            self._delivered(message, len(payload), happened)
        elif message.command == _PUBLISHED and not message.status:
            self._stored(message, stored)
        else:
            self._other(payload, happened)

    def _stored(self, message: HotMessage, stored: Stored) -> None:
        """An answer to a publish that has not the form which is read in passing."""
        if message.body is None or message.body.offset is None:
            raise BadMessage("an answer without Offset to a publish", message.seq)
        if (found := self.flight.forget(message.seq)) is not None:
            stored.tokens.append(found[0])
            stored.offsets.append(message.body.offset)

    def _delivered(self, message: HotMessage, size: int, happened: list[Happening]) -> None:
        body = message.body
        if body is None or body.offset is None or not body.topic:
            raise BadMessage("a delivery without Topic or Offset", message.seq)
        lost, first = body.lost, body.offset
        run = Run(first, first + len(body.cloud_events), size, message.seq)
        if lost is not None:
            run = Run(lost[0], lost[1], size, message.seq, whole=True)
        if not 0 <= run.first < run.end <= LARGEST:
            raise BadMessage("a delivery of nothing", message.seq)
        acks = self._acks.get(body.topic)
        if acks is None:
            acks = self._acks[body.topic] = TopicAcks(body.topic)
        made = Delivery(
            acks, self.generation, first, body.cloud_events, lost, body.tries or 1, tuple(body.bridge_servers)
        )
        for begin, end in acks.deliver(run):
            if lost is not None or (begin, end) == (run.first, run.end):
                happened.append(made)
            else:
                part = body.cloud_events[begin - first : end - first]
                happened.append(msgspec.structs.replace(made, first=begin, events=part))
        if acks.untold:
            self._unacked[acks] = None

    def _other(self, payload: bytes, happened: list[Happening]) -> None:
        message = protocol.decode(payload)
        command = Command(message.command)
        if message.status:
            self._refused(command, message, happened)
            return
        body = protocol.body_of(message)
        if command is Command.HELLO_RESPONSE:
            self._welcomed(body, happened)
        elif command is Command.DISCONNECT_RESPONSE:
            happened.append(Ended())
        elif command is Command.NOTICE:
            happened.append(Told(body.kind, body.topics))
        elif (asked := self._pending.pop(message.seq, None)) is not None:
            self._answered(asked, body, happened)

    def _refused(self, command: Command, message: protocol.Message, happened: list[Happening]) -> None:
        error = failure(message.status, message.error, message.description)
        if command is Command.HELLO_RESPONSE:
            # A server that stops or is busy says so without a code, and is worth another try.
            happened.append(Broken(error, final=type(error) not in (RequestFailed, RateLimited)))
        elif command is Command.DISCONNECT_RESPONSE:
            happened.append(Ended())
        elif (asked := self._pending.pop(message.seq, None)) is not None:
            happened.append(Refused(asked.token, stage_error(message) or error, asked.resumes))
        elif (found := self.flight.forget(message.seq)) is not None:
            happened.append(Refused(found[0], error))
        else:
            self.complaint = error

    def _welcomed(self, body: Welcome, happened: list[Happening]) -> None:
        if self.state is not State.GREETING:
            raise BadMessage("a HELLO_RESPONSE that nobody asked for")
        anew = self.log_id is not None and self.log_id != body.log_id
        if anew:
            self._acks.clear()
        self.state = State.UP
        self.session_id, self.log_id = body.session_id, body.log_id
        if body.heartbeat_seconds is not None and body.heartbeat_seconds > 0:
            self._heartbeat_s = body.heartbeat_seconds
        if body.frame_bytes is not None:
            self._limit(body.frame_bytes)
        self._resume(happened)
        happened.insert(0, Up(self.session_id, self.log_id, anew))

    def _resume(self, happened: list[Happening]) -> None:
        """Sends what has to be said on a new connection: the subscriptions, then all that was not answered."""
        waiting = list(self._pending.items())
        for wanted in self._subscriptions:
            # It goes on where it was, wherever it began.
            body = msgspec.structs.replace(wanted.body, start=None)
            self._ask(Asked(wanted.token, Command.SUBSCRIBE_REQUEST, body, again=False, resumes=True))
        happened += self._send_publishes()
        for seq, asked in waiting:
            self._send_asked(seq, asked)

    def _answered(self, asked: Asked, body: Body | None, happened: list[Happening]) -> None:
        if asked.resumes:
            return
        if isinstance(asked.body, Subscribe):
            self._subscriptions.append(asked)
        happened.append(Answered(asked.token, body))
