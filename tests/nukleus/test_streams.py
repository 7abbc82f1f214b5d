"""Stream events and what they do, with a list for a wire."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from typing_extensions import Buffer

from echomesh.errors import StreamReset, UsageError
from echomesh.nukleus import Echo, Stream
from echomesh.nukleus.streams import BEGIN, DATA, END, RESET, PeerStreams, State, Streams
from tests.nukleus.helpers import Recorder

Frame = tuple[int, int, bytes]


class ListOutlet:
    """A way to a peer that ends in a list."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.full = False

    def write(self, kind: int, stream_id: int, payload: Buffer = b"") -> bool:
        if self.full:
            return False
        self.frames.append((kind, stream_id, bytes(payload)))
        return True

    def take(self) -> list[Frame]:
        taken, self.frames = self.frames, []
        return taken


def long(value: int) -> bytes:
    return struct.pack("<q", value)


class Desk:
    """One nukleus's streams with one peer, "peer"."""

    def __init__(self, handler: Recorder | Echo, name: str = "here") -> None:
        self.counts: Counter[str] = Counter()
        self.bound = {2}
        self.streams = Streams(name, handler, self._count, lambda source, reference: reference in self.bound)
        self.peer: PeerStreams = self.streams.peer("peer")
        self.outlet = ListOutlet()
        self.peer.outlet = self.outlet

    def _count(self, label: str) -> None:
        self.counts[label] += 1

    def receive(self, kind: int, stream_id: int, payload: bytes = b"") -> list[Frame]:
        self.peer.receive(kind, stream_id, memoryview(payload))
        return self.outlet.take()


@pytest.fixture
def echo() -> Desk:
    return Desk(Echo())


@pytest.fixture
def handler() -> Recorder:
    return Recorder()


@pytest.fixture
def desk(handler: Recorder) -> Desk:
    return Desk(handler)


def test_a_begin_with_a_bind_reference_is_answered_by_a_correlated_begin(echo: Desk) -> None:
    assert echo.receive(BEGIN, 1, long(2)) == [(BEGIN, 2, long(1))]
    assert echo.receive(BEGIN, 5, long(2)) == [(BEGIN, 6, long(5))]
    assert echo.streams.open == 2


def test_data_is_echoed_with_the_same_bytes_on_the_correlated_stream(echo: Desk) -> None:
    echo.receive(BEGIN, 7, long(2))
    for payload in (b"x", b"", bytes(range(256)) * 40):
        assert echo.receive(DATA, 7, payload) == [(DATA, 2, payload)]


def test_an_end_is_echoed_and_frees_both_streams(echo: Desk) -> None:
    echo.receive(BEGIN, 1, long(2))
    assert echo.receive(END, 1) == [(END, 2, b"")]
    assert echo.streams.open == 0
    assert echo.receive(DATA, 1, b"late") == [(RESET, 1, b"")]


def test_a_stream_that_we_initiated_is_echoed_once_the_peer_replies(echo: Desk) -> None:
    stream = echo.peer.initiate(1, 40)
    assert stream is not None
    assert echo.outlet.take() == [(BEGIN, 1, long(40))]
    assert echo.receive(BEGIN, 8, long(1)) == []
    assert echo.receive(DATA, 8, b"ball") == [(DATA, 1, b"ball")]
    assert echo.receive(DATA, 8, b"") == [(DATA, 1, b"")]
    assert echo.receive(END, 8) == [(END, 1, b"")]
    assert echo.streams.open == 0
    assert not stream.alive


@pytest.mark.parametrize("reference", [0, 1, 4, -2, 1 << 40])
def test_a_begin_with_an_unknown_reference_is_reset_and_counted(echo: Desk, reference: int) -> None:
    assert echo.receive(BEGIN, 1, long(reference)) == [(RESET, 1, b"")]
    assert echo.counts["unknown references"] == 1
    assert echo.streams.open == 0


@pytest.mark.parametrize("kind", [DATA, END, 4, 77, -5])
def test_a_frame_for_an_unknown_stream_is_reset_and_counted(echo: Desk, kind: int) -> None:
    assert echo.receive(kind, 9, b"") == [(RESET, 9, b"")]
    assert echo.counts["unknown streams"] == 1


def test_an_even_begin_for_a_stream_that_we_did_not_initiate_is_reset(echo: Desk) -> None:
    assert echo.receive(BEGIN, 2, long(1)) == [(RESET, 2, b"")]
    echo.receive(BEGIN, 1, long(2))
    assert echo.receive(BEGIN, 4, long(2)) == [(RESET, 4, b"")], "2 is a reply of ours, not an initiating stream"
    assert echo.counts["unknown streams"] == 2


