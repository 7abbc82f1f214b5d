"""Delivery: from the log to a session, in batches, as long as there is credit. What waits, waits in the log."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Final

from echomesh.errors import LogCorrupt, OffsetsLost
from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Deliver, Notice
from echomesh.mesh.codes import Command
from echomesh.native.mesh_frames import events_frame

if TYPE_CHECKING:
    from echomesh.mesh.core import MeshCore
    from echomesh.mesh.session import Session

GROUP_BATCHES: Final = 2  # that one member of a group has at a time
LOST_BYTES: Final = 64  # what a notice of lost events counts for
MOST_WAITING: Final = 1000  # refused events of a share, that wait for their time


class Batch:
    """A message with events, as a session has to acknowledge it: its bytes are free when none of them is left."""

    __slots__ = ("left", "size")

    def __init__(self, left: int, size: int) -> None:
        self.left = left
        self.size = size


class Grant:
    """What one session has of a topic and not yet acknowledged: runs of offsets in order, and their messages."""

    __slots__ = ("bytes", "delivery", "queued", "runs", "share")

    def __init__(self, share: Share, delivery: Delivery) -> None:
        self.share = share
        self.delivery = delivery
        self.runs: list[tuple[int, int, Batch]] = []
        self.bytes = 0
        self.queued = False

    @property
    def events(self) -> int:
        """How many it has."""
        return sum(end - first for first, end, _ in self.runs)

    def acknowledge(self, first: int, end: int) -> int:
        """Takes [first, end) off; how many bytes that frees."""
        if first >= end:
            return 0
        freed = 0
        kept = []
        runs = self.runs
        at = 0
        while at < len(runs) and runs[at][0] < end:
            begun, ended, batch = runs[at]
            at += 1
            low, high = max(begun, first), min(ended, end)
            batch.left -= max(0, high - low)
            if not batch.left:
                freed += batch.size
            if begun < low:
                kept.append((begun, min(low, ended), batch))
            if high < ended and low < high:
                kept.append((high, ended, batch))
        runs[:at] = kept
        self.bytes -= freed
        return freed


class Share:
    """The place of one subscriber, or of one group, in one topic.

    `next` is the first offset that nobody was given; `returned` are runs that come again, because the session that had
    them left or refused them.
    """

    def __init__(self, environment: str, owner: tuple[str, str], topic: str, at: int) -> None:
        self.environment = environment
        self.owner = owner
        """("client", its id) or ("group", its name)"""
        self.topic = topic
        self.next = at
        self.stored = at
        self.returned: list[tuple[int, int]] = []
        self.waiting: set[int] = set()
        """Refused ones whose time has not come yet."""
        self.tries: dict[int, int] = {}
        self.grants: list[Grant] = []

    @property
    def acknowledged(self) -> int:
        """Everything before this was dealt with."""
        lowest = self.next
        for grant in self.grants:
            if grant.runs and grant.runs[0][0] < lowest:
                lowest = grant.runs[0][0]
        if self.returned and self.returned[0][0] < lowest:
            lowest = self.returned[0][0]
        return min(lowest, *self.waiting) if self.waiting else lowest

    def give_back(self, grant: Grant) -> None:
        """A session leaves: what it had comes again, to another one or to the next."""
        for first, end, _ in grant.runs:
            insort(self.returned, (first, end))
        grant.runs.clear()
        self.grants.remove(grant)

    def give_again(self, offset: int) -> None:
        """A refused event goes out once more."""
        insort(self.returned, (offset, offset + 1))

    def goes_on_at(self, offset: int) -> None:
        """Nothing before `offset` needs to come again, but for what was refused."""
        kept = bisect_left(self.returned, (offset,))
        again = [run for run in self.returned[:kept] if run[0] in self.tries]
        if kept and self.returned[kept - 1][1] > offset:
            again.append((offset, self.returned[kept - 1][1]))
        self.returned[:kept] = again

    def forget_tries(self, first: int, end: int) -> None:
        """What was refused of [first, end) was dealt with, unless it is still to come again."""
        coming = self.waiting.union(run[0] for run in self.returned)
        self.tries = {at: tries for at, tries in self.tries.items() if not first <= at < end or at in coming}


class Delivery:
    """What goes to one session."""

    def __init__(self, session: Session, core: MeshCore, batch: int) -> None:
        self.session = session
        self.core = core
        self.batch = batch
        self.grants: dict[str, Grant] = {}
        self.unacknowledged = 0
        self.held = 0
        """Subscriptions that are not answered yet: events follow the answer."""
        self._ready: deque[Grant] = deque()

    def add(self, share: Share) -> Grant:
        """Events of this topic go here from now on."""
        grant = Grant(share, self)
        share.grants.append(grant)
        self.grants[share.topic] = grant
        self.wake(grant)
        return grant

    def remove(self, grant: Grant) -> None:
        """No more of this topic; what was not acknowledged goes back to the share."""
        del self.grants[grant.share.topic]
        self._freed(grant.bytes)
        grant.bytes = 0
        grant.share.give_back(grant)

    def wake(self, grant: Grant) -> None:
        """There may be something to send."""
        if not grant.queued:
            grant.queued = True
            self._ready.append(grant)
            self.core.to_pump[self] = None

    def pump(self) -> None:
        """Sends while there is something, and credit."""
        if self.held:
            return
        ready, connection = self._ready, self.session.connection
        while ready and not connection.blocked and not connection.closing:
            grant = ready[0]
            if self.grants.get(grant.share.topic) is not grant:
                grant.queued = False
                ready.popleft()
                continue
            sent = self._send(grant)
            if sent is None:
                return  # no credit: an acknowledgement goes on here
            ready.popleft()
            if sent:
                ready.append(grant)
            else:
                grant.queued = False

    def _send(self, grant: Grant) -> bool | None:
        # True when there may be more; None without credit.
        share = grant.share
        if share.owner[0] == "group" and grant.events >= GROUP_BATCHES * self.batch:
            return False  # the others of the group may have what comes next; an acknowledgement wakes this one
        if share.returned:
            first, end = share.returned[0]
            tries = share.tries.get(first)
        elif len(share.waiting) >= MOST_WAITING:
            return False  # whichever of them goes out again wakes the share
        else:
            first, end, tries = share.next, 1 << 62, None
        batch = self.core.batches.get(share.environment, share.topic, first, 1 if tries else self.batch, end, tries)
        if batch is None:
            return False
        frame, behind, size = batch
        if self.unacknowledged and self.unacknowledged + size > self.core.options.credit_bytes:
            return None
        if share.returned:
            if behind >= end:
                share.returned.pop(0)
            else:
                share.returned[0] = (behind, end)
        else:
            share.next = behind
        insort(grant.runs, (first, behind, Batch(behind - first, size)))
        grant.bytes += size
        self.unacknowledged += size
        self.core.counts.delivered += behind - first
        self.session.connection.write(frame)
        bounds = self.core.log.bounds(share.environment, share.topic)
        return bool(share.returned) or bounds is None or behind < bounds[1]

    def acknowledge(self, topic: str, offset: int, first: int | None) -> bool:
        """Whether the topic is one of this session's; everything before `offset` was dealt with."""
        grant = self.grants.get(topic)
        if grant is None:
            return False
        share = grant.share
        freed = grant.acknowledge(0 if first is None else first, min(offset, share.next))
        if share.owner[0] == "client":
            if first is None:
                share.goes_on_at(min(offset, share.next))
            elif share.waiting:
                share.waiting = {at for at in share.waiting if not first <= at < offset}
                self.wake(grant)
        if share.tries:
            share.forget_tries(first or 0, offset)
        self._freed(freed)
        if share.owner[0] == "group":
            self.wake(grant)
        self.core.store(share)
        return True

    def release(self, topic: str, offset: int) -> Share | None:
        """The refused event at `offset` is no longer this session's; None if it was not. It waits for its time."""
        grant = self.grants.get(topic)
        if grant is None or not any(first <= offset < end for first, end, _ in grant.runs):
            return None
        self._freed(grant.acknowledge(offset, offset + 1))
        grant.share.waiting.add(offset)
        return grant.share

    def _freed(self, size: int) -> None:
        # There is credit again for those who wait for it.
        self.unacknowledged -= size
        if self._ready:
            self.core.to_pump[self] = None

    def notice(self, kind: str, topics: list[str]) -> None:
        """Tells the client what it did not ask for."""
        frame = framed(protocol.encode(Command.NOTICE, f"notice-{kind}", Notice(kind, topics)))
        self.session.connection.write(frame)


