"""Two ends joined by a wire, at random: they agree in the end, and nothing comes twice or out of order."""

from __future__ import annotations

import struct
from collections import Counter, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import Buffer

from echomesh.nukleus import Stream
from echomesh.nukleus.streams import RESET, PeerStreams, State, Streams
from tests.support.counts import FULL

BOUND = 2


class Wire:
    """One direction. It is full at times, but never for what a handler writes: a nukleus keeps that."""

    def __init__(self) -> None:
        self.frames: deque[tuple[int, int, bytes]] = deque()
        self.room = 6
        self.in_handler = False

    def write(self, kind: int, stream_id: int, payload: Buffer = b"") -> bool:
        if not self.in_handler and kind != RESET and len(self.frames) >= self.room:
            return False
        self.frames.append((kind, stream_id, bytes(payload)))
        return True


class End:
    """One nukleus: accepts most streams, refuses some, ends some at once, and checks all that comes."""

    def __init__(self, name: str, other: str, wire: Wire) -> None:
        self.counts: Counter[str] = Counter()
        self.core = Streams(name, self, self._count, lambda source, reference: reference == BOUND)
        self.peer: PeerStreams = self.core.peer(other)
        self.peer.outlet = wire
        self.wire = wire
        self.open: list[Stream] = []
        self.over: list[Stream] = []
        self.sent: Counter[int] = Counter()
        self.received: Counter[int] = Counter()
        self.refuse_next = False

    def _count(self, label: str) -> None:
        self.counts[label] += 1

    def on_begin(self, stream: Stream) -> None:
        assert stream.inbound == State.OPEN
        if stream.initiated:
            assert stream in self.open
        elif self.refuse_next:
            self.refuse_next = False
            stream.reset()
        else:
            stream.reply()
            self.open.append(stream)

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        assert stream in self.open
        owner, number = struct.unpack("<qq", payload)
        assert owner == stream.inbound_id, "a frame of another stream"
        assert number == self.received[id(stream)], "lost, twice, or out of order"
        self.received[id(stream)] += 1

    def on_end(self, stream: Stream) -> None:
        assert stream in self.open
        assert stream.inbound == State.ENDED
        if stream.outbound == State.ENDED:
            self.settle(stream)

    def on_reset(self, stream: Stream) -> None:
        assert stream in self.open, "a stream is given up once"
        self.settle(stream)

    def settle(self, stream: Stream) -> None:
        self.open.remove(stream)
        self.over.append(stream)

    def send(self, stream: Stream) -> None:
        if stream.outbound == State.OPEN and stream.send(struct.pack("<qq", stream.outbound_id, self.sent[id(stream)])):
            self.sent[id(stream)] += 1

    def end(self, stream: Stream) -> None:
        if stream.outbound == State.OPEN and stream.end() and stream.inbound == State.ENDED:
            self.settle(stream)


class TwoEnds(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.wires = Wire(), Wire()
        self.ends = End("left", "right", self.wires[0]), End("right", "left", self.wires[1])

    def deliver_one(self, which: int) -> None:
        sender, receiver = self.ends[which], self.ends[1 - which]
        kind, stream_id, payload = sender.wire.frames.popleft()
        receiver.wire.in_handler = True
        receiver.peer.receive(kind, stream_id, memoryview(payload))
        receiver.wire.in_handler = False

    sides = st.integers(0, 1)

    @rule(which=sides, reference=st.sampled_from([BOUND, BOUND, BOUND, 4]))
    def initiate(self, which: int, reference: int) -> None:
        end = self.ends[which]
        stream = end.peer.initiate(1, reference)
        if stream is not None:
            end.open.append(stream)

    @rule()
    def both_initiate_at_once(self) -> None:
        for which in (0, 1):
            self.initiate(which, BOUND)

    @rule(which=sides)
    def refuse_the_next(self, which: int) -> None:
        self.ends[which].refuse_next = True

    @precondition(lambda self: any(end.open for end in self.ends))
    @rule(data=st.data(), what=st.sampled_from(["send", "send", "send", "end", "reset"]))
    def act(self, data: st.DataObject, what: str) -> None:
        end = data.draw(st.sampled_from([end for end in self.ends if end.open]))
        stream = end.open[data.draw(st.integers(0, len(end.open) - 1))]
        if what == "send":
            end.send(stream)
        elif what == "end":
            end.end(stream)
        else:
            stream.reset()
            end.settle(stream)

    @rule(which=sides, count=st.integers(1, 5))
    def deliver(self, which: int, count: int) -> None:
        for _ in range(min(count, len(self.wires[which].frames))):
            self.deliver_one(which)

    @invariant()
    def each_end_knows_what_is_open(self) -> None:
        for end in self.ends:
            assert end.core.open == len(end.open)
            assert all(stream.alive for stream in end.open)
            assert not any(stream.alive for stream in end.over)

    def teardown(self) -> None:
        self.deliver_all()
        left, right = self.ends
        # What is open now is open on both sides, and says so with the same ids.
        pairs = {(stream.outbound_id, stream.inbound_id) for stream in left.open}
        assert pairs == {(stream.inbound_id, stream.outbound_id) for stream in right.open}
        there = {stream.inbound_id: stream for stream in right.open}
        for stream in left.open:
            other = there[stream.outbound_id]
            assert left.sent[id(stream)] == right.received[id(other)]
            assert right.sent[id(other)] == left.received[id(stream)]
        for end in self.ends:
            for stream in list(end.open):
                end.end(stream)
        self.deliver_all()
        assert left.core.open == right.core.open == 0, "a stream leaked"
        for end in self.ends:
            assert "violations" not in end.counts
            assert "handler errors" not in end.counts

    def deliver_all(self) -> None:
        for wire in self.wires:
            wire.room = 1 << 30
        while any(wire.frames for wire in self.wires):
            for which in (0, 1):
                if self.wires[which].frames:
                    self.deliver_one(which)


TestTwoEnds = TwoEnds.TestCase
TestTwoEnds.settings = settings(max_examples=1000 if FULL else 60, stateful_step_count=60, deadline=None)
