"""Events that come over bridges: each is appended once, whatever the way and however often it comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from echomesh.errors import BadMessage, EchomeshError
from echomesh.mesh.checks import sound, topic_of
from echomesh.mesh.codes import ENVIRONMENTS
from echomesh.mesh.ranges import OriginRanges
from echomesh.mesh.refusal import Refusal, failed
from echomesh.mesh.ways import MOST_HOPS
from echomesh.native.mesh_frames import arrived, origin_of_event

if TYPE_CHECKING:
    from echomesh.mesh.bodies import Forward
    from echomesh.mesh.core import MeshCore
    from echomesh.mesh.ports import Pending

Kept = Callable[[bool, "Pending | None"], None]
"""Told whether all of a message is on disk, and what knows why if it is not."""
Came = Callable[[str, str, list[int]], None]
"""Told the offsets that events of a topic got."""
Settled = Callable[["Pending"], None]
Key = tuple[bytes, str, str]  # origin, environment, topic


def _check(body: Forward) -> None:
    if body.environment not in ENVIRONMENTS:
        raise failed(f"Environment is one of {', '.join(ENVIRONMENTS)}")
    if len(body.origin) != 16 or body.offset < 0:
        raise failed("Origin is the 16 bytes of a log id, Offset not negative")
    if body.since is not None and not 0 <= body.since <= body.offset:
        raise failed("Since is an offset, at most Offset")
    if len(body.bridge_servers) > MOST_HOPS or any(len(server.urn) > 255 for server in body.bridge_servers):
        raise failed(f"BridgeServers are at most {MOST_HOPS}, each with a Urn of at most 255 characters")


class Bundle:
    """The events of a message from another server, where they stand in it."""

    def __init__(self, body: Forward, seq: str) -> None:
        found = arrived(body.cloud_events)
        if found is None:
            raise BadMessage("the body of ASYNC_MESSAGE_TO_SERVER: CloudEvents is no array", seq)
        self.body = body
        self.events, self.doubtful = found
        self.behind = body.offset + len(self.events)


class Arrivals:
    """Decides by origin and offset alone which events are new here."""

    def __init__(self, core: MeshCore) -> None:
        self.core = core
        self.ranges = OriginRanges(core.state, core.log.log_id)
        self._last: dict[Key, Pending] = {}
        self._flying: Counter[tuple[str, str]] = Counter()
        self._ends: dict[tuple[str, str], int] = {}
        self._grown: dict[tuple[str, str], None] = {}
        """Topics that got something over a bridge."""

    def take(self, bundle: Bundle, came: Came, kept: Kept) -> None:
        """Appends what is new of this; calls `kept` once all of it is on disk, with what knows how that went."""
        core, ranges, body = self.core, self.ranges, bundle.body
        topic = topic_of(body.topic)
        key = (body.origin, body.environment, topic)
        _check(body)
        core.topics.admit(body.environment, topic)
        self._load(body.environment, topic)
        count = len(bundle.events)
        missing = ranges.missing(*key, body.offset, count)

        def settled(pending: Pending) -> None:
            # Part of it may have been on its way before, and have failed since.
            known = not ranges.missing(*key, body.offset, count) and not ranges.claimed(*key, body.offset, count)
            kept(known, pending)

        if missing:
            core.ways.came(body.origin, list(body.bridge_servers))
            pending = self._append(bundle, topic, missing)
            self._flying[body.environment, topic] += 1
            # From here on they count as taken, so that the same events from elsewhere are not appended twice.
            for first, end in missing:
                ranges.claim(*key, first, end - first)
            self._last[key] = pending
            core.when_done(pending, lambda done: self._done(key, missing, body, done, came, settled))
        elif ranges.claimed(*key, body.offset, count):
            core.when_done(self._last[key], settled)
        else:
            kept(True, None)

    def settled_up_to(self, environment: str, topic: str) -> int | None:
        """While events are on their way from a bridge to the disk: behind the last one before them that links know of.

        A link that read further would only find what it is about to be told. Otherwise None.
        """
        return self._ends.get((environment, topic), 0) if (environment, topic) in self._flying else None

    def _landed(self, environment: str, topic: str, behind: int) -> None:
        key = environment, topic
        self._ends[key] = max(self._ends.get(key, 0), behind)
        self._flying[key] -= 1
        if not self._flying[key]:
            del self._flying[key], self._ends[key]

    def _append(self, bundle: Bundle, topic: str, missing: list[tuple[int, int]]) -> Pending:
        body, events = bundle.body, bundle.events
        doubtful = [body.offset + number for number in bundle.doubtful]
        refused = {
            offset
            for first, end in missing
            for offset in doubtful
            if first <= offset < end and not self._sound(events[offset - body.offset])
        }
        log, environment, count = self.core.log, body.environment, len(events)
        if not refused and missing == [(body.offset, bundle.behind)]:
            origin = origin_of_event(body.origin, body.offset)
            pending = log.append_many(topic, events, environment=environment, origins=origin)
        else:
            offsets = [offset for first, end in missing for offset in range(first, end) if offset not in refused]
            some = [events[offset - body.offset] for offset in offsets]
            origins = [origin_of_event(body.origin, offset) for offset in offsets]
            count = len(some)
            pending = log.append_many(topic, some, environment=environment, origins=origins)
        self.core.counts.bridged_in += count
        return pending

    def _sound(self, event: bytes) -> bool:
        # What breaks the standard is left out alone, and counted: it would not be taken the next time either.
        try:
            sound(event)
        except Refusal:
            self.core.counts.refused_events += 1
            return False
        return True

    def _load(self, environment: str, topic: str) -> None:
        self.ranges.load(
            environment, topic, lambda offset: self.core.log.read(environment, topic, offset, max_bytes=1 << 20)
        )

    def _done(
        self, key: Key, missing: list[tuple[int, int]], body: Forward, pending: Pending, came: Came, settled: Settled
    ) -> None:
        _, environment, topic = key
        try:
            offsets = pending.result()
        except EchomeshError:
            for first, end in missing:
                self.ranges.release(*key, first, end - first)
            self._landed(environment, topic, 0)
        else:
            taken: list[int] = offsets if isinstance(offsets, list) else []
            behind = max(taken, default=-1) + 1
            for first, end in missing:
                self.ranges.accepted(*key, first, end - first, behind)
            if body.since is not None and 0 <= body.since < body.offset:
                self.ranges.cover(*key, body.since, body.offset)
            self._grown[environment, topic] = None
            self._landed(environment, topic, behind)
            came(environment, topic, taken)
        self.core.grew(environment, topic)
        if self._last.get(key) is pending:
            del self._last[key]
        settled(pending)

    def checkpoint(self) -> None:
        """Puts into the state what would have to be read again at the next start."""
        for environment, topic in self._grown:
            bounds = self.core.log.bounds(environment, topic)
            if bounds is not None:
                self.ranges.advance(environment, topic, bounds[1])
        self.ranges.checkpoint()
