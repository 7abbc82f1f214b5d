"""The ring in one process: every call against a model of Agrona's rules, to the byte."""

from __future__ import annotations

from itertools import count as numbers

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echomesh.errors import BusyError, ClosedError, MessageTooLarge, RingDamaged, UsageError
from echomesh.native.mapping import Mapping
from echomesh.native.ring import TRAILER_LENGTH, Ring
from echomesh.native.ring_views import Claim
from tests.native.support.memory import RING_TRAILER, get32, get64, put32, scratch, set_positions
from tests.native.support.ring_model import PADDING, Record, RingModel, align

KINDS = st.integers(0, 2**31 - 1)
LIMITS = st.one_of(st.just(2**31 - 1), st.integers(0, 6))


class Refused(Exception):
    """What a handler of these tests raises."""


def a_ring(capacity: int, start: int = 0) -> tuple[Mapping, Ring]:
    mapping = scratch(capacity + RING_TRAILER)
    set_positions(mapping, capacity, start, start)
    return mapping, Ring(mapping)


class RingAgainstModel(RuleBasedStateMachine):
    """Writes, claims and reads in any order; a claim is filled in place and may stay open for long."""

    @initialize(power=st.integers(6, 12), lap=st.integers(0, 2**40), at=st.integers(0, 511))
    def begin(self, power: int, lap: int, at: int) -> None:
        capacity = 1 << power
        start = lap * capacity + at * 8 % capacity
        self.mapping, self.ring = a_ring(capacity, start)
        self.model = RingModel(capacity, start)
        self.claims: list[tuple[Claim, Record]] = []
        self.numbers = numbers()

    def body(self, size: int) -> bytes:
        """Bytes that are never zero, up to the ring's limit."""
        size = size % (self.ring.max_message + 1)
        return bytes([next(self.numbers) % 255 + 1]) * size

    @rule(kind=KINDS, size=st.integers(0, 512))
    def write(self, kind: int, size: int) -> None:
        body = self.body(size)
        assert self.ring.write(kind, body) is self.model.write(kind, body)

    @rule(kind=KINDS, stream=st.integers(-(2**63), 2**63 - 1), size=st.integers(0, 512))
    def write_frame(self, kind: int, stream: int, size: int) -> None:
        data = self.body(size)[: self.ring.max_message - 8]
        body = stream.to_bytes(8, "little", signed=True) + data
        assert self.ring.write_frame(kind, stream, bytearray(data)) is self.model.write(kind, body)

    @rule(kind=KINDS, sizes=st.lists(st.integers(0, 512), max_size=12))
    def write_many(self, kind: int, sizes: list[int]) -> None:
        bodies = [self.body(size) for size in sizes]
        taken = 0
        for body in bodies:
            if not self.model.write(kind, body):
                break
            taken += 1
        assert self.ring.write_many(kind, iter(bodies)) == taken

    @rule(kind=KINDS, size=st.integers(0, 512))
    def claim(self, kind: int, size: int) -> None:
        body = self.body(size)
        claim, made = self.ring.claim(kind, len(body)), self.model.claim(kind, len(body))
        assert (claim is None) == (made is None)
        if claim is not None and made is not None:
            with memoryview(claim) as view:
                view[:] = made.body = body
            self.claims.append((claim, made))

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 99), keep=st.booleans())
    def finish_claim(self, which: int, keep: bool) -> None:
        claim, made = self.claims.pop(which % len(self.claims))
        if keep:
            claim.commit()
        else:
            claim.abort()
            made.kind = PADDING
        made.published = True

    @rule(limit=LIMITS)
    def read(self, limit: int) -> None:
        got: list[tuple[int, bytes]] = []
        count = self.ring.read(lambda kind, view: got.append((kind, bytes(view))), limit)
        assert got == self.model.read(limit)
        assert count == len(got)

    @rule(limit=LIMITS, stop_at=st.integers(0, 5))
    def read_until_the_handler_says_enough(self, limit: int, stop_at: int) -> None:
        got: list[tuple[int, bytes]] = []

        def handler(kind: int, view: memoryview) -> bool:
            got.append((kind, bytes(view)))
            return len(got) - 1 == stop_at

        assert self.ring.read(handler, limit) == len(got)
        assert got == self.model.read(limit, stop_at)

    @rule(stop_at=st.integers(0, 5))
    def read_until_the_handler_raises(self, stop_at: int) -> None:
        got: list[tuple[int, bytes]] = []

        def handler(kind: int, view: memoryview) -> None:
            got.append((kind, bytes(view)))
            if len(got) - 1 == stop_at:
                raise Refused

        try:
            self.ring.read(handler)
        except Refused:
            assert len(got) - 1 == stop_at
        else:
            assert len(got) <= stop_at
        assert got == self.model.read(2**31 - 1, stop_at)

    @rule(limit=LIMITS)
    def drain(self, limit: int) -> None:
        assert self.ring.drain(limit) == self.model.drain(limit)

    @rule(size=st.integers(0, 512))
    def ask_for_room(self, size: int) -> None:
        size = size % (self.ring.max_message + 1)
        assert self.ring.has_room(size) is (self.model.room(size) is not None)

    @invariant()
    def positions_are_exact(self) -> None:
        ring, model = self.ring, self.model
        assert (ring.head, ring.tail, ring.head_cache) == (model.head, model.tail, model.head_cache)
        assert ring.size == model.tail - model.head
        assert (ring.readable(), ring.blocked()) == (model.readable(), model.blocked())

    @invariant()
    def memory_is_exact_and_zero_behind_the_head(self) -> None:
        assert bytes(self.mapping) == self.model.image()

    def teardown(self) -> None:
        for claim, _ in getattr(self, "claims", []):
            claim.abort()


