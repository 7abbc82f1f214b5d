"""What other processes do in the tests of nuklei."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import struct
import time
from pathlib import Path

from echomesh.errors import EchomeshError, OwnerAlive
from echomesh.native.ring import Ring
from echomesh.nukleus import SMALL, Directory, Echo, Nukleus
from echomesh.nukleus.control import ControlFile
from echomesh.nukleus.locks import KernelLock
from echomesh.nukleus.streams import DATA
from echomesh.nukleus.sync import Controller
from tests.nukleus.helpers import Recorder, connect, controller, join_echo, prepare


def tell(path: str, text: str) -> None:
    """Leaves a word in a file that is whole once it is there."""
    Path(path + ".new").write_text(text)
    Path(path + ".new").rename(path)


def echo(root: str, name: str = "echo", stream_capacity: int = 1 << 16) -> None:
    """An Echo nukleus until it is killed."""
    faulthandler.enable()
    Nukleus(name, Echo(), directory=root, capacities=SMALL, stream_capacity=stream_capacity).run()


def start_and_tell(root: str, name: str, go: str, told: str) -> None:
    """Starts at a common moment, and leaves a file that says how that went."""
    while not Path(go).exists():
        time.sleep(0.0005)
    try:
        nukleus = Nukleus(name, Echo(), directory=root, capacities=SMALL)
    except OwnerAlive:
        tell(told, "taken")
        return
    except EchomeshError as error:
        tell(told, repr(error))
        return
    tell(told, "started")
    nukleus.run()


def command_for_ever(root: str, name: str) -> None:
    """A controller that never rests."""
    with Controller("echo", directory=root, timeout=60.0) as control:
        while True:
            with contextlib.suppress(EchomeshError):
                control.capture(name)
            with contextlib.suppress(EchomeshError):
                control.uncapture(name)


def command_in_turns(root: str, name: str, rounds: int, told: str) -> None:
    """A controller whose every answer must be its own."""
    with Controller("echo", directory=root, timeout=60.0) as control:
        for _ in range(rounds):
            control.capture(name)
            with contextlib.suppress(EchomeshError):
                control.capture(name)
                os._exit(3)
            control.uncapture(name)
    tell(told, "done")


def claim_and_die(root: str) -> None:
    """A controller that is killed between claim and publish, with the lock in its hand."""
    place = Directory(root).place("echo")
    file = ControlFile.open(place.control)
    KernelLock.acquire(place.command_lock, 10.0)
    claimed = file.commands.claim(1, 64)
    assert claimed is not None
    os._exit(9)


def lock_and_stay(path: str) -> None:
    """Holds a lock until it is killed."""
    KernelLock.acquire(Path(path), 10.0)
    while True:
        time.sleep(1)


def claim_in_stream_and_die(root: str, name: str, published: int) -> None:
    """A peer of echo that publishes some frames on one stream and is killed in the middle of the next one."""
    peer = Nukleus(name, Recorder(), directory=root, capacities=SMALL, stream_capacity=1 << 16)
    reference = join_echo(peer, controller(Path(root)))
    stream = connect(peer, reference)
    ring: Ring = peer._hub._outlets["echo"].ring
    for number in range(published):
        while not ring.write_frame(DATA, stream, struct.pack("<q", number)):
            time.sleep(0.001)
    claimed = ring.claim(DATA, 16)
    assert claimed is not None
    os._exit(9)


def stream_for_ever(root: str, name: str) -> None:
    """A peer of echo that sends as fast as it can, and reads what comes back."""
    handler = Recorder()
    peer = Nukleus(name, handler, directory=root, capacities=SMALL, stream_capacity=1 << 14)
    control = controller(Path(root))
    peer.capture("echo")
    with contextlib.suppress(EchomeshError):
        control.capture(name)
    control.route(name)
    peer.route("echo")
    bound = control.bind(name)
    connect(peer, prepare(peer, "echo", bound))
    number = 0
    while True:
        handler.events.clear()
        peer.step(0.001)
        for stream in handler.streams:
            while stream.alive and stream.send(struct.pack("<q", number)):
                number += 1


def slow_reader(root: str, frames: int, size: int, told: str) -> None:
    """A peer of echo that sends numbered frames fast and reads the echoes slowly, checking each."""
    handler = Recorder()
    peer = Nukleus("slow", handler, directory=root, capacities=SMALL, stream_capacity=1 << 13)
    reference = join_echo(peer, controller(Path(root)))
    connect(peer, reference)
    while not handler.streams:
        peer.step(0.01)
    stream, sent, seen = handler.streams[0], 0, 0
    rest = bytes(size - 8)
    while seen < frames:
        while sent < frames and stream.send(struct.pack("<q", sent) + rest):
            sent += 1
        peer.step(0.01)
        for payload in handler.payloads:
            if payload != struct.pack("<q", seen) + rest:
                tell(told, f"frame {seen} is {payload[:8].hex()}")
                return
            seen += 1
        handler.events.clear()
        if seen % 1000 < 10:
            time.sleep(0.0005)
    tell(told, "in order")
