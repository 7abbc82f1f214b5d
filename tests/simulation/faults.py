"""What goes wrong in a run, and how it is put right again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.stranger import Stranger

if TYPE_CHECKING:
    from tests.simulation.server import Host
    from tests.simulation.world import World


class Faults:
    """Lets things go wrong at random times, of the kinds that this run has."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = world.clock
        self.over = False
        self.power_cuts = 0
        self.full_disks: set[str] = set()
        random = world.clock.random
        kinds: list[Callable[[], None]] = [
            self._reset,
            self._reset,
            self._part,
            self._isolate,
            self._kill,
            self._kill_at_the_disk,
            self._power_cut,
            self._power_cut_at_the_disk,
            self._sleep,
            self._stop,
            self._fill_a_disk,
            self._crash_a_client,
            self._double_a_client,
            self._unsubscribe,
            self._remake_a_bridge,
            self._bother,
        ]
        self.kinds = random.sample(kinds, random.choice((0, 1, 2, 4, 8, len(kinds))))
        self.every = world.clock.between(0.1, 3.0)

    def begin(self) -> None:
        """From now on."""
        if self.kinds:
            self.clock.after(self.clock.random.uniform(0.0, self.every), self._strike)

    def _strike(self) -> None:
        if not self.over:
            self.clock.random.choice(self.kinds)()
            self.begin()

    def end(self) -> None:
        """Nothing goes wrong any more, and all that was broken is mended."""
        self.over = True
        self.world.network.heal()
        for subscriber in self.world.subscribers:
            subscriber.fragile = 0.0
        for host in self.world.hosts:
            host.disk.storage.full = False
            host.disk.mend()
            if host.process is not None and host.process.asleep:
                host.process.wake()
            host.start()

    def _host(self) -> Host:
        return self.clock.random.choice(self.world.hosts)

    # Connections

    def _reset(self) -> None:
        ends = self.world.network.ends
        if ends:
            end = self.clock.random.choice(ends)
            self.clock.note("fault", f"resets {end.here} - {end.there}")
            end.reset(self.clock.random.choice((0.0, 0.0, 1.0, 20.0)))

    def _part(self) -> None:
        names = [host.name for host in self.world.hosts] + [client.name for client in self.world.clients]
        one, other = self.clock.random.sample(names, 2)
        self.clock.note("fault", f"parts {one} from {other}")
        self.world.network.cut(one, other)
        self._heal_later()

    def _isolate(self) -> None:
        lonely = self._host().name
        self.clock.note("fault", f"isolates {lonely}")
        for name in [host.name for host in self.world.hosts] + [client.name for client in self.world.clients]:
            self.world.network.cut(lonely, name)
        self._heal_later()

    def _heal_later(self) -> None:
        self.clock.after(self.clock.between(0.05, 20.0), self.world.network.heal)

    # Servers

    def _kill(self) -> None:
        host = self._host()
        host.kill(power=False)
        self._start_later(host)

    def _power_cut(self) -> None:
        host = self._host()
        self.power_cuts += 1
        host.kill(power=True)
        self._start_later(host)

    def _kill_at_the_disk(self) -> None:
        self._at_the_disk(power=False)

    def _power_cut_at_the_disk(self) -> None:
        self.power_cuts += 1
        self._at_the_disk(power=True)

    def _at_the_disk(self, *, power: bool) -> None:
        host = self._host()
        steps = self.clock.random.randrange(30)
        self.clock.note("fault", f"{host.name} will {'lose its power' if power else 'be killed'} in {steps} writes")
        host.end_after(steps, power=power)
        self._start_later(host)

    def _start_later(self, host: Host) -> None:
        self.clock.after(self.clock.between(0.01, 3.0), lambda: self._start(host))

    def _start(self, host: Host) -> None:
        if self.clock.chance(0.1) and not self.over and host.process is None:
            # It does not get far.
            host.end_after(self.clock.random.randrange(20), power=False)
            self.clock.after(1.0, host.start)
        host.start()

    def _sleep(self) -> None:
        process = self._host().process
        if process is not None and not process.asleep:
            self.clock.note("fault", f"{process.host.name} sleeps")
            process.sleep()
            self.clock.after(self.clock.between(0.05, 15.0), process.wake)

    def _stop(self) -> None:
        host = self._host()
        if host.process is not None and not host.process.asleep:
            host.process.stop(host.start)

    def _fill_a_disk(self) -> None:
        host = self._host()
        self.clock.note("fault", f"{host.name}'s disk is full")
        self.full_disks.add(host.name)
        host.disk.storage.full = True

        def room() -> None:
            host.disk.storage.full = False

        self.clock.after(self.clock.between(0.05, 3.0), room)

    # Clients

    def _crash_a_client(self) -> None:
        self.clock.random.choice(self.world.clients).crash(told=self.clock.chance(0.7))

    def _double_a_client(self) -> None:
        before = self.clock.random.choice(self.world.subscribers)
        if before.subscription.group is None and not before.subscription.given_up and not before.left:
            self.clock.note("fault", f"there are two of {before.name}")
            after = before.twin()
            self.world.subscribers.append(after)
            after.start()

    def _unsubscribe(self) -> None:
        self.clock.random.choice(self.world.subscribers).unsubscribe()

    def _remake_a_bridge(self) -> None:
        if self.world.admins:
            admin = self.clock.random.choice(self.world.admins)
            admin.remake(self.clock.random.choice(admin.others))

    def _bother(self) -> None:
        Stranger(self.clock, self.world.network, self._host().name)
