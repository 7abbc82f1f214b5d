"""What must be true of every run, whatever went wrong in it: found out from the logs and from what clients saw."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from echomesh.errors import LogError
from echomesh.events import Event
from echomesh.log import LogReader
from echomesh.mesh.ways import HERE
from echomesh.topics import matches
from tests.simulation.subscriber import POISON, Subscription
from tests.simulation.witness import BrokenPromise

if TYPE_CHECKING:
    from tests.simulation.publisher import Publication
    from tests.simulation.server import Host
    from tests.simulation.world import World

DEAD = "dead/"
NAMELESS = "lost/"
"""Where a log puts events that a power cut left without their topic's name: they were not acknowledged."""


@dataclass(frozen=True)
class Stored:
    """One record of a log."""

    event: Event
    origin: bytes | None

    @property
    def identity(self) -> tuple[str, str]:
        """What tells the event from all others."""
        return (self.event.source, self.event.id)


Place = tuple[str, str, str]
"""A server, an environment and a topic."""

Logs = dict[Place, dict[int, Stored]]
"""What each has, by offset."""


def check(world: World) -> None:
    """Raises `BrokenPromise` for the first that is."""
    for host in world.hosts:
        nothing_is_left_over(host)
    logs, ids = read(world)
    each_event_is_in_each_log_once(world, logs)
    answers_are_true(world, logs)
    origins_are_true(logs, ids)
    nothing_else_is_there(world, logs)
    order_holds(world, logs)
    subscribers_have_all(world, logs)
    if not world.witness.may_lose:
        what_is_published_is_everywhere(world, logs)
        dead_letters_are_there(world, logs)


def read(world: World) -> tuple[Logs, dict[bytes, str]]:
    """All that is on the disks, and whose they are by their log ids."""
    logs: Logs = {}
    ids: dict[bytes, str] = {}
    for host in world.hosts:
        host.kill(power=False)
        with LogReader(host.disk.directory, storage=host.disk.storage) as log:
            ids[log.log_id] = host.name
            for name in log.topics():
                if name.name.startswith(NAMELESS):
                    continue
                topic = log.topic(name.name, environment=name.environment)
                found = logs[host.name, name.environment, name.name] = {}
                at = topic.earliest
                while at < topic.end:
                    try:
                        records = topic.read(at)
                    except LogError as error:
                        raise BrokenPromise(f"{host.name}: {error}") from error
                    found.update((offset, Stored(Event.decode(event), origin)) for offset, _, origin, event in records)
                    at = records.next_offset
    return logs, ids


def each_event_is_in_each_log_once(world: World, logs: Logs) -> None:
    """However often it came: by its origin, and where the log knows what it had before, by its source and id."""
    for place, records in logs.items():
        seen: dict[object, int] = {}
        for offset, stored in records.items():
            names: list[object] = [stored.identity] if world.window and not world.witness.may_lose else []
            if stored.origin not in (None, HERE):
                names.append(stored.origin)
            for name in names:
                if name in seen:
                    raise BrokenPromise(f"{place} has {name!r} at {seen[name]} and at {offset}")
                seen[name] = offset


def answers_are_true(world: World, logs: Logs) -> None:
    """An acknowledged event is in the log of its server, where the answer says; a refused one nowhere."""
    for publication in world.publications:
        records = logs.get((publication.home, publication.environment, publication.topic), {})
        if len(publication.offsets) > 1 and world.window:
            raise BrokenPromise(f"{publication} is at {sorted(publication.offsets)}")
        for offset in publication.offsets:
            if world.witness.may_lose and offset not in records:
                continue
            if offset not in records or records[offset].identity != publication.identity:
                raise BrokenPromise(f"{publication} is not where its answer says")
            if records[offset].origin != (None if publication.target is None else HERE):
                raise BrokenPromise(f"{publication} has the origin {records[offset].origin!r} at its own server")
        if not publication.offsets and publication.tries == 1 and not _may_have_arrived(publication):
            for place, others in logs.items():
                if any(stored.identity == publication.identity for stored in others.values()):
                    raise BrokenPromise(f"{publication} was refused, and is in {place}")


def _may_have_arrived(publication: Publication) -> bool:
    # It was on its way to another server when the bridge went down.
    return publication.target not in (None, publication.at)


def what_is_published_is_everywhere(world: World, logs: Logs) -> None:
    """Bridges bring every event to every server, but for those that are meant for one."""
    where: dict[tuple[str, str, tuple[str, str]], set[str]] = defaultdict(set)
    for (server, environment, topic), records in logs.items():
        for stored in records.values():
            where[environment, topic, stored.identity].add(server)
    for publication in world.publications:
        found = where.get((publication.environment, publication.topic, publication.identity), set())
        bridged = world.bridged is None or any(matches(filter, publication.topic) for filter in world.bridged)
        expected = {host.name for host in world.hosts} if bridged else {publication.at}
        if publication.target is not None:
            expected = {publication.target}
        if found and found != expected:
            raise BrokenPromise(f"{publication} is at {sorted(found)}, not at {sorted(expected)}")


def origins_are_true(logs: Logs, ids: dict[bytes, str]) -> None:
    """What came over a bridge is what its origin has at the place that it names."""
    for place, records in logs.items():
        for offset, stored in records.items():
            if stored.origin is None or stored.origin == HERE:
                continue
            home = ids[stored.origin[:16]]
            there = _offset(stored.origin)
            known = logs.get((home, *place[1:]), {}).get(there)
            if home == place[0] or (known is not None and (known.identity, known.origin) != (stored.identity, None)):
                raise BrokenPromise(f"{place} {offset} says that it is {home} {there}, and is not")


