"""Which subscribers get what a publisher sends: endpoints of all participants, matched by topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from echomesh.data.messages import Endpoint
from echomesh.topics import Matcher, matches, parse_filter, parse_topic

MAX_ENDPOINTS: Final = 8192
"""Publishers and subscribers of one participant, together."""


@dataclass(frozen=True, slots=True)
class Member:
    """A publisher or subscriber; `owner` is its participant, and ids are only its participant's to give."""

    owner: bytes
    id: bytes
    topic: str
    port: int = 0

    def told(self) -> Endpoint:
        """As other participants are told."""
        return Endpoint(self.id, self.topic, self.port)


Key: TypeAlias = tuple[bytes, bytes]
Pair: TypeAlias = tuple[Member, Member]
"""A publisher and a subscriber that match."""


class Matching:
    """Publishers and subscribers, and which of them match. Every change tells the pairs that it concerns."""

    def __init__(self) -> None:
        self._publishers: dict[Key, Member] = {}
        self._subscribers: dict[Key, Member] = {}
        self._by_topic: dict[str, dict[Key, Member]] = {}
        self._filters: Matcher[Member] = Matcher()
        self._counts: dict[bytes, int] = {}

    def publishers(self, owner: bytes) -> list[Member]:
        """All of a participant."""
        return [member for member in self._publishers.values() if member.owner == owner]

    def subscribers(self, owner: bytes) -> list[Member]:
        """All of a participant."""
        return [member for member in self._subscribers.values() if member.owner == owner]

    def member(self, owner: bytes, id: bytes, publishes: bool) -> Member:
        """The publisher or subscriber of that id."""
        return (self._publishers if publishes else self._subscribers)[owner, id]

    def owners(self) -> set[bytes]:
        """The participants that have publishers or subscribers."""
        return set(self._counts)

    def room(self, owner: bytes) -> bool:
        """Whether a participant may have one more."""
        return self._counts.get(owner, 0) < MAX_ENDPOINTS

    def insert_publisher(self, owner: bytes, endpoint: Endpoint) -> list[Pair]:
        """A publisher came; with whom it matches. `BadTopic` where its topic is none."""
        member = Member(owner, endpoint.id, parse_topic(endpoint.topic), endpoint.port)
        if (owner, member.id) in self._publishers:
            return []
        self._publishers[owner, member.id] = member
        self._by_topic.setdefault(member.topic, {})[owner, member.id] = member
        self._count(owner, 1)
        return [(member, subscriber) for subscriber in self._of(member)]

    def insert_subscriber(self, owner: bytes, endpoint: Endpoint) -> list[Pair]:
        """A subscriber came; with whom it matches. `BadTopic` where its filter is none."""
        member = Member(owner, endpoint.id, parse_filter(endpoint.topic), endpoint.port)
        if (owner, member.id) in self._subscribers:
            return []
        self._subscribers[owner, member.id] = member
        self._filters.add(member.topic, member)
        self._count(owner, 1)
        return [(publisher, member) for publisher in self._for(member)]

    def remove_publisher(self, owner: bytes, id: bytes) -> list[Pair]:
        """A publisher went; with whom it matched."""
        member = self._publishers.pop((owner, id), None)
        if member is None:
            return []
        named = self._by_topic[member.topic]
        del named[owner, id]
        if not named:
            del self._by_topic[member.topic]
        self._count(owner, -1)
        return [(member, subscriber) for subscriber in self._of(member)]

    def remove_subscriber(self, owner: bytes, id: bytes) -> list[Pair]:
        """A subscriber went; with whom it matched."""
        member = self._subscribers.pop((owner, id), None)
        if member is None:
            return []
        self._filters.remove(member.topic, member)
        self._count(owner, -1)
        return [(publisher, member) for publisher in self._for(member)]

    def _count(self, owner: bytes, change: int) -> None:
        self._counts[owner] = self._counts.get(owner, 0) + change
        if not self._counts[owner]:
            del self._counts[owner]

    def _of(self, publisher: Member) -> list[Member]:
        return sorted(self._filters.match(publisher.topic), key=_order)

    def _for(self, subscriber: Member) -> list[Member]:
        topics: Iterable[str] = (subscriber.topic,)
        if "*" in subscriber.topic:
            topics = [topic for topic in self._by_topic if matches(subscriber.topic, topic)]
        return [publisher for topic in topics for publisher in self._by_topic.get(topic, {}).values()]


def _order(member: Member) -> Key:
    return member.owner, member.id
