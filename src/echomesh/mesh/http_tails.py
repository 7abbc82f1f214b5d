"""Subscriptions that read the log from a place that the subscriber itself keeps.

A tail holds where it is in each topic and nothing of what is there: who reads slowly, waits in the log. The commit
wakes it; nothing is asked again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from echomesh.errors import BadEvent, LogCorrupt, OffsetsLost
from echomesh.mesh import http_sse as sse
from echomesh.mesh import http_token
from echomesh.mesh.http_problems import Problem
from echomesh.topics import Matcher, matches

if TYPE_CHECKING:
    from echomesh.mesh.core import MeshCore
    from echomesh.native.log_record import Records

BATCH_BYTES: Final = 64 << 10
SHORT_TOKEN: Final = 256
"""Up to so many characters, a token goes with each event; a longer one now and then."""
DATA_FOR_TOKEN: Final = 4
"""Of so many times its size in events, or with the heartbeat."""


class Tails:
    """The tails of a server, found by the topics that grow."""

    def __init__(self, core: MeshCore) -> None:
        self.core = core
        self.rendered = sse.Rendered()
        self._matchers: dict[str, Matcher[Tail]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._seen = 0
        core.listeners.append(self.grew)

    def close(self) -> None:
        """Listens no more."""
        self.core.listeners.remove(self.grew)

    def grew(self, environment: str, topic: str) -> None:
        """The topic has something new."""
        if (matcher := self._matchers.get(environment)) is not None:
            for tail in matcher.match(topic):
                tail.wake(topic)

    def add(self, tail: Tail) -> None:
        """Wakes the tail from now on."""
        self._matchers.setdefault(tail.environment, Matcher()).add(tail.filter, tail)

    def remove(self, tail: Tail) -> None:
        """No more."""
        self._matchers[tail.environment].remove(tail.filter, tail)

    def number(self, environment: str, topic: str) -> int:
        """The topic's number in the log."""
        if (environment, topic) not in self._numbers:
            self._look()
        return self._numbers[environment, topic]

    def matching(self, environment: str, filter: str) -> list[str]:
        """The topics that there are."""
        self._look()
        if "*" not in filter:
            return [filter] if (environment, filter) in self._numbers else []
        return [name for of, name in self._numbers if of == environment and matches(filter, name)]

    def _look(self) -> None:
        topics = self.core.log.topics()
        for found in topics[self._seen :]:
            self._numbers[found.environment, found.name] = found.number
        self._seen = len(topics)


class Tail:
    """One subscriber's places in the topics of a filter, and what comes next of them."""

    def __init__(self, tails: Tails, environment: str, filter: str, *, position: bool = False) -> None:
        self.environment = environment
        self.filter = filter
        self.woken = asyncio.Event()
        self.ended = False
        self._tails = tails
        self._log = tails.core.log
        self._position = position
        self._places: dict[int, int] = {}
        self._ready: dict[str, None] = {}
        self._told = ""
        self._since_told = 0
        self._first = b""

    # Where to begin

    def begin(self, start: Any, most_topics: int) -> None:
        """Begins at `start`, as SUBSCRIBE has it: `now`, `earliest`, `last`, an offset, or a time."""
        topics = self._tails.matching(self.environment, self.filter)
        if len(topics) > most_topics:
            raise Problem(400, f"{len(topics)} topics match, and at most {most_topics} may: narrow the filter")
        self._begin({topic: self._place(topic, start) for topic in topics})

    def resume(self, token: str) -> None:
        """Goes on where the token says; topics that it does not know were born since, and begin at 0."""
        kept = http_token.decode(token, self._log.log_id)
        places = {}
        for topic in self._tails.matching(self.environment, self.filter):
            earliest, end = self._log.bounds(self.environment, topic) or (0, 0)
            number = self._tails.number(self.environment, topic)
            places[topic] = earliest if kept is None else min(kept.get(number, 0), end)
        if kept is None:
            self._first = sse.notice("lost", reason="the log is another one: all of it comes")
        self._begin(places)

    def _begin(self, places: Mapping[str, int]) -> None:
        for topic, place in places.items():
            self._places[self._tails.number(self.environment, topic)] = place
            self._ready[topic] = None
        self._places = dict(sorted(self._places.items()))
        self._tails.add(self)

    def _place(self, topic: str, start: Any) -> int:
        earliest, end = self._log.bounds(self.environment, topic) or (0, 0)
        if start is None or start == "now":
            return end
        if start == "earliest":
            return earliest
        if start == "last":
            return max(earliest, end - 1)
        if isinstance(start, datetime):
            return self._log.offset_at(self.environment, topic, int(start.timestamp() * 1e9))
        return min(max(int(start), 0), end)

    # What comes

    def wake(self, topic: str) -> None:
        """The topic has something new, or is new itself."""
        self._ready[topic] = None
        self.woken.set()

    def hello(self) -> bytes:
        """What goes out first: where the subscriber is, so that it can come back before anything happened."""
        first, self._first = self._first, b""
        return first + self.beat()

    def beat(self) -> bytes:
        """The place, if the subscriber was not told it; else a comment."""
        token = self._token()
        if not token or token == self._told:
            return b":\n\n"
        self._told, self._since_told = token, 0
        return sse.block(b"", token)

    def take(self) -> bytes:
        """The next events, some 64 KiB of them or one; empty when there are none."""
        while self._ready:
            topic = next(iter(self._ready))
            del self._ready[topic]
            number = self._tails.number(self.environment, topic)
            if number not in self._places:
                self._places = dict(sorted({**self._places, number: 0}.items()))
            if made := self._read(topic, number):
                self._ready[topic] = None  # behind the others: there may be more
                return made
        return b""

    def _read(self, topic: str, number: int) -> bytes:
        place = self._places[number]
        try:
            records = self._log.read(self.environment, topic, place, max_bytes=BATCH_BYTES)
        except (OffsetsLost, LogCorrupt) as lost:
            self._places[number] = lost.last + 1
            return self._lost(topic, place, lost.last + 1, str(lost))
        return b"".join(self._blocks(topic, number, records))

    def _blocks(self, topic: str, number: int, records: Records) -> list[bytes]:
        blocks = []
        for offset, _, _, stored in records:
            self._places[number] = offset + 1
            try:
                data = self._tails.rendered.get(self.environment, topic, offset, self._position, stored)
            except BadEvent as error:
                blocks.append(self._lost(topic, offset, offset + 1, str(error)))
            else:
                blocks.append(sse.block(data, self._id(len(data))))
        self._tails.core.counts.delivered += len(blocks)
        return blocks

    def _lost(self, topic: str, first: int, behind: int, reason: str) -> bytes:
        return sse.lost(topic, first, behind, reason, self._id(len(reason)))

    def _id(self, size: int) -> str:
        """The token for an event of this size, if it is worth it."""
        self._since_told += size
        if len(self._told) > SHORT_TOKEN and self._since_told < DATA_FOR_TOKEN * len(self._told):
            return ""
        token = self._token()
        if len(token) <= SHORT_TOKEN or self._since_told >= DATA_FOR_TOKEN * len(token):
            self._told, self._since_told = token, 0
            return token
        return ""

    def _token(self) -> str:
        # With more topics than fit, the last token stays in force: then more comes again than would have to.
        token = http_token.encode(self._log.log_id, self._places.items())
        return token if len(token) <= http_token.MOST_CHARACTERS else ""

    def close(self) -> None:
        """It is not woken any more."""
        self._tails.remove(self)
