"""The rings between a nukleus and its peers: inlets that it reads, outlets that it writes."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

from typing_extensions import Buffer

from echomesh.errors import (
    BusyError,
    DamagedError,
    EchomeshError,
    FileGone,
    MessageTooLarge,
    RingDamaged,
    StorageError,
)
from echomesh.native.doorbell import Doorbell
from echomesh.native.intake import Source
from echomesh.native.mapping import Mapping, translated
from echomesh.native.ring import TRAILER_LENGTH, Ring
from echomesh.native.streams import Outlet
from echomesh.nukleus.directory import Directory, Place
from echomesh.nukleus.locks import Identity, identity
from echomesh.nukleus.streams import RESET, PeerStreams


def open_bell(place: Place) -> Doorbell | None:
    """The doorbell of a nukleus, or None where it has none (a foreign one) or is not there."""
    try:
        return Doorbell.open(place.doorbell)
    except EchomeshError:
        return None


class PeerWatch:
    """Tells when the nukleus of a name is no longer the one that was there: dead, or dead and back again."""

    def __init__(self, directory: Directory, name: str) -> None:
        self._place = directory.place(name)
        self._seen: Identity | None = None
        self.lost()

    def lost(self) -> bool:
        """Whether the peer that was seen has gone since; a new one of the name is what is seen from then on."""
        alive = identity(self._place.owner) if self._place.owner_pid() is not None else None
        before, self._seen = self._seen, alive
        return before is not None and before != alive

    def begun(self) -> bool:
        """As `lost`, at the moment when the peer begins a stream; one that is dead by now will be missed later."""
        now = identity(self._place.owner)
        if now is None:
            return False
        before, self._seen = self._seen, now
        return before is not None and before != now

    @property
    def dead(self) -> bool:
        """Whether it is one of ours, and no process runs it; a foreign one is never called dead."""
        return self._place.path.exists() and not self._place.foreign() and self._place.owner_pid() is None


def sound(ring: Ring) -> bool:
    """Whether a ring that somebody left can be read on."""
    head, tail = ring.head, ring.tail
    return 0 <= head <= tail <= head + ring.capacity and not (head | tail) & 7


class Inlet(Source):
    """The ring from one source, of which this nukleus is the reader."""

    peer: PeerStreams

    def __init__(self, place: Place, peer: PeerStreams, source: Place, capacity: int) -> None:
        self.peer = peer
        self.gone = False
        """Set once the source is dead; its streams go when all that it published has been read."""
        self._source = source
        self._path = place.stream(peer.name)
        self._capacity = capacity
        self._bell: Doorbell | None = None
        self._bell_identity: Identity | None = None
        self.ring = self._take_over()
        self.find_bell()

    def _take_over(self) -> Ring:
        try:
            ring = Ring(Mapping.open(self._path), serial=True)
            if sound(ring):
                return ring
        except (DamagedError, StorageError):
            pass  # missing, or none of a ring's
        return self._make()

    def _make(self) -> Ring:
        # A damaged file is never emptied: a writer may have it mapped. Its name goes to a new one.
        making = self._path.with_name(f".{self._path.name}"[:255])
        making.unlink(missing_ok=True)
        Mapping.create(making, self._capacity + TRAILER_LENGTH)
        try:
            making.replace(self._path)
        except OSError as error:
            making.unlink()
            raise translated(error.errno or 0, str(self._path)) from None
        return Ring(Mapping.open(self._path), serial=True)

    def replace(self) -> None:
        """Begins a new file in place of a damaged one; a writer of the old one notices that it is stale."""
        self.ring.close()
        self.ring = self._make()
        self.ring.connect_writer(self._bell)

    def find_bell(self) -> None:
        """Learns how to wake the source when it waits for room; it may come later than its ring, or come back."""
        now = identity(self._source.doorbell)
        if now != self._bell_identity:
            self._bell_identity = now
            self._bell = open_bell(self._source)
            self.ring.connect_writer(self._bell)

    def recover(self, directory: Directory, watch: PeerWatch) -> bool:
        """Skips what a dead source left unpublished at the head; nothing while it lives, or might."""
        if not self.ring.blocked() or not watch.dead:
            return False
        # Under the directory's lock it can't come back in between. Nobody waits for it here: the next tick tries again.
        with contextlib.suppress(BusyError, StorageError), directory.locked(0.0):
            return watch.dead and self.ring.heal()
        return False


class RingOutlet(Outlet):
    """The ring to one destination, of which this nukleus is the one writer.

    While a handler runs, frames that find no room are kept here, and the source being read is paused: so the frames
    kept are at most those that one event of each source gave rise to.
    """

    def __init__(self, place: Place, name: str, overflowed: Callable[[RingOutlet], bool]) -> None:
        path = place.stream(name)
        self.destination = place.name
        try:
            super().__init__(Ring(Mapping.open(path), serial=True))
        except FileGone:
            raise FileGone(2, f"{place.name} has not captured {name}", str(path)) from None
        if not sound(self.ring):
            raise RingDamaged(f"{path}: head and tail can't be true")
        # This process is the only writer, so that what a claim left behind is its dead predecessor's.
        self.ring.heal()
        self._path = path
        self._overflowed = overflowed
        self.kept: deque[tuple[int, int, bytes]] = deque()
        self._given_up = False
        self._refused = 0
        bell = open_bell(place)
        if bell is not None:
            self.ring.connect_reader(bell)

    @property
    def stale(self) -> bool:
        """Whether the destination has gone: its file has, or another one has its name; or the ring is damaged."""
        return self._given_up or identity(self._path) != self.ring.identity

    def give_up(self) -> None:
        """Takes frames to nowhere from now on: nobody reads this ring any more."""
        self._given_up = self.holding = True
        self.kept.clear()

    @property
    def wanted(self) -> int:
        """How long a body there must be room for before the next frame can go."""
        return 8 + len(self.kept[0][2]) if self.kept else self._refused

    def overflow(self, kind: int, stream_id: int, payload: Buffer) -> bool:
        """Keeps a frame when a handler is running, else says that there is no room.

        A RESET is kept in any case: it is the last word on its stream, so that there are no more than streams.
        """
        if self._given_up:
            return True
        frame = kind, stream_id, bytes(payload)
        size = 8 + len(frame[2])
        if size > self.ring.max_message:  # it would never go
            raise MessageTooLarge(size, self.ring.max_message)
        if not self._overflowed(self) and kind != RESET:
            self._refused = size
            return False
        self.kept.append(frame)
        self.holding = True
        return True

    def flush(self) -> bool:
        """Writes what was kept, as far as there is room; True when there is room for more."""
        try:
            while self.kept and self.ring.write_frame(*self.kept[0]):
                self.kept.popleft()
        except (RingDamaged, BusyError):
            self.give_up()
        self.holding = self._given_up or bool(self.kept)
        return self._given_up or (not self.kept and self.ring.has_room(self._refused))
