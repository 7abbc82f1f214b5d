"""A link: the live connection of two bridged servers, over which each sends the other what its log has.

Who dialed does not matter here: both ends send events (command 10) and acknowledge them (7, answered with 13).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from echomesh.errors import EchomeshError, LogCorrupt, LogError, OffsetsLost
from echomesh.mesh import protocol
from echomesh.mesh.arrivals import Bundle
from echomesh.mesh.bodies import Ack, Forward, Server
from echomesh.mesh.codes import Command, ErrorCode, Status
from echomesh.mesh.ways import MOST_HOPS
from echomesh.native.mesh_frames import consecutive, events_frame, runs
from echomesh.topics import Matcher

if TYPE_CHECKING:
    from echomesh.mesh.core import MeshCore
    from echomesh.mesh.pipe import Pipe
    from echomesh.mesh.ports import Pending, Rights
    from echomesh.mesh.protocol import Message
    from echomesh.native.log_record import Records

WINDOW_BYTES: Final = 4 << 20
BATCH_BYTES: Final = 1 << 20
MOST_EVENTS: Final = 2000
HOLD_S: Final = 0.008  # for so long what is short waits for the one before it to be acknowledged,
PACE_S: Final = 0.005  # and for so long in any case
BUSY_EVENTS: Final = 128  # if that one had so many

Topic = tuple[str, str]  # environment and name


class Sent:
    """A message of ours that the other end has not acknowledged: it reaches up to `behind` in our log."""

    __slots__ = ("at", "behind", "count", "done", "key", "size")

    def __init__(self, key: Topic, behind: int, count: int, size: int, at: float) -> None:
        self.at = at
        self.key = key
        self.behind = behind
        self.count = count
        self.size = size
        self.done = False


class Outgoing:
    """How far the other end is in one topic of ours."""

    __slots__ = ("acknowledged", "held", "last", "next", "own_end", "queued", "refused", "sent")

    def __init__(self, at: int) -> None:
        self.acknowledged = at
        self.next = at
        self.sent: deque[Sent] = deque()
        self.last: Sent | None = None
        self.own_end = at
        """Behind the last of our own events that were sent: up to the next one, the other end need not expect any."""
        self.queued = False
        self.held = 0.0
        """Until then what there is waits to go with what comes, unless an acknowledgement lets it go earlier."""
        self.refused = ""


class Link:
    """One live link."""

    def __init__(
        self,
        core: MeshCore,
        pipe: Pipe,
        peer: Server,
        peer_log: bytes,
        session: tuple[str, str],
        topics: list[str] | None,
        rights: Rights | None,
    ) -> None:
        self.core = core
        self.pipe = pipe
        pipe.carries_link = True
        self.peer = peer
        self.called = peer
        """What the other end calls itself; `peer` is where we reach it."""
        self.peer_log = peer_log
        self.session = session
        self.topics = topics or ["**"]
        self.rights = rights
        self.active = False
        self._wanted: Matcher[bool] = Matcher()
        for filter in self.topics:
            self._wanted.add(filter, True)
        self._out: dict[Topic, Outgoing] = {}
        self._ready: deque[Topic] = deque()
        self._in_flight: dict[str, Sent] = {}
        self._in_flight_bytes = 0
        self._moved: dict[Topic, Outgoing] = {}
        self._numbers = 0
        self._failed = False

    # Sending

    def begin(self) -> None:
        """Sends from where the other end acknowledged, in every topic."""
        self.active = True
        for name in self.core.log.topics():
            self.grew(name.environment, name.name)

    def grew(self, environment: str, topic: str) -> None:
        """The topic may have something for the other end."""
        if not self.active or not self._wanted.match(topic):
            return
        if self.rights is not None and not self.rights.may_use(environment):
            return
        key = environment, topic
        out = self._outgoing(key)
        if not out.queued and not out.refused:
            out.queued = True
            self._ready.append(key)

    def _outgoing(self, key: Topic) -> Outgoing:
        out = self._out.get(key)
        if out is None:
            out = self._out[key] = Outgoing(self._stored(*key))
        return out

    def _stored(self, environment: str, topic: str) -> int:
        stored = self.core.state.get(("link", self.peer_log.hex(), environment, topic))
        bounds = self.core.log.bounds(environment, topic) or (0, 0)
        return min(max(stored if isinstance(stored, int) else 0, bounds[0]), bounds[1])

    def pump(self) -> None:
        """Sends while there is something, and room in the window."""
        while self._ready and not self.pipe.blocked and self._in_flight_bytes < WINDOW_BYTES:
            key = self._ready.popleft()
            if self._send(key):
                self._ready.append(key)
            else:
                self._out[key].queued = False

    def came(self, environment: str, topic: str, offsets: list[int]) -> None:
        """Here stands now what the other end has sent: it needs none of it back, whoever published it."""
        key = environment, topic
        out = self._outgoing(key)
        if offsets and consecutive(offsets, out.next):
            self._skip(key, out, out.next + len(offsets))

    def _send(self, key: Topic) -> bool:
        out, log = self._out[key], self.core.log
        environment, topic = key
        until = self._held_until(key, out)
        if self.core.now < until:
            if not out.held or out.held > until:
                out.held = until
                self.core.later(until, lambda: self._let_go(key, out))
            return False
        out.held = 0.0
        settled = self.core.arrivals.settled_up_to(environment, topic)
        most = MOST_EVENTS if settled is None else min(MOST_EVENTS, settled - out.next)
        if most <= 0:
            return False  # `grew` comes when there is more
        try:
            records = log.read(environment, topic, out.next, max_bytes=BATCH_BYTES, max_records=most)
        except (OffsetsLost, LogCorrupt) as lost:
            self._skip(key, out, lost.last + 1)
            return True
        if not len(records):
            return False
        for first, end, origin, theirs in runs(records, self.peer_log):
            if theirs:
                self._skip(key, out, records.first + end)
            else:
                self._forward(key, out, records, first, end, origin)
        return True

    def _held_until(self, key: Topic, out: Outgoing) -> float:
        # Each message costs both servers a commit, a sync and an acknowledgement, however little is in it.
        last = out.last
        if last is None or (not out.sent and last.count < BUSY_EVENTS):
            return 0.0
        waiting = (self.core.log.bounds(*key) or (0, 0))[1] - out.next
        if waiting >= MOST_EVENTS or waiting * last.size >= BATCH_BYTES * last.count:
            return 0.0
        return last.at + (HOLD_S if out.sent else PACE_S)

    def _let_go(self, key: Topic, out: Outgoing) -> None:
        if out.held:
            self.grew(*key)

    def _skip(self, key: Topic, out: Outgoing, behind: int) -> None:
        # Nothing of this is for the other end.
        out.next = behind
        if out.sent:
            out.sent[-1].behind = behind
        else:
            self._acknowledge(key, out, behind)

    def _forward(self, key: Topic, out: Outgoing, records: Records, begun: int, end: int, origin: bytes | None) -> None:
        core, first, behind = self.core, records.first + begun, records.first + end
        log_id = core.log.log_id
        if origin is not None:
            log_id, first = origin[:16], _offset(origin)
        way = [*(core.ways.way(log_id) if origin is not None else ()), Server(core.options.urn, core.options.port)]
        if len(way) > MOST_HOPS:
            core.counts.too_far += end - begun
            self._skip(key, out, behind)
            return
        self._numbers += 1
        seq = f"f{self._numbers}"
        since = None
        if origin is None:
            since, out.own_end = out.own_end, behind
        frame = events_frame(self._head(seq, key, log_id, first, way, since), records, begun, end, True)
        sent = self._in_flight[seq] = Sent(key, behind, end - begun, len(frame), core.now)
        self._in_flight_bytes += len(frame)
        out.next = behind
        out.sent.append(sent)
        out.last = sent
        core.counts.bridged_out += end - begun
        self.pipe.write(frame)

    def _head(self, seq: str, key: Topic, origin: bytes, first: int, way: list[Server], since: int | None) -> bytes:
        entries: dict[str, object] = {
            "ClientId": self.session[0],
            "SessionId": self.session[1],
            "Environment": key[0],
            "Topic": key[1],
            "Origin": origin,
            "Offset": first,
            "BridgeServers": way,
        }
        if since is not None and since < first:
            entries["Since"] = since
        return protocol.events_head(Command.ASYNC_MESSAGE_TO_SERVER, seq, entries)

    def acknowledged(self, message: Message) -> bool:
        """The other end has on disk what one of our messages brought; or refused it. False if it was none of ours."""
        sent = self._in_flight.pop(message.seq, None)
        if sent is None:
            return False
        out = self._out[sent.key]
        self._in_flight_bytes -= sent.size
        if message.status == Status.SUCCESS:
            # What the other end had already is acknowledged before what it still writes: only the first ones count.
            sent.done = True
            while out.sent and out.sent[0].done:
                self._acknowledge(sent.key, out, out.sent.popleft().behind)
        elif message.status == Status.ACL_FAIL:
            out.refused = message.description or "refused"
        else:
            # It could not keep them now (a full disk): the link begins anew, from what was acknowledged.
            self.pipe.close()
        self._let_go(sent.key, out)
        self.pump()
        return True

    def _acknowledge(self, key: Topic, out: Outgoing, behind: int) -> None:
        if not out.refused and behind > out.acknowledged:
            out.acknowledged = behind
            self._moved[key] = out

    def store(self) -> None:
        """Keeps how far the other end is: what it gets again after a crash it knows by origin and offset."""
        moved, self._moved = self._moved, {}
        for key, out in moved.items():
            self.core.state.put(("link", self.peer_log.hex(), *key), out.acknowledged)

    @property
    def behind(self) -> int:
        """Events that the other end does not have yet."""
        total = 0
        for (environment, topic), out in self._out.items():
            bounds = self.core.log.bounds(environment, topic)
            total += max(0, bounds[1] - out.acknowledged) if bounds is not None else 0
        return total

    @property
    def refused(self) -> str:
        """Why the other end does not take some topic, if it is so."""
        return next((out.refused for out in self._out.values() if out.refused), "")

    # Receiving

    def received(self, message: Message, body: Forward) -> None:
        """Events from the other end: those that are new are appended; all are acknowledged once they are on disk."""
        if self.rights is not None and not (
            self.rights.may_use(body.environment) and self.rights.may_publish(body.topic)
        ):
            why = f"{body.topic} of {body.environment} may not be sent here"
            self._refuse(message, body, why, Status.ACL_FAIL, ErrorCode.UNAUTHORIZED_PUBLISH)
            return
        if self._failed:
            return
        bundle = Bundle(body, message.seq)
        self.pipe.in_flight_bytes += message.size
        try:
            self.core.arrivals.take(
                bundle, self.came, lambda known, pending: self._kept(message, bundle, known, pending)
            )
        except EchomeshError as error:
            self._not_kept(message, body, error)
        except BaseException:
            self.pipe.in_flight_bytes -= message.size
            raise

    def _kept(self, message: Message, bundle: Bundle, known: bool, pending: Pending | None) -> None:
        try:
            if pending is not None:
                pending.result()
            if not known:
                raise LogError("what came before could not be kept: send it again")
        except EchomeshError as error:
            self._not_kept(message, bundle.body, error)
        else:
            self.pipe.in_flight_bytes -= message.size
            self.pipe.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, message.seq, self._ack(bundle.body, bundle.behind))

    def _not_kept(self, message: Message, body: Forward, error: Exception) -> None:
        # What follows on this link would be out of order: all of it comes again over the next one.
        self._failed = True
        self.pipe.in_flight_bytes -= message.size
        self._refuse(message, body, str(error), Status.FAIL)
        self.pipe.close()

    def _refuse(
        self, message: Message, body: Forward, why: str, status: Status, error: ErrorCode = ErrorCode.NONE
    ) -> None:
        ack = self._ack(body, body.offset)
        command = Command.ASYNC_MESSAGE_TO_CLIENT_ACK
        self.pipe.send(command, message.seq, ack, status=status, error=error, description=why)

    def _ack(self, body: Forward, behind: int) -> Ack:
        client_id, session_id = self.session
        return Ack(client_id, session_id, body.environment, body.topic, behind, is_client=False, origin=body.origin)


def _offset(origin: bytes) -> int:
    return int.from_bytes(origin[16:24], "little", signed=True)
