"""Blocks of bytes that are filled in place."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.native.blocks import Block


@given(pieces=st.lists(st.tuples(st.booleans(), st.binary(max_size=50)), min_size=1, max_size=10))
def test_what_was_put_and_what_was_read_become_bytes(pieces: list[tuple[bool, bytes]]) -> None:
    whole = b"".join(piece for _, piece in pieces) + b"."
    block = Block(len(whole))
    for in_place, piece in [*pieces, (False, b".")]:
        if in_place:
            memoryview(block)[: len(piece)] = piece
            block.moved(len(piece))
        else:
            block.put(piece)
    assert block.filled == len(whole)
    assert block.take() == whole


def test_a_socket_reads_into_what_is_missing() -> None:
    here, there = socket.socketpair()
    with here, there:
        block = Block(10)
        block.put(b"ab")
        here.sendall(b"cdefghijKLM")
        assert memoryview(block).nbytes == 8
        block.moved(there.recv_into(block))
        assert (block.take(), there.recv(9)) == (b"abcdefghij", b"KLM")


def test_it_takes_no_more_than_it_was_made_for() -> None:
    block = Block(3)
    with pytest.raises(ValueError, match="more than is missing"):
        block.put(b"abcd")
    for size in (-1, 4):
        with pytest.raises(ValueError, match="more than is missing"):
            block.moved(size)
    with pytest.raises(ValueError, match="not full"):
        block.take()
    for size in (0, -1):
        with pytest.raises(ValueError, match="a byte"):
            Block(size)


def test_nobody_writes_to_bytes_that_were_given_out() -> None:
    block = Block(2)
    block.put(b"ab")
    whole = block.take()
    with pytest.raises(BufferError):
        memoryview(block)
    with pytest.raises(ValueError, match="more than is missing"):
        block.put(b"")
    with pytest.raises(ValueError, match="taken"):
        block.take()
    assert whole == b"ab"


def test_who_still_has_it_as_a_buffer_keeps_its_bytes_alive() -> None:
    block = Block(1 << 20)
    room = memoryview(block)
    room[:] = b"x" * (1 << 20)
    block.moved(1 << 20)
    whole = block.take()
    del block
    assert bytes(room) == whole
    del whole
    filler = [bytes(1 << 20) for _ in range(8)]  # what was freed would be used again by these
    assert room[0] == room[-1] == ord("x")
    assert len(filler) == 8
