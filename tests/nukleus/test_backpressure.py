"""Full rings: nothing is lost, little is kept, others go on."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from echomesh.nukleus import SMALL, Echo, Nukleus, Stream
from echomesh.nukleus.commands import Uncapture, Uncaptured, Unroute, Unrouted
from echomesh.nukleus.streams import BEGIN, DATA, RESET
from tests.nukleus import workers
from tests.nukleus.foreign import ForeignPeer, ForeignRing, Record
from tests.nukleus.helpers import Recorder, bind, echo_in, step_until
from tests.support.counts import count
from tests.support.processes import process, until


def long(value: int) -> bytes:
    return struct.pack("<q", value)


class Rig:
    """An Echo that this thread drives, with foreign peers of small rings."""

    def __init__(self, root: Path, echo: Nukleus) -> None:
        self.root = root
        self.echo = echo

    def join(self, name: str, capacity: int = 1 << 10) -> tuple[ForeignRing, ForeignRing, int]:
        """The rings from and to echo, and a bind reference."""
        peer = ForeignPeer(self.root, name, capacity)
        inbound = peer.capture("echo")
        self.echo.capture(name)
        self.echo.route(name)
        return inbound, peer.route("echo"), bind(self.echo, name)

    def work(self, times: int = 20) -> None:
        for _ in range(times):
            self.echo.work()


@pytest.fixture
def rig(shm_dir: Path) -> Rig:
    return Rig(
        shm_dir / "mesh",
        Nukleus("echo", Echo(), directory=shm_dir / "mesh", capacities=SMALL, stream_capacity=1 << 14),
    )


def fill(rig: Rig, outbound: ForeignRing, reference: int) -> int:
    """Sends on stream 1, to a peer that does not read, until the nukleus reads no more; how many frames."""
    outbound.write(BEGIN, long(1) + long(reference))
    sent = stuck = 0
    while stuck < 3:
        if outbound.write(DATA, long(1) + long(sent)):
            sent, stuck = sent + 1, 0
        else:
            stuck += 1
        rig.work(2)
    return sent


def test_a_full_destination_stops_its_source_and_loses_nothing(rig: Rig) -> None:
    inbound, outbound, reference = rig.join("slow")
    sent = fill(rig, outbound, reference)
    held = outbound.tail - outbound.head
    assert held > (1 << 14) - 64, "its frames stay in its own ring"
    assert len(rig.echo._hub._outlets["slow"].kept) == 1
    seen: list[bytes] = []
    while len(seen) < sent + 1:
        got = inbound.read()
        rig.work(3)
        assert got or outbound.head < outbound.tail or rig.echo._hub._outlets["slow"].kept
        seen += [body for _, body in got]
        assert len(rig.echo._hub._outlets["slow"].kept) <= 1
    assert seen[1:] == [long(2) + long(number) for number in range(sent)]
    assert rig.echo.counters["pauses"] > 1


def test_sources_of_other_destinations_go_on(rig: Rig) -> None:
    _, slow_out, slow_reference = rig.join("slow")
    quick_in, quick_out, quick_reference = rig.join("quick")
    fill(rig, slow_out, slow_reference)
    before = slow_out.head
    quick_out.write(BEGIN, long(1) + long(quick_reference))
    for number in range(500):
        assert quick_out.write(DATA, long(1) + long(number))
        rig.work(1)
        assert quick_in.await_record()
    assert slow_out.head == before


def test_a_busy_source_does_not_keep_another_from_resuming(rig: Rig) -> None:
    # With `step`, as `run` does it: one ring a turn, and never a moment with nothing to read.
    slow_in, slow_out, slow_reference = rig.join("slow")
    quick_in, quick_out, quick_reference = rig.join("quick", 1 << 16)
    fill(rig, slow_out, slow_reference)
    quick_out.write(BEGIN, long(1) + long(quick_reference))
    before = slow_out.head
    slow_in.read()
    for _ in range(2000):
        while quick_out.tail - quick_out.head < 1 << 12:
            quick_out.write(DATA, long(1) + b"busy")
        rig.echo.step(0.0)
        quick_in.read()
        slow_in.read()
        if slow_out.head > before + (1 << 12):
            break
    else:
        pytest.fail("the slow one was never read again")


def test_two_sources_of_one_full_destination_are_both_stopped(shm_dir: Path) -> None:
    root = shm_dir / "mesh"

    class Funnel(Recorder):
        """Sends everything to one peer."""

        def __init__(self) -> None:
            super().__init__()
            self.out: Stream | None = None

        def on_data(self, stream: Stream, payload: memoryview) -> None:
            if self.out is not None:
                self.out.send(payload)

    handler = Funnel()
    with Nukleus("echo", handler, directory=root, capacities=SMALL, stream_capacity=1 << 12) as echo:
        rig = Rig(root, echo)
        inbound, _, _ = rig.join("sink")
        handler.out = echo.streams.peer("sink").initiate(1, 2)
        sources = [rig.join(name) for name in ("left", "right")]
        sent = [0, 0]
        for _, outbound, reference in sources:
            outbound.write(BEGIN, long(1) + long(reference))
        for _ in range(2000):
            for which, (_, outbound, _) in enumerate(sources):
                if outbound.write(DATA, long(1) + struct.pack("<qq", which, sent[which])):
                    sent[which] += 1
            rig.work(1)
        assert len(echo._hub._outlets["sink"].kept) == 2, "one event of each source"
        got: list[list[int]] = [[], []]
        while len(got[0]) + len(got[1]) < sum(sent):
            for kind, body in inbound.read():
                if kind == DATA:
                    which, number = struct.unpack_from("<qq", body, 8)
                    got[which].append(number)
            rig.work(2)
        assert got == [list(range(sent[0])), list(range(sent[1]))]


def test_a_source_that_feeds_two_full_destinations_waits_for_both(shm_dir: Path) -> None:
    root = shm_dir / "mesh"

    class Fan(Recorder):
        """Sends everything to two peers, and to the second one so often that it overflows each time."""

        def __init__(self) -> None:
            super().__init__()
            self.outs: list[Stream] = []

        def on_data(self, stream: Stream, payload: memoryview) -> None:
            self.outs[0].send(payload)
            for _ in range(60):
                self.outs[1].send(payload)

    handler = Fan()
    with Nukleus("echo", handler, directory=root, capacities=SMALL, stream_capacity=1 << 13) as echo:
        rig = Rig(root, echo)
        never, _, _ = rig.join("never")
        quick, _, _ = rig.join("quick")
        for name in ("never", "quick"):
            stream = echo.streams.peer(name).initiate(1, 2)
            assert stream is not None
            handler.outs.append(stream)
        _, outbound, reference = rig.join("source")
        outbound.write(BEGIN, long(1) + long(reference))
        sent = 0
        for _ in range(1000):
            if outbound.write(DATA, long(1) + long(sent)):
                sent += 1
            rig.work(1)
            quick.read()  # the one has room again and again, the other never
        assert len(echo._hub._outlets["never"].kept) == 1, "bounded by the destination that never reads"
        seen = 0
        while seen < sent:
            quick.read()
            seen += sum(kind == DATA for kind, _ in never.read())
            rig.work(2)
        assert seen == sent


@pytest.mark.parametrize("command", ["unroute", "uncapture"])
def test_unroute_and_uncapture_of_a_full_destination_reset_and_unmap(rig: Rig, command: str) -> None:
    inbound, outbound, reference = rig.join("slow")
    fill(rig, outbound, reference)
    if command == "unroute":
        assert rig.echo.do(Unroute(1, "slow")) == Unrouted(1)
    else:
        assert rig.echo.do(Uncapture(1, "slow")) == Uncaptured(1)
    assert rig.echo.streams.open == 0
    outbound.write(DATA, long(1) + b"more")
    rig.work()
    inbound.read()
    rig.work()
    if command == "uncapture":
        frames = inbound.read()
        assert frames[-1] == (RESET, long(2)), "the reset waited for room"
        assert rig.echo.do(Unroute(2, "slow")) == Unrouted(2)
    else:
        assert rig.echo.do(Uncapture(2, "slow")) == Uncaptured(2)
    rig.work()
    # All of it again, in the same files.
    rig.echo.capture("slow")
    rig.echo.route("slow")
    while outbound.head < outbound.tail:
        rig.work(1)
        inbound.read()
    outbound.write(BEGIN, long(9) + long(bind(rig.echo, "slow")))
    rig.work(2)
    kind, body = inbound.read()[-1]
    assert (kind, body[8:]) == (BEGIN, long(9))


def test_a_reset_to_a_full_ring_arrives_later(rig: Rig) -> None:
    inbound, outbound, reference = rig.join("slow")
    fill(rig, outbound, reference)
    stream = next(iter(rig.echo.streams.peer("slow").inbound.values()))
    stream.reset()
    frames: list[Record] = []
    for _ in range(2000):
        frames += inbound.read()
        rig.work(1)
    after = frames[frames.index((RESET, long(2))) + 1 :]
    assert {frame for frame in after if frame != (RESET, long(1))} == set(), "a reset is the last word"
    assert outbound.head == outbound.tail


def test_100_000_frames_to_a_slow_reader_in_another_process_arrive_in_order(shm_dir: Path) -> None:
    root, told = shm_dir / "mesh", shm_dir / "told"
    frames = count(100_000, 1_000_000)
    with (
        echo_in(root, stream_capacity=1 << 15) as echo,
        process(workers.slow_reader, str(root), frames, 40, str(told)),
    ):
        until(told.exists, timeout_s=100)
        assert told.read_text() == "in order"
        assert echo.counters["pauses"] > 10
        assert echo.counters["frames read"] >= frames


def test_memory_stays_bounded_however_long_a_destination_is_full(rig: Rig) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    _, outbound, reference = rig.join("slow")
    fill(rig, outbound, reference)
    before = resident()
    for _ in range(20_000):
        outbound.write(DATA, long(1) + b"x" * 100)
        rig.echo.work()
    assert len(rig.echo._hub._outlets["slow"].kept) == 1
    assert resident() - before < 4 << 20


def test_a_dead_peer_does_not_hold_up_what_it_left(shm_dir: Path) -> None:
    # It died with its own ring full: nobody will ever make room there, and what it sent must still be heard.
    root = shm_dir / "mesh"

    class Counting(Echo):
        """Echoes, and counts."""

        heard = 0

        def on_data(self, stream: Stream, payload: memoryview) -> None:
            self.heard += 1
            super().on_data(stream, payload)

    handler = Counting()
    with Nukleus("echo", handler, directory=root, capacities=SMALL, stream_capacity=1 << 14) as echo:
        peer = Nukleus("peer", Recorder(), directory=root, capacities=SMALL, stream_capacity=1 << 10)
        peer.capture("echo")
        echo.capture("peer")
        echo.route("peer")
        peer.route("echo")
        stream = peer.streams.peer("echo").initiate(1, bind(echo, "peer"))
        assert stream is not None
        sent = 0
        while stream.send(b"x" * 50):
            sent += 1
            if sent % 20 == 0:
                echo.work()
        assert echo.streams.peer("peer").paused
        assert handler.heard < sent
        peer._owner.release()  # as if it had died; nothing more comes from it
        step_until(echo, lambda: echo.counters.get("peers lost"))
        assert handler.heard == sent
        assert echo.streams.open == 0
        peer.close()