def _offset(origin: bytes) -> int:
    return int.from_bytes(origin[16:], "little", signed=True)


def nothing_else_is_there(world: World, logs: Logs) -> None:
    """Only what was published, where it was published; and dead letters of it."""
    known = {(p.environment, p.topic, p.identity) for p in world.publications}
    for (server, environment, topic), records in logs.items():
        for stored in records.values():
            if (environment, topic.removeprefix(DEAD), stored.identity) not in known:
                raise BrokenPromise(f"{server} has {stored.identity} in {environment} {topic}, where nobody put it")
            if topic.startswith(DEAD) and stored.event.type != POISON:
                raise BrokenPromise(f"{server} has {stored.identity} as a dead letter, and it is fine")


def order_holds(world: World, logs: Logs) -> None:
    """For each origin and topic in every log, and for each publisher in its own."""
    # Where one server keeps less than another, what it has no more may come later from there.
    for place, records in () if world.witness.may_lose else logs.items():
        last: dict[bytes, int] = {}
        for stored in records.values():
            if stored.origin is not None and stored.origin != HERE:
                home, there = stored.origin[:16], _offset(stored.origin)
                if there < last.get(home, -1):
                    raise BrokenPromise(f"{place} has {there} of its origin behind {last[home]}")
                last[home] = there
    for publisher in world.publishers:
        if publisher.server in world.faults.full_disks or world.rights[publisher.name].publishes_per_second:
            continue  # some were refused and others not, perhaps without anybody to tell
        highest: dict[str, int] = {}
        for publication in publisher.plan:
            if publication.offsets and publication.target is None and world.window:
                if max(publication.offsets) < highest.get(publication.topic, -1):
                    raise BrokenPromise(f"{publication} is before what was published before it")
                highest[publication.topic] = max(publication.offsets)


def subscribers_have_all(world: World, logs: Logs) -> None:
    """From its start on each got every event of its topics, and what it got is what the log has."""
    for wanted in world.subscriptions:
        for (topic, offset), identity in wanted.got.items():
            if topic.startswith(NAMELESS):
                continue
            stored = logs.get((wanted.server, wanted.environment, topic), {}).get(offset)
            if stored is None and not world.witness.may_lose:
                raise BrokenPromise(f"{wanted} got {topic} {offset}, and it is gone")
            if stored is not None and stored.identity != identity:
                raise BrokenPromise(f"{wanted} got {identity} at {topic} {offset}, which is {stored.identity}")
        for (server, environment, topic), records in logs.items():
            if (server, environment) == (wanted.server, wanted.environment) and wanted.wants(topic):
                first = wanted.first_in(topic, world.witness.subscribed_at[wanted.whose])
                for offset, stored in records.items():
                    if offset >= first:
                        _check_settled(wanted, topic, offset, stored)


def _check_settled(wanted: Subscription, topic: str, offset: int, stored: Stored) -> None:
    poison = stored.event.type == POISON and not topic.startswith(DEAD)
    done = wanted.got if poison else wanted.settled
    if (topic, offset) not in done and (topic, offset) not in wanted.lost:
        raise BrokenPromise(f"{wanted} never got {topic} {offset}")


def dead_letters_are_there(world: World, logs: Logs) -> None:
    """What nobody could deal with, once for each log, and after so many tries."""
    for wanted in world.subscriptions:
        begun = world.witness.subscribed_at[wanted.whose]
        for topic, offset in sorted(wanted.given_back):
            if offset < wanted.first_in(topic, begun):
                continue  # somebody said since that it begins behind this
            stored = logs[wanted.server, wanted.environment, topic][offset]
            if stored.event.type != POISON or topic.startswith(DEAD) or (topic, offset) in wanted.settled:
                continue
            letters = logs.get((wanted.server, wanted.environment, DEAD + topic), {})
            found = [letter for letter in letters.values() if letter.identity == stored.identity]
            if not found or (len(found) > 1 and world.window):
                raise BrokenPromise(f"{wanted.server} has {len(found)} dead letters of {topic} {offset}")
            tries = found[0].event.extensions.get("deadtries")
            if not isinstance(tries, int) or tries < world.max_tries:
                raise BrokenPromise(f"{topic} {offset} was given up after {tries!r} tries")


def nothing_is_left_over(host: Host) -> None:
    """When all clients have left, a server holds nothing for them."""
    process = host.process
    if process is None:
        raise BrokenPromise(f"{host.name} does not run")
    core = process.core
    links = len(core.bridges.links)
    left = {
        "connections": len(core.connections) - sum(1 for c in core.connections if c.session and c.session.link),
        "sessions": len(core.sessions) - sum(1 for s in core.sessions.values() if s.link),
        "shares": len(core.subscriptions.shares),
        "waiting": len(core.waiting),
        "others": not core.idle,
        "timers": len(core._timers),
        "watchers": len(core.subscriptions._watchers),
        "filters": len(core.subscriptions._filters),
        "to pump": len(core.to_pump),
        "relayed": len(core.bridges.routing._relayed),
        "routes": len(core.bridges.routing._told) - links,
        "arrivals": len(core.arrivals._last),
        "in flight": sum(len(link._in_flight) for link in core.bridges.links),
    }
    held = {what: number for what, number in left.items() if number}
    if held:
        raise BrokenPromise(f"{host.name} still holds {held}")
