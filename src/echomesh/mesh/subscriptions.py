"""Who is subscribed to what: filters, the topics that they match, and where each subscriber is in them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from echomesh.errors import BadEvent, BadTopic
from echomesh.events.rules import timestamp
from echomesh.mesh.codes import ErrorCode
from echomesh.mesh.delivery import Share
from echomesh.mesh.refusal import MOST_NAME_BYTES, failed, forbidden
from echomesh.topics import Matcher, parse_filter

if TYPE_CHECKING:
    from echomesh.mesh.core import MeshCore
    from echomesh.mesh.session import Session

Owner = tuple[str, str]
Topic = tuple[str, str]  # environment and name

NAMED_STARTS = ("now", "acknowledged", "earliest", "last")


class Subscriptions:
    """The live subscriptions of a server."""

    def __init__(self, core: MeshCore) -> None:
        self.core = core
        self.shares: dict[tuple[str, Owner, str], Share] = {}
        self._matchers: dict[str, Matcher[tuple[Session, Owner]]] = {}
        self._filters: dict[Session, set[tuple[str, Owner]]] = {}
        self._holders: dict[tuple[str, Owner, str], Session] = {}
        """The one session of a client that has a filter: the last that subscribed to it."""
        self._watchers: dict[Topic, list[Share]] = {}
        self._known: dict[Topic, None] = {(found.environment, found.name): None for found in core.log.topics()}
        self._owners: dict[str, set[Owner]] = {}
        """Who has subscriptions that are kept, by environment."""
        for kept in core.cursors.subscriptions():
            self._owners.setdefault(kept.environment, set()).add(kept.owner)

    def subscribe(self, session: Session, filters: Iterable[str], start: Any, group: str | None) -> None:
        """Subscribes the session; what is new is in the state afterwards, and must be synced before it is answered."""
        environment, owner = session.environment, _owner(session, group)
        parsed = self._allowed(session, filters)
        known = set(self.core.cursors.filters_of(environment, owner))
        self._check_room(session, owner, parsed, known)
        start = parse_start(start)
        matched = self._matched(environment, parsed, known)
        self._check_cursors(environment, owner, matched)
        for topic, new in matched.items():
            self._join(session, owner, topic, self._place(environment, owner, topic, start, new))
        for filter in parsed:
            self.core.cursors.subscribe(environment, owner, filter)
            self._listen(session, owner, filter)
        self._owners.setdefault(environment, set()).add(owner)

    def _check_room(self, session: Session, owner: Owner, wanted: list[str], known: set[str]) -> None:
        options = self.core.options
        live = self._filters.get(session, set()).union((filter, owner) for filter in wanted)
        if max(len(live), len(known.union(wanted))) > options.max_filters:
            raise failed(f"a subscriber has at most {options.max_filters} filters: unsubscribe from others first")
        owners = self._owners.get(session.environment, set())
        if owner not in owners and len(owners) >= options.max_subscribers:
            raise failed(f"{len(owners)} clients and groups have subscriptions in {session.environment}: it is full")

    def _check_cursors(self, environment: str, owner: Owner, topics: Iterable[str]) -> None:
        cursors, most = self.core.cursors, self.core.options.max_cursors
        if cursors.count + len(self._known) <= most:
            return
        new = sum(cursors.cursor(environment, owner, topic) is None for topic in topics)
        if cursors.count + new > most:
            raise failed(
                f"{cursors.count} places of subscribers in topics are kept, and {new} more are too many: name fewer "
                "topics, unsubscribe from others, or let the server have more (max_cursors)"
            )

    def _matched(self, environment: str, filters: list[str], known: set[str]) -> dict[str, bool]:
        """The topics that these filters match, and for each whether it is matched by new ones alone."""
        wild: Matcher[bool] = Matcher(remembered=0)
        found: dict[str, bool] = {}
        for filter in filters:
            if "*" in filter:
                wild.add(filter, filter not in known)
            elif (environment, filter) in self._known:
                found[filter] = filter not in known
        if len(wild):
            for there, topic in self._known:
                if there == environment and (matched := wild.match(topic)):
                    found[topic] = found.get(topic, True) and False not in matched
        return found

    def _allowed(self, session: Session, filters: Iterable[str]) -> list[str]:
        parsed = _parsed(filters)
        for filter in parsed:
            if not session.rights.may_subscribe(filter):
                raise forbidden(f"{session.client_id} may not subscribe to {filter}", ErrorCode.UNAUTHORIZED_SUBSCRIBE)
        return parsed

    def _place(self, environment: str, owner: Owner, topic: str, start: Any, new: bool) -> int | None:
        """Where to begin; None to go on where a live share is."""
        core = self.core
        live = (environment, owner, topic) in self.shares
        if live and owner[0] == "group":
            return None  # where a group is, is not for one of its members to say
        earliest, end = core.log.bounds(environment, topic) or (0, 0)
        stored = core.cursors.cursor(environment, owner, topic)
        if start is None or start == "acknowledged":
            if stored is not None:
                return None if live else min(stored, end)
            # A topic that is not known to a subscription that is has been born since.
            return end if new else 0
        if start == "now":
            return end
        if start == "earliest":
            return earliest
        if start == "last":
            return max(earliest, end - 1)
        if isinstance(start, int):
            return min(max(start, 0), end)
        return core.log.offset_at(environment, topic, int(start.timestamp() * 1e9))

    def _join(self, session: Session, owner: Owner, topic: str, at: int | None) -> None:
        key = (session.environment, owner, topic)
        share = self.shares.get(key)
        if share is None or at is not None:
            if share is not None:
                self._take_over(share, session)
                self._drop(share)
            place = at if at is not None else 0
            share = self.shares[key] = Share(session.environment, owner, topic, place)
            share.tries = self._tries(share)
            self._watchers.setdefault((session.environment, topic), []).append(share)
            self.core.cursors.set_cursor(session.environment, owner, topic, place)
        self._grant(session, share)

    def _grant(self, session: Session, share: Share) -> None:
        existing = session.delivery.grants.get(share.topic)
        if existing is not None:
            if existing.share is share:
                session.delivery.wake(existing)
                return
            # Overlapping filters deliver once; the newest subscription decides where from.
            session.delivery.remove(existing)
            self._leave(existing.share)
        if share.owner[0] == "client":
            self._take_over(share, session)
        session.delivery.add(share)

    def _take_over(self, share: Share, session: Session) -> None:
        """Whoever had the share has it no longer, and is told."""
        for grant in list(share.grants):
            grant.delivery.remove(grant)
            if grant.delivery.session is not session:
                grant.delivery.session.gone.add(share.topic)
                grant.delivery.notice("taken-over", [share.topic])

    def _listen(self, session: Session, owner: Owner, filter: str) -> None:
        if owner[0] == "client":
            before = self._holders.get((session.environment, owner, filter), session)
            if before is not session:
                self._ignore(before, owner, filter)
                before.delivery.notice("taken-over", [filter])
            self._holders[session.environment, owner, filter] = session
        matcher = self._matchers.setdefault(session.environment, Matcher())
        if matcher.add(filter, (session, owner)):
            self._filters.setdefault(session, set()).add((filter, owner))

    def _ignore(self, session: Session, owner: Owner, filter: str) -> None:
        """Topics that are born under this filter are not the session's any more."""
        kept = self._filters.get(session, set())
        if (filter, owner) in kept:
            kept.discard((filter, owner))
            self._matchers[session.environment].remove(filter, (session, owner))
            if self._holders.get((session.environment, owner, filter)) is session:
                del self._holders[session.environment, owner, filter]
        if not kept:
            self._filters.pop(session, None)

    def unsubscribe(self, session: Session, filters: Iterable[str], group: str | None) -> None:
        """Ends subscriptions of the client, and forgets where it was in topics that no other filter of it matches."""
        owner = _owner(session, group)
        # What a group has is not one's own: who may not subscribe to it may not end it either.
        for filter in _parsed(filters) if group is None else self._allowed(session, filters):
            self.core.cursors.unsubscribe(session.environment, owner, filter)
            self._ignore(session, owner, filter)
        left: Matcher[bool] = Matcher(remembered=0)
        for filter in self.core.cursors.filters_of(session.environment, owner):
            left.add(filter, True)
        if not len(left):
            self._owners.get(session.environment, set()).discard(owner)
        for topic in self.core.cursors.topics_of(session.environment, owner):
            if not left.match(topic):
                share = self.shares.get((session.environment, owner, topic))
                for grant in list(share.grants) if share is not None else ():
                    grant.delivery.remove(grant)
                if share is not None:
                    self._drop(share)
                self.core.cursors.forget(session.environment, owner, topic)
                self.core.state.delete(("tries", session.environment, *owner, topic))

    def leave(self, session: Session) -> None:
        """The session is gone; others of its groups get what it had."""
        for grant in list(session.delivery.grants.values()):
            session.delivery.remove(grant)
            self._leave(grant.share)
        for filter, owner in list(self._filters.get(session, ())):
            self._ignore(session, owner, filter)

    def _leave(self, share: Share) -> None:
        if share.grants:
            self.wake(share)
        else:
            self._drop(share)

    def _drop(self, share: Share) -> None:
        self.shares.pop((share.environment, share.owner, share.topic), None)
        watchers = self._watchers.get((share.environment, share.topic))
        if watchers is not None and share in watchers:
            watchers.remove(share)
            if not watchers:
                del self._watchers[share.environment, share.topic]

    def wake(self, share: Share) -> None:
        """There is something in it: each of those who share it may take some."""
        for grant in share.grants:
            grant.delivery.wake(grant)

    def grew(self, environment: str, topic: str) -> None:
        """The topic has new events, or is new itself."""
        if (environment, topic) not in self._known:
            self._known[environment, topic] = None
            self._born(environment, topic)
        for share in self._watchers.get((environment, topic), ()):
            for grant in share.grants:
                grant.delivery.wake(grant)

    def _born(self, environment: str, topic: str) -> None:
        matcher = self._matchers.get(environment)
        if matcher is not None:
            _, end = self.core.log.bounds(environment, topic) or (0, 0)
            # Where a client has several sessions with filters of their own, the newest is the last to take over.
            for session, owner in sorted(matcher.match(topic), key=lambda found: found[0].number):
                stored = self.core.cursors.cursor(environment, owner, topic) or 0
                live = (environment, owner, topic) in self.shares
                # One that a lost topic left behind says nothing about the events of the new one.
                self._join(session, owner, topic, None if live else stored if stored <= end else 0)

    def _tries(self, share: Share) -> dict[int, int]:
        kept = self.core.state.get(("tries", share.environment, *share.owner, share.topic))
        return {int(at): int(tries) for at, tries in kept.items()} if isinstance(kept, dict) else {}

    def keep_tries(self, share: Share) -> None:
        """How often events were refused is kept, so that a client that reconnects does not begin anew."""
        key = ("tries", share.environment, *share.owner, share.topic)
        if share.tries:
            self.core.state.put(key, share.tries)
        else:
            self.core.state.delete(key)


def _owner(session: Session, group: str | None) -> Owner:
    if group is None:
        return ("client", session.client_id)
    if not 0 < len(group.encode()) <= MOST_NAME_BYTES:
        raise failed(f"Group is a name of 1 to {MOST_NAME_BYTES} bytes")
    return ("group", group)


def _parsed(filters: Iterable[str]) -> list[str]:
    try:
        parsed = [parse_filter(name) for name in filters]
    except BadTopic as error:
        raise failed(str(error)) from None
    if not parsed:
        raise failed("Topics is empty: name at least one topic or filter")
    return parsed


def parse_start(start: Any) -> Any:
    """None, a name, an offset, or a datetime."""
    if start is None or (isinstance(start, int) and not isinstance(start, bool)) or start in NAMED_STARTS:
        return start
    if isinstance(start, str | datetime):
        try:
            return timestamp("Start", start)
        except BadEvent as error:
            raise failed(f"Start: {error}") from None
    raise failed(f"Start is one of {', '.join(NAMED_STARTS)}, an offset or a time")