def test_a_second_reply_to_one_stream_is_reset_and_the_first_lives(echo: Desk) -> None:
    echo.peer.initiate(1, 40)
    echo.outlet.take()
    echo.receive(BEGIN, 2, long(1))
    assert echo.receive(BEGIN, 4, long(1)) == [(RESET, 4, b"")]
    assert echo.receive(DATA, 2, b"still") == [(DATA, 1, b"still")]


def test_a_reset_is_never_answered_with_a_reset(echo: Desk) -> None:
    for stream_id in (0, 1, 2, 9, -3):
        assert echo.receive(RESET, stream_id) == []
    echo.receive(BEGIN, 1, long(2))
    assert echo.receive(RESET, 1) == []
    assert echo.receive(RESET, 1) == []
    assert echo.counts["resets received"] == 7
    assert "resets sent" not in echo.counts


def test_a_reset_of_the_peers_stream_ends_both_ways(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    stream = handler.streams[0]
    stream.reply()
    desk.outlet.take()
    assert desk.receive(RESET, 1) == []
    assert handler.events[-1] == ("reset", 1)
    assert desk.streams.open == 0
    assert not stream.alive
    with pytest.raises(StreamReset):
        stream.send(b"x")
    with pytest.raises(StreamReset):
        stream.end()


def test_a_reset_of_our_stream_ends_both_ways(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    handler.streams[0].reply()
    desk.outlet.take()
    assert desk.receive(RESET, 2) == []
    assert handler.events[-1] == ("reset", 1)
    assert desk.streams.open == 0


def test_a_refused_initiation_is_told_to_the_handler_once(desk: Desk, handler: Recorder) -> None:
    stream = desk.peer.initiate(1, 40)
    assert stream is not None
    desk.receive(RESET, stream.outbound_id)
    desk.receive(RESET, stream.outbound_id)
    assert handler.events == [("reset", -stream.outbound_id)]
    assert desk.streams.open == 0


def test_our_own_reset_tells_the_peer_and_not_the_handler(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    stream = handler.streams[0]
    stream.reset()
    assert desk.outlet.take() == [(RESET, 1, b"")], "there is no stream of ours yet, so the peer's own is named"
    stream.reset()
    assert desk.outlet.take() == []
    desk.receive(BEGIN, 5, long(2))
    replied = handler.streams[1]
    replied.reply()
    desk.outlet.take()
    replied.reset()
    assert desk.outlet.take() == [(RESET, replied.outbound_id, b"")]
    assert handler.saw("reset") == 0
    assert desk.streams.open == 0


def test_both_sides_may_own_the_same_odd_id(echo: Desk) -> None:
    ours = echo.peer.initiate(1, 40)
    assert ours is not None
    assert ours.outbound_id == 1
    echo.outlet.take()
    assert echo.receive(BEGIN, 1, long(2)) == [(BEGIN, 2, long(1))]
    assert echo.receive(BEGIN, 4, long(1)) == []
    assert echo.receive(DATA, 1, b"theirs") == [(DATA, 2, b"theirs")]
    assert echo.receive(DATA, 4, b"ours") == [(DATA, 1, b"ours")]
    assert echo.receive(END, 1) == [(END, 2, b"")]
    assert echo.receive(DATA, 4, b"ours") == [(DATA, 1, b"ours")]


def test_of_two_nuklei_of_ours_neither_uses_an_id_of_the_other() -> None:
    here, there = (
        Streams("a", Echo(), print, lambda s, r: True),
        Streams("b", Echo(), print, lambda s, r: True),
    )
    used: list[set[int]] = []
    for streams, name in ((here, "b"), (there, "a")):
        peer = streams.peer(name)
        peer.outlet = outlet = ListOutlet()
        for number in range(20):
            peer.initiate(1, 2)
            peer.receive(BEGIN, 1001 + 2 * number, memoryview(long(2)))
        used.append({stream_id for kind, stream_id, _ in outlet.frames if kind == BEGIN})
    assert len(used[0]) == len(used[1]) == 40
    assert not used[0] & used[1]


def test_ids_are_not_used_again_for_a_peer_that_was_forgotten(desk: Desk) -> None:
    first = desk.peer.initiate(1, 2)
    desk.streams.forget_peer("peer")
    again = desk.streams.peer("peer")
    again.outlet = desk.outlet
    second = again.initiate(1, 2)
    assert first is not None
    assert second is not None
    assert first.outbound_id != second.outbound_id


def test_a_begin_on_an_open_id_resets_the_old_stream_and_begins_a_new_one(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    assert desk.receive(BEGIN, 1, long(2)) == []
    assert handler.events == [("begin", 1), ("reset", 1), ("begin", 1)]
    assert desk.streams.open == 1
    assert not handler.streams[0].alive
    assert handler.streams[1].alive
    assert desk.counts["violations"] == 1


def test_a_begin_of_stream_0_is_refused(echo: Desk) -> None:
    assert echo.receive(BEGIN, 0, long(2)) == [(RESET, 0, b"")]
    assert echo.counts["violations"] == 1
    assert echo.streams.open == 0


@pytest.mark.parametrize("length", [0, 1, 7, 9, 16, 100])
def test_a_malformed_begin_is_refused(echo: Desk, length: int) -> None:
    assert echo.receive(BEGIN, 1, bytes(length)) == [(RESET, 1, b"")]
    assert echo.counts["violations"] == 1
    assert echo.streams.open == 0


def test_an_end_with_a_payload_or_after_an_end_resets_the_stream(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    assert desk.receive(END, 1, b"x") == [(RESET, 1, b"")]
    desk.receive(BEGIN, 3, long(2))
    assert desk.receive(END, 3) == []
    assert desk.receive(END, 3) == [(RESET, 3, b"")]
    desk.receive(BEGIN, 5, long(2))
    desk.receive(END, 5)
    assert desk.receive(DATA, 5, b"late") == [(RESET, 5, b"")]
    assert desk.counts["violations"] == 3
    assert handler.saw("reset") == 3
    assert desk.streams.open == 0


def test_an_unknown_event_on_an_open_stream_resets_it(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    assert desk.receive(4, 1, b"?") == [(RESET, 1, b"")]
    assert handler.events[-1] == ("reset", 1)


def test_after_the_peers_end_we_can_still_send_until_our_own(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    stream = handler.streams[0]
    stream.reply()
    desk.receive(END, 1)
    assert stream.inbound == State.ENDED
    assert stream.send(b"more")
    assert stream.end()
    assert [kind for kind, _, _ in desk.outlet.take()] == [DATA, END]
    assert desk.streams.open == 0


def test_after_our_end_the_peer_can_still_send_until_its_own(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    stream = handler.streams[0]
    stream.reply()
    stream.end()
    desk.receive(DATA, 1, b"more")
    assert handler.payloads == [b"more"]
    assert stream.alive
    desk.receive(END, 1)
    assert desk.streams.open == 0


def test_a_stream_is_replied_to_once_and_only_by_the_one_who_did_not_begin_it(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    handler.streams[0].reply()
    with pytest.raises(UsageError):
        handler.streams[0].reply()
    ours = desk.peer.initiate(1, 2)
    assert ours is not None
    with pytest.raises(UsageError):
        ours.reply()


def test_nothing_can_be_sent_before_the_reply(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    with pytest.raises(StreamReset, match="idle"):
        handler.streams[0].send(b"x")


def test_a_full_ring_is_told_and_changes_nothing(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    stream = handler.streams[0]
    stream.reply()
    desk.outlet.full = True
    assert not stream.send(b"x")
    assert not stream.end()
    assert desk.peer.initiate(1, 2) is None
    desk.outlet.full = False
    assert stream.send(b"x")
    assert stream.end()
    assert desk.peer.initiate(1, 2) is not None


def test_without_a_way_back_nothing_is_answered_and_no_stream_opens(echo: Desk) -> None:
    echo.peer.outlet = None
    assert echo.receive(BEGIN, 1, long(2)) == []
    assert echo.receive(DATA, 1, b"x") == []
    assert echo.streams.open == 0
    assert echo.counts == {"unknown references": 1, "unknown streams": 1}


class Failing(Recorder):
    """A handler that fails on cue."""

    def on_begin(self, stream: Stream) -> None:
        super().on_begin(stream)
        stream.reply()

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        super().on_data(stream, payload)
        raise RuntimeError("on cue")

    def on_reset(self, stream: Stream) -> None:
        super().on_reset(stream)
        raise RuntimeError("on cue, again")


def test_a_handler_that_fails_loses_its_stream_and_no_other() -> None:
    desk = Desk(Failing())
    desk.receive(BEGIN, 1, long(2))
    desk.receive(BEGIN, 5, long(2))
    assert desk.receive(DATA, 1, b"x") == [(RESET, 2, b"")]
    assert desk.streams.open == 1
    assert desk.counts["handler errors"] == 2


def test_dropping_all_tells_the_peer_and_the_handler_about_each_once(desk: Desk, handler: Recorder) -> None:
    desk.receive(BEGIN, 1, long(2))
    handler.streams[0].reply()
    desk.peer.initiate(1, 2)
    desk.outlet.take()
    desk.peer.drop_all(tell_peer=True)
    assert sorted(desk.outlet.take()) == [(RESET, 1, b""), (RESET, 2, b"")]
    assert sorted(handler.events[1:]) == [("reset", -1), ("reset", 1)]
    assert desk.streams.open == 0
