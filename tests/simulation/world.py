"""A whole mesh, made from a seed: servers, bridges, clients, what they do, and what goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import combinations, pairwise
from pathlib import Path

from echomesh.events import Event
from echomesh.mesh.access import EVERYTHING, ClientRights
from echomesh.mesh.bodies import Hello
from echomesh.mesh.codes import PORT, Purpose
from echomesh.mesh.options import MeshOptions
from tests.simulation.admin import Admin
from tests.simulation.client import Client
from tests.simulation.clock import EPOCH_NS, Clock
from tests.simulation.disk import Disk
from tests.simulation.faults import Faults
from tests.simulation.network import Network
from tests.simulation.publisher import Publication, Publisher
from tests.simulation.server import Host
from tests.simulation.subscriber import POISON, Subscriber, Subscription
from tests.simulation.witness import BrokenPromise, Witness

TOPICS = ("a/b", "a/c", "a/b/c", "d", "e/f/g")
FORBIDDEN = "forbidden/topic"
FILTERS = (["**"], ["a/*"], ["a/**", "a/b"], ["d", "*/*/*"], ["d"], ["dead/**"])
ENVIRONMENTS = ("TST", "TST", "TST", "PRD")
STARTS = (None, None, "now", "earliest", "earliest", "last", 3, datetime.fromtimestamp(EPOCH_NS / 1e9 + 1.0, UTC))
PATIENCE_S = 300.0
HEARTBEAT_S = 2.0


class World:
    """One run."""

    def __init__(self, seed: int, directory: Path, *, tracing: bool = False) -> None:
        self.seed = seed
        self.clock = Clock(seed)
        self.clock.tracing = tracing
        self.network = Network(self.clock)
        self.witness = Witness(self.ends_of)
        self.seconds = self.clock.between(1.0, 20.0)
        self.window = self.clock.chance(0.85)
        """Whether the logs know events that they had before."""
        self.retention_bytes = self.clock.random.choice((None,) * 7 + (2048,))
        self.witness.may_lose = self.retention_bytes is not None
        self.bridged = ["a/**"] if self.clock.chance(0.15) else None
        """The topics that go over bridges; None for all."""
        self.rights: dict[str, ClientRights] = {"server": EVERYTHING}
        self.max_tries = self.clock.random.randint(2, 4)
        self.hosts = self._make_hosts(directory)
        self.edges = self._make_edges()
        self.admins: list[Admin] = []
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self.subscriptions: list[Subscription] = []
        self._make_admins()
        self._make_publishers()
        self._make_subscribers()
        self.faults = Faults(self)

    @property
    def clients(self) -> list[Client]:
        """All but the admins."""
        return [*self.publishers, *self.subscribers]

    @property
    def publications(self) -> list[Publication]:
        """Everything that anybody publishes."""
        return [publication for publisher in self.publishers for publication in publisher.plan]

    def host(self, name: str) -> Host:
        """The machine of this name."""
        return next(host for host in self.hosts if host.name == name)

    def ends_of(self, server: str, environment: str) -> dict[str, int]:
        """Where the topics of an environment end now."""
        process = self.host(server).process
        ends: dict[str, int] = {}
        for topic in process.log.topics() if process is not None else ():
            bounds = process.log.bounds(environment, topic.name) if process is not None else None
            if topic.environment == environment and bounds is not None:
                ends[topic.name] = bounds[1]
        return ends

    # What there is

    def _make_hosts(self, directory: Path) -> list[Host]:
        clock, random = self.clock, self.clock.random
        hosts = []
        for number in range(random.choice((1, 1, 2, 3, 4, 5, 6))):
            name = f"s{number}"
            credit = int(clock.between(1 << 11, 1 << 16))
            options = MeshOptions(
                urn=name,
                port=PORT,
                heartbeat_s=HEARTBEAT_S,
                stranger_s=3.0,
                credit_bytes=credit,
                batch_events=random.choice((1, 3, 10, 128)),
                batch_bytes=credit // random.choice((4, 16)),
                in_flight_bytes=int(clock.between(1 << 10, 1 << 16)),
                max_tries=self.max_tries,
                retry_s=clock.between(0.05, 1.0),
                checkpoint_s=clock.between(0.2, 5.0),
            )
            self.witness.credit_bytes[name] = credit
            disk = Disk(clock, directory / name, window=self.window, retention_bytes=self.retention_bytes)
            hosts.append(Host(clock, self.network, self.witness, disk, options, self.rights))
        return hosts

    def _make_edges(self) -> list[tuple[str, str]]:
        names = [host.name for host in self.hosts]
        chain = list(pairwise(names))
        shapes = [chain, [(names[0], name) for name in names[1:]], list(combinations(names, 2))]
        if len(names) > 2:
            shapes.append([*chain, (names[-1], names[0])])
        if len(names) == 4:
            shapes.append([(names[0], names[1]), (names[0], names[2]), (names[1], names[3]), (names[2], names[3])])
        edges = []
        for one, other in self.clock.random.choice(shapes):
            turned = self.clock.chance(0.5)
            edges.append((other, one) if turned else (one, other))
            if self.clock.chance(0.15):
                # Both want it: there are two connections, and one of them is enough.
                edges.append(edges[-1][::-1])
        return edges

    def _hello(self, name: str, environment: str, purpose: Purpose, rights: ClientRights) -> Hello:
        self.rights[name] = rights
        return Hello(
            name,
            environment,
            password="right",
            purpose=purpose,
            buffer_cloud_events=self.clock.random.choice((None, None, 1, 5)),
        )

    def _make_admins(self) -> None:
        for host in self.hosts:
            others = [other for one, other in self.edges if one == host.name]
            if others:
                hello = self._hello(f"admin-{host.name}", "TST", Purpose.PUBLISH, EVERYTHING)
                self.admins.append(Admin(self.clock, self.network, host.name, hello, others, self.bridged))

    def _make_publishers(self) -> None:
        clock, random = self.clock, self.clock.random
        for number in range(random.randint(1, 3)):
            name = f"pub{number}"
            server, environment = random.choice(self.hosts).name, random.choice(ENVIRONMENTS)
            rate = random.choice((None, None, None, 5.0))
            rights = ClientRights(
                (environment,), ("a/**", "d", "e/**") if clock.chance(0.2) else ("**",), publishes_per_second=rate
            )
            hello = self._hello(name, environment, Purpose.PUBLISH, rights)
            plan = [self._publication(name, i, server, environment) for i in range(int(clock.between(3, 60)))]
            self.publishers.append(Publisher(clock, self.network, server, hello, plan, self.seconds))

    def _publication(self, publisher: str, number: int, server: str, environment: str) -> Publication:
        clock, random = self.clock, self.clock.random
        size = int(clock.between(1, 200)) if clock.chance(0.95) else int(clock.between(1 << 10, 1 << 15))
        event = Event(
            type=POISON if clock.chance(0.02) else "fine",
            source=f"/{publisher}",
            id=str(number),
            time=None,
            data=bytes(size),
        )
        topic = FORBIDDEN if clock.chance(0.02) else random.choice(TOPICS)
        target = None
        if clock.chance(0.08):
            target = random.choice([*(host.name for host in self.hosts), "nowhere"])
        return Publication(server, environment, topic, event, target, twice=clock.chance(0.05))

    def _make_subscribers(self) -> None:
        clock, random = self.clock, self.clock.random
        for number in range(random.randint(1, 4)):
            wanted = Subscription(
                random.choice(self.hosts).name,
                random.choice(ENVIRONMENTS),
                f"sub{number}.0",
                list(random.choice(FILTERS)),
                f"group{number}" if clock.chance(0.3) else None,
                random.choice(STARTS),
            )
            self.subscriptions.append(wanted)
            for member in range(1 if wanted.group is None else random.randint(1, 3)):
                rights = ClientRights((wanted.environment,), (), ("**",))
                hello = self._hello(f"sub{number}.{member}", wanted.environment, Purpose.SUBSCRIBE, rights)
                self.subscribers.append(Subscriber(clock, self.network, hello, wanted, self.witness, leads=member == 0))

    # What happens

    def run(self) -> None:
        """Everything, until all that should have happened has."""
        for host in self.hosts:
            host.start()
        for client in (*self.admins, *self.clients):
            self.clock.after(self.clock.random.choice((0.0, 0.0, self.seconds / 2)), client.start)
        self.faults.begin()
        self.clock.run(self.seconds)
        self.clock.note("faults", "end")
        self.faults.end()
        self._wait_for_peace()
        for client in (*self.admins, *self.clients):
            client.leave()
        self._wait(self._not_left)
        self.clock.run(10.0)

    def _wait_for_peace(self) -> None:
        # A connection whose other end is gone may look sound until its silence is noticed.
        ends: object = None
        while True:
            self._wait(self._unsettled)
            now = {host.name: [self.ends_of(host.name, name) for name in ENVIRONMENTS] for host in self.hosts}
            if now == ends:
                return
            ends = now
            self.clock.run(4 * HEARTBEAT_S)

    def _wait(self, missing: Callable[[], str]) -> None:
        deadline = self.clock.now + PATIENCE_S
        while what := missing():
            if self.clock.now > deadline:
                raise BrokenPromise(f"{PATIENCE_S:.0f} s without faults, and {what}")
            self.clock.run(0.25)

    def _not_left(self) -> str:
        return next((f"{client.name} can't leave" for client in (*self.admins, *self.clients) if not client.gone), "")

    def _unsettled(self) -> str:
        """What somebody still waits for; nothing when all have what they should."""
        self._replace_the_left()
        for publisher in self.publishers:
            if not publisher.done:
                return f"{publisher.name} has no answer"
        for admin in self.admins:
            if admin.missing:
                return f"{admin.name} has no bridge to {sorted(admin.missing)}"
        return next(
            filter(None, (*map(self._unquiet, self.hosts), *map(self._wanted, self.subscriptions))),
            "",
        )

    def _replace_the_left(self) -> None:
        # Of two that took over from each other at the same time, none may be left.
        for wanted in self.subscriptions:
            having = [subscriber for subscriber in self.subscribers if subscriber.subscription is wanted]
            if all(subscriber.left for subscriber in having):
                twin = having[0].twin()
                self.subscribers.append(twin)
                twin.start()

    def _unquiet(self, host: Host) -> str:
        process = host.process
        if process is None or not process.core.idle:
            return f"{host.name} is not at rest"
        bridges = process.core.bridges
        for bridge in bridges.bridges.values():
            if not bridge.active:
                return f"the bridge from {host.name} to {bridge.server.urn} is down: {bridge.why}"
        for link in bridges.links:
            if link.active and link.behind:
                return f"{host.name} has {link.behind} events for {link.peer.urn}"
        for share in process.core.subscriptions.shares.values():
            if share.waiting or share.returned or any(grant.runs for grant in share.grants):
                return f"{share.owner} has not dealt with all of {share.topic}"
        return ""

    def _wanted(self, wanted: Subscription) -> str:
        if wanted.whose not in self.witness.subscribed:
            return f"nobody could subscribe to {wanted.filters} at {wanted.server}"
        process = self.host(wanted.server).process
        assert process is not None
        for topic, end in self.ends_of(wanted.server, wanted.environment).items():
            if wanted.wants(topic):
                cursor = process.core.cursors.cursor(wanted.environment, wanted.owner, topic)
                if (cursor or 0) != end:
                    return f"{wanted} is at {cursor} of {end} in {topic}"
        return ""
