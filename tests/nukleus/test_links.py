"""Inlets and outlets: taking rings over, replacing damaged ones, keeping frames."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from echomesh.errors import FileGone, MessageTooLarge, RingDamaged, StorageError
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.nukleus.directory import Directory, Place
from echomesh.nukleus.links import Inlet, PeerWatch, RingOutlet, open_bell, sound
from echomesh.nukleus.streams import BEGIN, DATA, RESET, Streams
from tests.nukleus import workers
from tests.nukleus.foreign import ForeignRing
from tests.nukleus.helpers import Recorder, controller
from tests.support.processes import kill, process

CAPACITY = 1 << 12


class Here:
    """A config-dir with a place "echo" and a place "peer", with nobody in them."""

    def __init__(self, root: Path) -> None:
        self.directory = Directory(root)
        for name in ("echo", "peer"):
            (root / name / "streams").mkdir(parents=True)
        self.echo, self.peer = self.directory.place("echo"), self.directory.place("peer")
        self.handler = Recorder()
        self.streams = Streams("echo", self.handler, lambda label: None, lambda source, reference: True)

    def inlet(self, capacity: int = CAPACITY) -> Inlet:
        return Inlet(self.echo, self.streams.peer("peer"), self.peer, capacity)


@pytest.fixture
def here(shm_dir: Path) -> Here:
    return Here(shm_dir / "mesh")


def stream_file(place: Place, name: str) -> Path:
    return place.path / "streams" / name


def test_a_missing_streams_file_is_made_with_capacity_and_trailer(here: Here) -> None:
    here.inlet()
    path = stream_file(here.echo, "peer")
    assert path.read_bytes() == bytes(CAPACITY + 768)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["peer"]


def test_an_existing_ring_is_taken_over_with_all_that_is_in_it(here: Here) -> None:
    foreign = ForeignRing.create(stream_file(here.echo, "peer"), 1 << 13)
    foreign.write(DATA, struct.pack("<q", 7) + b"left")
    identity = stream_file(here.echo, "peer").stat().st_ino
    inlet = here.inlet()
    assert inlet.ring.capacity == 1 << 13
    assert inlet.ring.identity[1] == identity
    assert inlet.ring.drain() == [(DATA, struct.pack("<q", 7) + b"left")]


def damage(path: Path, how: str) -> None:
    if how == "empty":
        path.write_bytes(b"")
    elif how == "short":
        path.write_bytes(bytes(100))
    elif how == "no power of two":
        path.write_bytes(bytes(5000 + 768))
    elif how == "directory link":
        path.symlink_to("/dev/null")
    elif how == "random":
        path.write_bytes(os.urandom(CAPACITY) + b"\xff" * 768)
    elif how == "head beyond tail":
        ring = bytearray(CAPACITY + 768)
        ring[CAPACITY + 384 : CAPACITY + 392] = struct.pack("<q", 64)
        path.write_bytes(ring)
    elif how == "tail too far":
        ring = bytearray(CAPACITY + 768)
        ring[CAPACITY + 128 : CAPACITY + 136] = struct.pack("<q", CAPACITY + 8)
        path.write_bytes(ring)
    elif how == "unaligned":
        ring = bytearray(CAPACITY + 768)
        ring[CAPACITY + 128 : CAPACITY + 136] = struct.pack("<q", 12)
        path.write_bytes(ring)
    elif how == "negative":
        ring = bytearray(CAPACITY + 768)
        for at in (128, 384):
            ring[CAPACITY + at : CAPACITY + at + 8] = struct.pack("<q", -64)
        path.write_bytes(ring)


HOWS = [
    "empty",
    "short",
    "no power of two",
    "random",
    "head beyond tail",
    "tail too far",
    "unaligned",
    "negative",
]


@pytest.mark.parametrize("how", [*HOWS, "directory link"])
def test_a_damaged_file_is_replaced_and_never_emptied_under_its_writer(here: Here, how: str) -> None:
    path = stream_file(here.echo, "peer")
    damage(path, how)
    before = None if how in ("empty", "directory link") else os.open(path, os.O_RDONLY)
    content = path.read_bytes()
    inlet = here.inlet()
    assert path.read_bytes() == bytes(CAPACITY + 768)
    assert sound(inlet.ring)
    if before is not None:
        assert os.pread(before, 1 << 20, 0) == content, "the old file is as it was"
        os.close(before)


@pytest.mark.parametrize("how", HOWS)
def test_a_route_to_what_is_no_ring_is_refused(here: Here, how: str) -> None:
    path = stream_file(here.peer, "echo")
    damage(path, how)
    content = path.read_bytes()
    with pytest.raises((RingDamaged, StorageError)):
        RingOutlet(here.peer, "echo", lambda outlet: True)
    assert path.read_bytes() == content


def test_a_route_to_nobody_is_refused(here: Here) -> None:
    with pytest.raises(FileGone, match="has not captured"):
        RingOutlet(here.peer, "echo", lambda outlet: True)
    assert not stream_file(here.peer, "echo").exists()


def test_a_route_takes_the_capacity_from_the_files_size(here: Here) -> None:
    ForeignRing.create(stream_file(here.peer, "echo"), 1 << 15)
    assert RingOutlet(here.peer, "echo", lambda outlet: True).ring.capacity == 1 << 15


def test_a_ring_that_can_not_be_made_leaves_nothing_behind(here: Here) -> None:
    stream_file(here.echo, "peer").mkdir()
    with pytest.raises(StorageError):
        here.inlet()
    assert [path.name for path in here.echo.streams.iterdir()] == ["peer"]


@pytest.fixture
def full_outlet(here: Here) -> tuple[RingOutlet, ForeignRing, list[RingOutlet]]:
    reader = ForeignRing.create(stream_file(here.peer, "echo"), 256)
    overflowed: list[RingOutlet] = []

    def tell(outlet: RingOutlet) -> bool:
        overflowed.append(outlet)
        return True

    outlet = RingOutlet(here.peer, "echo", tell)
    while not overflowed:
        assert outlet.write(DATA, 1, struct.pack("<q", reader.tail))
    return outlet, reader, overflowed


def test_frames_that_find_no_room_are_kept_in_order(
    full_outlet: tuple[RingOutlet, ForeignRing, list[RingOutlet]],
) -> None:
    outlet, reader, _ = full_outlet
    assert outlet.write(DATA, 3, b"second")
    assert outlet.write(RESET, 5)
    assert len(outlet.kept) == 3
    assert not outlet.flush()
    seen = reader.read()
    assert outlet.flush()
    seen += reader.read()
    assert [body[:8] for _, body in seen[-2:]] == [struct.pack("<q", 3), struct.pack("<q", 5)]
    assert seen[-2][1][8:] == b"second"


def test_a_frame_that_would_never_fit_is_refused_and_not_kept(
    full_outlet: tuple[RingOutlet, ForeignRing, list[RingOutlet]],
) -> None:
    outlet, _, _ = full_outlet
    kept = len(outlet.kept)
    with pytest.raises(MessageTooLarge):
        outlet.write(DATA, 1, bytes(25))
    assert len(outlet.kept) == kept


def test_outside_a_handler_there_is_no_room_but_a_reset_is_kept(here: Here) -> None:
    reader = ForeignRing.create(stream_file(here.peer, "echo"), 256)
    outlet = RingOutlet(here.peer, "echo", lambda outlet: False)
    while outlet.write(DATA, 1):
        pass
    assert not outlet.kept
    assert not outlet.write(BEGIN, 1, bytes(8))
    assert outlet.write(RESET, 9)
    assert not outlet.write(DATA, 1)
    assert [frame[:2] for frame in outlet.kept] == [(RESET, 9)]
    reader.read()
    assert outlet.flush()
    assert reader.read() == [(RESET, struct.pack("<q", 9))]


def test_an_outlet_whose_ring_gets_damaged_takes_frames_to_nowhere_and_says_it_is_stale(
    full_outlet: tuple[RingOutlet, ForeignRing, list[RingOutlet]], here: Here
) -> None:
    outlet, _, _ = full_outlet
    assert not outlet.stale
    with stream_file(here.peer, "echo").open("r+b") as file:
        file.seek(256)
        file.write(b"\xff" * 768)
    assert outlet.flush()
    assert outlet.stale
    assert outlet.write(DATA, 1, b"x")
    assert not outlet.kept


def test_an_outlet_is_stale_once_its_file_is_gone_or_another(here: Here) -> None:
    path = stream_file(here.peer, "echo")
    ForeignRing.create(path, 256)
    outlet = RingOutlet(here.peer, "echo", lambda outlet: True)
    assert not outlet.stale
    path.rename(path.with_name("away"))
    assert outlet.stale
    ForeignRing.create(path, 256)
    assert outlet.stale


def test_a_route_heals_what_its_dead_predecessor_claimed(here: Here) -> None:
    path = stream_file(here.peer, "echo")
    ForeignRing.create(path, 1 << 12)
    child = os.fork()
    if not child:
        ring = Ring(Mapping.open(path), serial=True)
        ring.write(1, b"whole")
        claimed = ring.claim(1, 40)
        os._exit(0 if claimed is not None else 1)
    assert os.waitpid(child, 0)[1] == 0
    outlet = RingOutlet(here.peer, "echo", lambda outlet: True)
    assert outlet.write(DATA, 1, b"next")
    reader = ForeignRing.open(path)
    assert reader.read() == [(1, b"whole"), (DATA, struct.pack("<q", 1) + b"next")]


def test_a_watch_tells_death_and_return_but_never_of_a_foreign_peer(shm_dir: Path) -> None:
    root = shm_dir / "mesh"
    (root / "java").mkdir(parents=True)
    java = PeerWatch(Directory(root), "java")
    nobody = PeerWatch(Directory(root), "nobody")
    with process(workers.echo, str(root)) as first:
        controller(root)
        watch = PeerWatch(Directory(root), "echo")
        assert not watch.lost()
        assert not watch.begun()
        assert not watch.dead
        kill(first)
        assert watch.dead
        assert not watch.begun(), "what it left is still its own"
        assert watch.lost()
        assert not watch.lost()
    with process(workers.echo, str(root)) as second:
        controller(root)
        assert not watch.lost()
        kill(second)
        with process(workers.echo, str(root)):
            while PeerWatch(Directory(root), "echo").dead:
                pass
            controller(root)
            assert watch.begun()
            assert not watch.lost()
    for foreign in (java, nobody):
        assert not foreign.lost()
        assert not foreign.dead


def test_a_bell_that_is_none_is_no_bell(here: Here) -> None:
    assert open_bell(here.peer) is None
    here.peer.doorbell.write_bytes(b"x")
    assert open_bell(here.peer) is None