class Batches:
    """Messages to clients, encoded once for all who are at the same place in a topic."""

    KEPT: Final = 256
    KEPT_BYTES: Final = 8 << 20

    def __init__(self, core: MeshCore) -> None:
        self.core = core
        self._kept: dict[tuple[str, str, int, int], tuple[bytes, int, int]] = {}
        self._bytes = 0

    def get(
        self, environment: str, topic: str, offset: int, most: int, until: int, tries: int | None
    ) -> tuple[bytes, int, int] | None:
        """(frame, offset behind it, bytes that it counts for) of the events from `offset` on; None for none."""
        key = (environment, topic, offset, most)
        shared = until == 1 << 62 and tries is None
        if shared and (found := self._kept.get(key)) is not None:
            return found
        made = self._make(environment, topic, offset, min(most, until - offset), until, tries)
        if made is not None and shared:
            self._keep(key, made)
        return made

    def _keep(self, key: tuple[str, str, int, int], made: tuple[bytes, int, int]) -> None:
        self._kept[key] = made
        self._bytes += made[2]
        while len(self._kept) > self.KEPT or (self._bytes > self.KEPT_BYTES and len(self._kept) > 1):
            self._bytes -= self._kept.pop(next(iter(self._kept)))[2]

    def _make(
        self, environment: str, topic: str, offset: int, most: int, until: int, tries: int | None
    ) -> tuple[bytes, int, int] | None:
        options, log = self.core.options, self.core.log
        try:
            records = log.read(environment, topic, offset, max_bytes=options.batch_bytes, max_records=most)
        except (OffsetsLost, LogCorrupt) as lost:
            behind = min(lost.last + 1, until)
            body = Deliver(environment, topic, offset, lost=(offset, behind))
            return framed(self._encode(body, topic, offset)), behind, LOST_BYTES
        if not len(records):
            return None
        way, count = self.core.ways.of(records)
        if count < 0:
            count = len(records)
        entries: dict[str, object] = {
            "Environment": environment,
            "Topic": topic,
            "Offset": offset,
            "BridgeServers": way,
        }
        if tries is not None:
            entries["Tries"] = tries
        head = protocol.events_head(Command.ASYNC_MESSAGE_TO_CLIENT, f"{topic}@{offset}", entries)
        frame = events_frame(head, records, 0, count)
        return frame, offset + count, len(frame)

    def _encode(self, body: Deliver, topic: str, offset: int) -> bytes:
        return protocol.encode(Command.ASYNC_MESSAGE_TO_CLIENT, f"{topic}@{offset}", body)
