"""Frames: payloads come out of what a connection brings, in pieces of any size."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import FrameTooLarge
from echomesh.frames import LEAST_DIRECT, STRANGER_FRAME, Splitter, framed
from echomesh.native.blocks import Block


def payloads_of(sizes: list[int]) -> list[bytes]:
    """Payloads of these sizes."""
    return [random.Random(size).randbytes(size) for size in sizes]


@given(payloads=st.lists(st.binary(max_size=300), max_size=12), cuts=st.lists(st.integers(0, 500), max_size=20))
def test_frames_come_out_whole_however_they_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    splitter = Splitter(300)
    data = b"".join(map(framed, payloads))
    found: list[bytes] = []
    for cut in [*cuts, len(data)]:
        found += splitter.feed(data[:cut])
        data = data[cut:]
    assert found == payloads
    assert splitter.waiting == 0


@given(
    sizes=st.lists(st.integers(0, 30_000), max_size=6),
    cuts=st.lists(st.sampled_from((1, 3, 4, 100, 4095, 4096, 20_000)), min_size=1, max_size=20),
    kind=st.sampled_from((bytes, bytearray, memoryview)),
)
def test_large_frames_come_out_whole_in_pieces_that_their_sender_may_use_again(
    sizes: list[int], cuts: list[int], kind: Callable[[bytes], Any]
) -> None:
    splitter, payloads = Splitter(30_000), payloads_of(sizes)
    data, lengths = b"".join(map(framed, payloads)), itertools.cycle(cuts)
    found: list[bytes] = []
    while data:
        cut = next(lengths)
        piece = kind(data[:cut])
        found += splitter.feed(piece)
        if isinstance(piece, bytearray):
            piece[:] = bytes(len(piece))
        data = data[cut:]
    assert found == payloads
    assert (splitter.waiting, splitter.missing) == (0, 4)


@given(
    sizes=st.lists(st.sampled_from((0, 10, LEAST_DIRECT - 1, LEAST_DIRECT, LEAST_DIRECT + 5000, 90_000)), max_size=6),
    cuts=st.lists(st.sampled_from((1, 3, 4, 5, 100, 20_000, 70_000)), min_size=1, max_size=20),
    in_place=st.booleans(),
)
def test_large_frames_are_read_in_place_if_one_likes(sizes: list[int], cuts: list[int], in_place: bool) -> None:
    splitter, payloads = Splitter(100_000), payloads_of(sizes)
    splitter.direct = Block
    data, lengths = b"".join(map(framed, payloads)), itertools.cycle(cuts)
    found: list[bytes] = []
    while data:
        cut = next(lengths)
        if in_place and splitter.block is not None:
            room = memoryview(splitter.block)
            piece = data[: min(cut, len(room))]
            room[: len(piece)] = piece
            found += splitter.filled(len(piece))
        else:
            piece = data[:cut]
            found += splitter.feed(bytearray(piece))
        data = data[len(piece) :]
    assert found == payloads
    assert (splitter.waiting, splitter.missing, splitter.block) == (0, 4, None)


@given(payloads=st.lists(st.binary(max_size=50), max_size=5), size=st.integers(51, (1 << 32) - 1), rest=st.binary())
def test_a_length_over_the_limit_is_told_once_it_is_read_and_after_what_came_before(
    payloads: list[bytes], size: int, rest: bytes
) -> None:
    splitter = Splitter(50)
    data = b"".join(map(framed, payloads)) + size.to_bytes(4, "big") + rest
    if payloads:
        assert list(splitter.feed(data)) == payloads
        with pytest.raises(FrameTooLarge):
            splitter.check()
    with pytest.raises(FrameTooLarge) as raised:
        splitter.feed(b"" if payloads else data)
    assert (raised.value.size, raised.value.limit) == (size, 50)
    assert splitter.waiting == 0


def test_a_hostile_length_costs_no_memory() -> None:
    splitter = Splitter(STRANGER_FRAME)
    tracemalloc.start()
    for byte in ((1 << 32) - 1).to_bytes(4, "big")[:3]:
        splitter.feed(bytes((byte,)))
    with pytest.raises(FrameTooLarge):
        splitter.feed(b"\xff" * 1000)
    assert tracemalloc.get_traced_memory()[1] < 64 << 10
    tracemalloc.stop()


def test_a_frame_in_single_bytes_is_held_once() -> None:
    splitter = Splitter(STRANGER_FRAME)
    data = framed(b"x" * STRANGER_FRAME)
    tracemalloc.start()
    for byte in range(len(data) - 1):
        assert list(splitter.feed(data[byte : byte + 1])) == []
    assert tracemalloc.get_traced_memory()[1] < 3 * STRANGER_FRAME
    tracemalloc.stop()
    assert list(splitter.feed(data[-1:])) == [data[4:]]
