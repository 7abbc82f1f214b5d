"""Damaged state files: put right or reported, nothing made up."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import StateTooNew
from echomesh.mesh import state_format
from echomesh.mesh.state_format import FRAME_BYTES, HEADER_BYTES
from echomesh.native.log_sums import crc32c
from tests.mesh.state_faults_support import History, written
from tests.mesh.state_support import LOG_ID, content, drop, found, fresh_directory, is_clean, opened
from tests.support.counts import count


def test_a_tail_torn_at_any_byte_is_cut_off_and_reported(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    for size in range(HEADER_BYTES, len(data)):
        (shm_dir / "state").write_bytes(data[:size])
        state = opened(shm_dir)
        end, values = max(entry for entry in ends if entry[0] <= size)
        assert content(state) == values
        assert state.report.torn_bytes == size - end
        assert not state.report.lost
        assert state.report.clean == (size == end)
        # The next write follows the last good one.
        state.put(("more",), size)
        assert state.flush()
        drop(state)
        assert found(shm_dir) == values | {("more",): size}


def test_zeros_behind_the_end_are_a_torn_tail(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    (shm_dir / "state").write_bytes(data + bytes(100))
    state = opened(shm_dir)
    assert content(state) == ends[-1][1]
    assert state.report.torn_bytes == 100
    assert "100 bytes of an unfinished write" in str(state.report)


def test_any_one_flipped_bit_is_put_right_and_reported(shm_dir: Path) -> None:
    values = written(shm_dir)[-1][1]
    data = (shm_dir / "state").read_bytes()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        (shm_dir / "state").write_bytes(damaged)
        state = opened(shm_dir)
        drop(state)
        assert content(state) == values, bit
        assert len(state.report.mended) == 1
        assert "flipped bits were put right" in str(state.report)
        assert found(shm_dir) == values
        assert is_clean(shm_dir)


def test_two_flipped_bits_lose_what_they_hit_and_nothing_else(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    chosen = random.Random(2)
    for number in range(1, len(ends)):
        for _ in range(count(30, 1000)):
            damaged = bytearray(data)
            begin, end = ends[number - 1][0], ends[number][0]
            for bit in chosen.sample(range((begin + 8) * 8, end * 8), 2):
                damaged[bit >> 3] ^= 1 << (bit & 7)
            (shm_dir / "state").write_bytes(damaged)
            state = opened(shm_dir)
            drop(state)
            seen = content(state)
            if number == len(ends) - 1:
                # Nothing stands behind it, so that it may look like a torn write.
                assert seen == ends[number - 1][1]
                assert bool(state.report.torn_bytes) != bool(state.report.lost)
                continue
            assert [tuple(part) for part in state.report.lost] == [(begin, end - begin, 1)]
            # Later writes count: only keys that were in the lost one alone have their values of before.
            expected = dict(ends[-1][1])
            expected.pop(("k", str(number - 1)), None)
            assert seen == expected
            assert (shm_dir / "state.aside").read_bytes() == bytes(damaged)
            assert f"{end - begin} bytes at {begin} are damaged (1 writes lost)" in str(state.report)


def test_an_old_write_that_turns_up_again_brings_no_old_value_back(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    (shm_dir / "state").write_bytes(data + data[ends[0][0] : ends[1][0]])
    state = opened(shm_dir)
    assert content(state) == ends[-1][1]
    assert not state.report.clean


def test_a_write_that_is_gone_without_a_trace_is_missed(shm_dir: Path) -> None:
    ends = written(shm_dir)
    data = (shm_dir / "state").read_bytes()
    (shm_dir / "state").write_bytes(data[: ends[1][0]] + data[ends[2][0] :])
    state = opened(shm_dir)
    assert [tuple(part) for part in state.report.lost] == [(ends[1][0], 0, 1)]


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_a_file_too_short_for_its_header_is_put_aside(shm_dir: Path, size: int) -> None:
    written(shm_dir)
    (shm_dir / "state").write_bytes((shm_dir / "state").read_bytes()[:size])
    state = opened(shm_dir)
    assert content(state) == {}
    assert "too short" in str(state.report)
    assert (shm_dir / "state.aside").stat().st_size == size
    assert is_clean(shm_dir)


def test_a_header_that_is_gone_takes_nothing_with_it(shm_dir: Path) -> None:
    values = written(shm_dir)[-1][1]
    data = (shm_dir / "state").read_bytes()
    (shm_dir / "state").write_bytes(bytes(HEADER_BYTES) + data[HEADER_BYTES:])
    state = opened(shm_dir)
    assert content(state) == values
    assert "the header is damaged" in str(state.report)
    (shm_dir / "state").write_bytes(bytes(len(data)))
    assert found(shm_dir) == {}
    (shm_dir / "state").write_bytes(b"something else, of another program, and long enough for a header")
    state = opened(shm_dir)
    assert content(state) == {}
    assert state.report.aside


def test_a_file_of_a_newer_version_is_left_alone(shm_dir: Path) -> None:
    written(shm_dir)
    data = bytearray((shm_dir / "state").read_bytes())
    data[8] = 2
    data[36:40] = crc32c(bytes(data[:36])).to_bytes(4, "little")
    (shm_dir / "state").write_bytes(data)
    with pytest.raises(StateTooNew, match="version 2"):
        opened(shm_dir)
    assert (shm_dir / "state").read_bytes() == data


@given(st.data())
def test_fuzzed_files_are_opened_with_a_report_and_nothing_made_up(data: st.DataObject) -> None:
    with fresh_directory() as directory:
        history = History()
        state = opened(directory)
        for i in range(6):
            state.put(("k", str(i % 4)), [i, "x" * i])
            history.put(("k", str(i % 4)), [i, "x" * i])
            assert state.flush()
        drop(state)
        file = bytearray((directory / "state").read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(file) - 1))
            size = data.draw(st.integers(0, 60))
            change = data.draw(st.sampled_from(["set", "zero", "cut", "insert", "repeat"]))
            if change == "set":
                file[at : at + size] = data.draw(st.binary(min_size=size, max_size=size))
            elif change == "zero":
                file[at : at + size] = bytes(size)
            elif change == "cut":
                del file[at : at + size]
            elif change == "insert":
                file[at:at] = data.draw(st.binary(max_size=60))
            else:
                file[at:at] = file[at : at + size]
            file = file or bytearray(1)
        (directory / "state").write_bytes(file)
        state = opened(directory)
        drop(state)
        history.check(content(state), {})
        str(state.report)
        assert is_clean(directory)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_frames_with_a_good_sum_and_any_content_do_no_harm(body: bytes, sequence: int) -> None:
    with fresh_directory() as directory:
        mark = b"\x01\x02\x03\x04\x05\x06\x07\x08"
        good = state_format.encode([(("a",), state_format.encode(1))])
        file = state_format.header(LOG_ID, mark)
        for number, part in ((1, good), (sequence, body), (9, good)):
            file += state_format.frame(crc32c(LOG_ID), mark, number, part)
        (directory / "state").write_bytes(file)
        state = opened(directory)
        drop(state)
        assert state.get(("a",)) in (1, None)
        content(state)
        assert not state.report.clean


@pytest.mark.parametrize(
    "entries",
    [[((), b"\x01")], [(("a",), b"\xc1")], [(("a",), b"\x91" * 100_000)], [(("a",), b"")], [(("a",), 5)], {"a": 1}],
)
def test_a_frame_whose_entries_are_none_is_a_damaged_one(shm_dir: Path, entries: object) -> None:
    mark = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    file = state_format.header(LOG_ID, mark)
    file += state_format.frame(crc32c(LOG_ID), mark, 1, state_format.encode(entries))
    (shm_dir / "state").write_bytes(file)
    state = opened(shm_dir)
    assert content(state) == {}
    assert [(part.position, part.frames) for part in state.report.lost] == [(HEADER_BYTES, 1)]
    assert len(file) > HEADER_BYTES + FRAME_BYTES
