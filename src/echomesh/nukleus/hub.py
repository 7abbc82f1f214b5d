"""The hub of a nukleus: its inlets and outlets, the streams over them, and what happens when peers are slow or gone."""

from __future__ import annotations

import logging

from echomesh.errors import BusyError, EchomeshError, UsageError
from echomesh.native.counters import Counter
from echomesh.native.intake import Intake
from echomesh.native.ring import Ring
from echomesh.nukleus.directory import Directory, Place, check_name
from echomesh.nukleus.links import Inlet, PeerWatch, RingOutlet, sound
from echomesh.nukleus.streams import Streams

_log = logging.getLogger(__name__)


class Hub(Intake):
    """All rings between a nukleus and its peers. The conductor's commands end here, and the loop reads and flushes."""

    inlets: dict[str, Inlet]
    reading: Inlet | None

    def __init__(
        self, directory: Directory, place: Place, streams: Streams, frames: Counter | None, capacity: int
    ) -> None:
        super().__init__(frames)
        self._directory = directory
        self._place = place
        self._streams = streams
        self._count = streams.count
        self._capacity = capacity
        self._outlets: dict[str, RingOutlet] = {}
        self._watches: dict[str, PeerWatch] = {}
        self._left: set[str] = set()
        self._paused: dict[str, set[RingOutlet]] = {}
        self.full: set[RingOutlet] = set()
        """Outlets in which somebody waits for room."""

    def capture(self, source: str) -> None:
        """Makes the ring of a source, or takes over the one that is there, and reads it."""
        if check_name(source) in self.inlets:
            raise BusyError(f"{source} is captured already")
        peer, place = self._streams.peer(source), self._directory.place(source)
        inlet = self.inlets[source] = Inlet(self._place, peer, place, self._capacity)
        self._left.discard(source)
        self._watch_peer(source)
        if not place.path.exists() or self._watches[source].dead:
            # What a dead one left can't be answered: a RESET would meet its successor's stream of the same id.
            inlet.ring.heal()
            for _ in inlet.ring.drain():
                self._count("stale frames")

    def uncapture(self, source: str) -> None:
        """Resets the source's streams, then reads it no more."""
        if source not in self.inlets:
            raise UsageError(f"{source} is not captured")
        self._drop_streams(source, tell_peer=True)
        self.inlets.pop(source).ring.close()
        self._left.add(source)
        self._settle_peer(source)

    def route(self, destination: str) -> None:
        """Maps the ring that the destination reads from us."""
        place = self._directory.place(destination)
        old = self._outlets.get(destination)
        if old is not None and not old.stale:
            raise BusyError(f"{destination} is routed already")
        outlet = RingOutlet(place, self._place.name, self._overflowed)
        if old is not None:  # it died, and came back before we noticed
            self._read_out(destination, old)
            self._lose(destination)
        self._outlets[destination] = outlet
        self._streams.peer(destination).outlet = outlet
        self._watch_peer(destination)

    def unroute(self, destination: str) -> None:
        """Resets the destination's streams, then unmaps its ring."""
        if destination not in self._outlets:
            raise UsageError(f"{destination} is not routed")
        self._drop_streams(destination, tell_peer=True)
        self._close_outlet(destination)
        self._settle_peer(destination)

    def linked(self, nukleus: str) -> bool:
        """Whether that nukleus is both captured and routed."""
        return nukleus in self.inlets and nukleus in self._outlets

    def connect(self, reference: int, destination: str, destination_reference: int) -> int:
        """Initiates a stream and tells its id."""
        stream = self._streams.peer(destination).initiate(reference, destination_reference)
        if stream is None:
            raise BusyError(f"the ring to {destination} is full")
        return stream.outbound_id

    # Backpressure

    def _overflowed(self, outlet: RingOutlet) -> bool:
        # While a source is read its frames may be kept, and it is paused; others are told that there is no room.
        self.full.add(outlet)
        self.changed = True
        if self.reading is None:
            return False
        self.reading.peer.paused = True
        self._paused.setdefault(self.reading.peer.name, set()).add(outlet)
        self._count("pauses")
        return True

    def flush(self) -> int:
        """Writes what was kept, as far as there is room, and tells to how many all could be written."""
        empty = [outlet for outlet in self.full if outlet.flush()]
        for outlet in empty:
            self._resume(outlet)
        return len(empty)

    def _resume(self, outlet: RingOutlet) -> None:
        # The sources that fed this outlet may be read again.
        self.full.discard(outlet)
        for source, blocked_by in list(self._paused.items()):
            blocked_by.discard(outlet)
            if not blocked_by:
                del self._paused[source]
                self._streams.peer(source).paused = False
        self.changed = True

    # Peers that go

    def _drop_streams(self, name: str, *, tell_peer: bool) -> None:
        self._streams.peer(name).drop_all(tell_peer=tell_peer)

    def _close_outlet(self, name: str) -> None:
        outlet = self._outlets.pop(name)
        self._streams.peer(name).outlet = None
        outlet.flush()
        if outlet.kept:
            self._count("frames given up")
            outlet.kept.clear()
        self._resume(outlet)
        outlet.ring.close()

    def _watch_peer(self, name: str) -> None:
        self.changed = True
        self._watches[name] = PeerWatch(self._directory, name)

    def _settle_peer(self, name: str) -> None:
        self.changed = True
        if name not in self.inlets and name not in self._outlets:
            self._paused.pop(name, None)
            self._watches.pop(name, None)
            self._streams.forget_peer(name)

    def beginning(self, name: str) -> None:
        """Called before a stream that a peer begins is looked at."""
        # A restarted peer may begin streams before we noticed that its predecessor died, of which more may be unread.
        if self._watches[name].begun():
            self.inlets[name].gone = True

    def _lose(self, name: str) -> None:
        # The route dies with the file that it mapped; what is captured stays, for a peer of that name that comes back.
        self._count("peers lost")
        self._drop_streams(name, tell_peer=False)
        if name in self.inlets:
            self.inlets[name].gone = False
        if name in self._outlets:
            self._close_outlet(name)
        self._settle_peer(name)

    def check_peers(self) -> None:
        """Finds out who has died since the last time, and gives up their streams."""
        for name, watch in list(self._watches.items()):
            self._check_peer(name, watch)
        self._sweep()

    def _sweep(self) -> None:
        # A ring that was captured once is kept for its writer, and goes when that is no more.
        for name in [name for name in self._left if not self._directory.place(name).path.exists()]:
            self._left.remove(name)
            self._place.stream(name).unlink(missing_ok=True)

    def _check_peer(self, name: str, watch: PeerWatch) -> None:
        inlet, outlet = self.inlets.get(name), self._outlets.get(name)
        lost = watch.lost() or (outlet is not None and outlet.stale)
        if inlet is not None:
            inlet.find_bell()
            if not sound(inlet.ring):
                self.damaged(inlet, "head and tail can't be true")
            if inlet.recover(self._directory, watch):
                self._count("dead claims skipped")
            # What a dead peer had published is read before its streams are given up.
            inlet.gone = inlet.gone or lost
            if inlet.gone and outlet is not None:
                self._give_up(outlet)
            lost = inlet.gone and not inlet.ring.readable()
        if lost:
            self._lose(name)

    def _give_up(self, outlet: RingOutlet) -> None:
        # Nobody will make room in the ring of a dead peer, and what feeds it must not wait for that.
        outlet.give_up()
        self._resume(outlet)

    def _read_out(self, name: str, outlet: RingOutlet) -> None:
        # All that is there is the dead peer's; its successor's ids must not meet what it left.
        inlet = self.inlets.get(name)
        if inlet is not None:
            self._give_up(outlet)
            inlet.gone = True
            end = inlet.ring.tail
            while inlet.ring.head < end and not inlet.peer.paused and self.read(inlet):
                pass

    # Reading

    def readable(self) -> list[Inlet]:
        """The inlets that may be read now."""
        return [inlet for inlet in self.inlets.values() if not inlet.peer.paused]

    def wanted_room(self) -> list[tuple[Ring, int]]:
        """The full rings, and for how long a body there must be room in each."""
        return [(outlet.ring, outlet.wanted) for outlet in self.full]

    def damaged(self, inlet: Inlet, why: object) -> None:
        """Replaces a ring that can't be read: nothing behind the damage is to be trusted. Its streams are reset."""
        name = inlet.peer.name
        _log.warning("the ring from %s is damaged and replaced: %s", name, why)
        self._count("damaged rings")
        self._drop_streams(name, tell_peer=True)
        self.changed = True
        try:
            inlet.replace()
        except EchomeshError as error:
            _log.error("the ring from %s can't be replaced, and is read no more: %s", name, error)
            del self.inlets[name]
            self._settle_peer(name)

    def close(self) -> None:
        """Resets all streams, as far as their peers can be told."""
        for name in {*self.inlets, *self._outlets}:
            self._drop_streams(name, tell_peer=True)
            if name in self._outlets:
                self._close_outlet(name)
        for inlet in self.inlets.values():
            inlet.ring.close()