TestRingAgainstModel = RingAgainstModel.TestCase


@pytest.mark.parametrize("capacity", [64, 128, 256, 512, 1024, 2048, 4096])
def test_each_place_of_the_end_wraps_as_agrona_says(capacity: int) -> None:
    for start in range(capacity - capacity // 8 - 16, capacity, 8):
        for size in range(0, capacity // 8 + 1, max(1, capacity // 64)):
            mapping, ring = a_ring(capacity, start)
            model = RingModel(capacity, start)
            body = b"\x07" * size
            while ring.write(3, body):
                assert model.write(3, body)
            assert not model.write(3, body)
            assert bytes(mapping) == model.image()
            assert ring.drain() == model.drain(1 << 30)
            assert bytes(mapping) == model.image()


def test_one_read_never_goes_beyond_the_end() -> None:
    _, ring = a_ring(64, 48)
    assert ring.write_many(1, [b"a", b"b"]) == 2
    assert ring.read(lambda *_: None) == 1
    assert ring.head == 64
    assert ring.read(lambda *_: None) == 1


def test_drain_goes_over_the_end_in_one_call() -> None:
    _, ring = a_ring(64, 56)
    assert ring.write(1, b"12345678")  # a padding, then the message at 0
    assert ring.drain() == [(1, b"12345678")]
    assert ring.head == ring.tail == 56 + 8 + 16


def test_what_was_drained_before_a_damaged_place_is_handed_out() -> None:
    mapping, ring = a_ring(64, 48)
    assert ring.write_many(1, [b"good", b"bad"]) == 2
    put32(mapping, 0, 3)
    assert ring.drain() == [(1, b"good")]
    with pytest.raises(RingDamaged):
        ring.drain()


def test_the_largest_body_is_an_eighth_of_the_capacity() -> None:
    mapping, ring = a_ring(1024)
    assert ring.write(1, bytes(128))
    before = bytes(mapping)
    with pytest.raises(MessageTooLarge) as caught:
        ring.write(1, bytes(129))
    assert (caught.value.size, caught.value.limit) == (129, 128)
    with pytest.raises(MessageTooLarge):
        ring.claim(1, 129)
    with pytest.raises(MessageTooLarge):
        ring.claim(1, -1)
    assert bytes(mapping) == before


def test_a_negative_type_is_refused_and_zero_is_legal() -> None:
    _, ring = a_ring(256)
    for refused in (-1, -(2**31)):
        with pytest.raises(UsageError):
            ring.write(refused, b"")
    assert ring.tail == 0
    assert ring.write(0, b"")
    assert ring.drain() == [(0, b"")]


def test_write_many_keeps_what_was_written_before_a_bad_message() -> None:
    _, ring = a_ring(256)
    with pytest.raises(MessageTooLarge):
        ring.write_many(1, [b"a", bytes(33), b"b"])
    with pytest.raises(TypeError):
        ring.write_many(1, [b"c", "text"])  # type: ignore[list-item]
    assert ring.drain() == [(1, b"a"), (1, b"c")]


def test_a_ring_in_the_middle_of_a_file_touches_nothing_else() -> None:
    mapping = scratch(64 + 128 + RING_TRAILER + 64)
    view = memoryview(mapping)
    view[:64] = view[-64:] = b"\xaa" * 64
    ring = Ring(mapping, 64, 128)
    for size in range(200):
        ring.write(1, bytes(size % 17))
        ring.drain()
    ring.next_correlation_id()
    ring.heartbeat = 5
    assert bytes(view[:64]) == bytes(view[-64:]) == b"\xaa" * 64
    assert TRAILER_LENGTH == RING_TRAILER


@pytest.mark.parametrize("capacity", [0, 32, 63, 65, 96, -64, 2**31, 2**63 - 1])
def test_a_capacity_that_is_no_power_of_two_is_damage(capacity: int) -> None:
    with pytest.raises(RingDamaged):
        Ring(scratch(4096), 0, capacity)


@pytest.mark.parametrize(("offset", "capacity"), [(-8, 64), (4, 64), (3264, 128), (2**63 - 8, 64), (-(2**63), 64)])
def test_a_ring_beyond_its_file_is_damage(offset: int, capacity: int) -> None:
    with pytest.raises(RingDamaged):
        Ring(scratch(4096), offset, capacity)


def test_a_ring_that_is_being_read_is_busy() -> None:
    _, ring = a_ring(256)
    ring.write(1, b"outer")
    ring.write(1, b"later")

    def handler(kind: int, view: memoryview) -> bool:
        with pytest.raises(BusyError):
            ring.drain()
        assert ring.write(2, b"written from a handler")
        return True

    assert ring.read(handler) == 1
    assert ring.drain() == [(1, b"later"), (2, b"written from a handler")]


def test_a_closed_ring_refuses_everything() -> None:
    _, ring = a_ring(256)
    ring.close()
    for call in (
        lambda: ring.write(1, b""),
        lambda: ring.write_many(1, [b""]),
        lambda: ring.claim(1, 1),
        ring.drain,
        ring.readable,
        ring.unblock,
        ring.next_correlation_id,
        lambda: ring.read(lambda *_: None),
    ):
        with pytest.raises(ClosedError):
            call()
    assert ring.closed


def test_correlation_ids_count_from_zero_over_all_rings_of_a_file() -> None:
    mapping, ring = a_ring(256)
    other = Ring(mapping)
    assert [ring.next_correlation_id(), other.next_correlation_id(), ring.next_correlation_id()] == [0, 1, 2]
    assert get64(mapping, 256 + 512) == 3
    assert get32(mapping, 0) == 0


def test_every_kind_of_buffer_can_be_written() -> None:
    _, ring = a_ring(4096)
    data = bytes(range(100))
    for buffer in (data, bytearray(data), memoryview(data)[10:50]):
        assert ring.write(1, buffer)
    assert [body for _, body in ring.drain()] == [data, data, data[10:50]]
    assert align(8 + 100) * 2 + align(8 + 40) == ring.head


def test_a_large_body_is_copied_whole_without_the_gil() -> None:
    _, ring = a_ring(1 << 20)
    data = bytes(range(256)) * 512
    assert ring.write(1, data)
    assert ring.write(1, bytearray(data))
    assert ring.drain() == [(1, data), (1, data)]
