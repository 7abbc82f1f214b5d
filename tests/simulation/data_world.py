"""Machines of a data plane, made from a seed: participants, publishers, subscribers, and what goes wrong meanwhile."""

from __future__ import annotations

from itertools import combinations

from echomesh.data.membership import MAX_PEERS
from echomesh.data.messages import Path
from echomesh.topics import matches
from tests.simulation.clock import Clock
from tests.simulation.data_host import Host
from tests.simulation.data_process import LocalEnd
from tests.simulation.network import Network
from tests.simulation.witness import BrokenPromise

TOPICS = ("a/b", "a/c", "d", "e/f/g")
FILTERS = ("**", "a/*", "a/b", "d", "e/**", "*/*/*")
FAULTS = ("join", "leave", "kill", "vanish", "sleep", "cut", "deaf", "heal", "reset", "jump", "break")
PEACE_S = 20.0
"""Within this time after the last fault everybody must know everybody."""


class DataWorld:
    """One run."""

    def __init__(self, seed: int, *, size: int | None = None, tracing: bool = False) -> None:
        clock = self.clock = Clock(seed)
        clock.tracing = tracing
        self.network = Network(clock)
        self.seconds = clock.between(5.0, 30.0 if size is None else 8.0)
        self.loss = clock.random.choice((0.0, 0.1, 0.5, 0.9))
        self._one_way: set[tuple[str, str]] = set()
        self.walls: set[tuple[str, str]] = set()
        """Who can't connect to whom, for good; the other way round it works."""
        number = size or clock.random.choice((1, 2, 2, 3, 3, 4, 5, 8))
        self.hosts = [Host(self, f"h{i}") for i in range(number)]
        for one, other in combinations([host.name for host in self.hosts], 2):
            if clock.chance(0.05):
                self.walls.add((one, other) if clock.chance(0.5) else (other, one))
        for host in self.hosts:
            for _ in range(clock.random.randint(0, 2 if size else 4)):
                self._add_end(host)

    def _add_end(self, host: Host) -> LocalEnd:
        clock = self.clock
        publishes = clock.chance(0.5)
        topic = clock.random.choice(TOPICS if publishes else FILTERS)
        end = LocalEnd(host, topic, publishes=publishes, shares=clock.chance(0.8))
        host.ends.append(end)
        return end

    def broadcast(self, sender: Host, data: bytes) -> None:
        """A beacon goes to everybody, or gets lost on the way."""
        clock = self.clock
        for host in self.hosts:
            there = (sender.name, host.name)
            if clock.chance(self.loss) or not self.network.open(*there) or there in self._one_way:
                continue
            for _ in range(2 if clock.chance(0.02) else 1):
                clock.after(self.network.delay(), lambda host=host: host.heard(data, sender.name))  # type: ignore[misc]

    # What happens

    def run(self) -> None:
        """Everything; then peace, after which all must agree."""
        clock = self.clock
        for host in self.hosts:
            clock.after(clock.random.choice((0.0, 0.0, self.seconds / 2)), lambda host=host: self._begin(host))  # type: ignore[misc]
        at = clock.between(0.05, 3.0)
        while at < self.seconds:
            clock.after(at, self._fault)
            at += clock.between(0.05, 3.0)
        clock.run(self.seconds)
        self._end_faults()
        clock.run(PEACE_S)
        self.check()

    def _begin(self, host: Host) -> None:
        if host.core is None:
            host.start()
        for end in host.ends:
            end.start()

    def _fault(self) -> None:
        random = self.clock.random
        host, other = random.choice(self.hosts), random.choice(self.hosts)
        kind = random.choice(FAULTS)
        self.clock.note(host.name, kind)
        if kind == "join":
            self._add_end(host).start()
        elif kind == "leave" and host.ends:
            host.ends.pop(random.randrange(len(host.ends))).leave()
        elif kind in ("kill", "vanish") and host.core is not None:
            host.kill(told=kind == "kill")
            self.clock.after(self.clock.between(0.05, 8.0), lambda: self._begin(host))
        elif kind == "sleep" and host.core is not None:
            host.sleep()
            self.clock.after(self.clock.between(0.1, 10.0), host.wake)
        elif kind == "cut" and host is not other:
            self.network.cut(host.name, other.name)
        elif kind == "deaf":
            self._one_way.add((host.name, other.name))
        elif kind == "heal":
            self.network.heal()
        elif kind == "reset" and host.sockets:
            random.choice(list(host.sockets.values())).end.reset(self.clock.between(0.1, PEACE_S / 2))
        elif kind == "break" and host.ends:
            random.choice(host.ends).break_stream()
        elif kind == "jump":
            host.clock_s += random.choice((-1e6, -10.0, 10.0, 1e6))

    def _end_faults(self) -> None:
        self.clock.note("faults", "end")
        self.loss = 0.0
        self._one_way.clear()
        self.network.heal()
        for host in self.hosts:
            if host.asleep:
                host.wake()
            self._begin(host)

    # What must be true then

    def check(self) -> None:
        """Everybody knows everybody, once; lists are right; nothing is left of those who went."""
        ids = {host.core.hello.id for host in self.hosts if host.core is not None}
        if len(ids) != len(self.hosts):
            raise BrokenPromise("a participant is down")
        for host in self.hosts:
            self._check_host(host, ids)
            for end in host.ends:
                self._check_end(host, end)
        held = {socket.end for host in self.hosts for socket in host.sockets.values()}
        if any(end.over or end.peer not in held for end in held):
            raise BrokenPromise("a connection is kept by one of its ends alone")

    def _check_host(self, host: Host, ids: set[bytes]) -> None:
        core = host.core
        assert core is not None
        me = core.hello.id
        peers = core.membership.peers
        if set(peers) != ids - {me}:
            raise BrokenPromise(f"{host.name} knows {len(peers)} participants instead of {len(ids) - 1}")
        unlinked = [peer for peer in peers.values() if peer.link is None or peer.dial is not None]
        if unlinked:
            raise BrokenPromise(f"{host.name} has no connection with {len(unlinked)} participants")
        if len(host.sockets) != len(peers) or core.membership.size != len(peers):
            raise BrokenPromise(f"{host.name} has {len(host.sockets)} connections with {len(peers)} participants")
        if len(host.desks) != len(host.ends) or len(core.locals) != len(host.ends):
            raise BrokenPromise(f"{host.name} has connections of processes that left")
        if core.matching.owners() - ids:
            raise BrokenPromise(f"{host.name} remembers publishers or subscribers of participants that are gone")
        streams = sum(len(end.streams) for end in host.ends)
        if len(host.wires) != streams:
            raise BrokenPromise(f"{host.name} holds {len(host.wires)} streams of which {streams} are used")
        assert len(peers) <= MAX_PEERS

    def _check_end(self, host: Host, end: LocalEnd) -> None:
        wanted = {}
        for there in self.hosts:
            for other in there.ends:
                if other.publishes == end.publishes:
                    continue
                publisher, subscriber = (end, other) if end.publishes else (other, end)
                if matches(subscriber.topic, publisher.topic):
                    shared = there is host and end.shares and other.shares
                    wanted[other.id] = Path.SHARED_MEMORY if shared else Path.NONE
        if end.coming:
            raise BrokenPromise(f"{end.topic} of {host.name} waits for {len(end.coming)} that do not come")
        if end.known != wanted:
            raise BrokenPromise(f"{end.topic} of {host.name} knows {len(end.known)} of {len(wanted)}")
        if set(end.streams) != {id for id, path in wanted.items() if path is Path.SHARED_MEMORY and end.publishes}:
            raise BrokenPromise(f"{end.topic} of {host.name} has streams that it should not have")
