"""Flipped bits, torn tails, and files full of nonsense: found each time, never served."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from echomesh.errors import LogCorrupt
from echomesh.log import LogReader, TopicLog
from echomesh.log.layout import HEADER_BYTES
from tests.log.support import events_of, small, stored
from tests.support.counts import FULL, count

EVENTS = [b"event %d" % i * (i + 1) for i in range(6)]


def filled(directory: Path) -> Path:
    """A log with one small segment; its path."""
    with TopicLog(directory, small()) as log:
        log.append_many("a", EVENTS)
    (segment,) = (directory / "topics").rglob("*.seg")
    return segment


def survivors(directory: Path) -> tuple[list[tuple[int, bytes]], list[tuple[int, int]]]:
    """(offset, event) of all that can be read when damage is skipped, and the ranges that can't."""
    served: list[tuple[int, bytes]] = []
    bad: list[tuple[int, int]] = []
    with LogReader(directory) as reader:
        topic = reader.topic("a")
        offset = 0
        while offset < topic.end:
            try:
                records = topic.read(offset)
            except LogCorrupt as error:
                bad.append((error.first, error.last))
                offset = error.last + 1
                continue
            served += [(record[0], record[3]) for record in records]
            offset = records.next_offset
    return served, bad


def test_every_flipped_bit_of_a_segment_is_found_and_never_served(tmp_path: Path) -> None:
    segment = filled(tmp_path)
    good = segment.read_bytes()
    for bit in range(0, len(good) * 8, 1 if FULL else 3):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << (bit % 8)
        segment.write_bytes(flipped)
        served, bad = survivors(tmp_path)
        assert len(bad) == 1, bit
        assert all(EVENTS[offset] == event for offset, event in served)
        first, last = bad[0]
        assert {offset for offset, _ in served} | set(range(first, last + 1)) == set(range(6))
        if bit >= HEADER_BYTES * 8:
            assert first == last, "only the record with the flipped bit is lost"


def test_a_torn_tail_of_every_length_is_cut_off_and_reported(tmp_path: Path) -> None:
    segment = filled(tmp_path)
    good = segment.read_bytes()
    # Bytes of a record that was never acknowledged stand behind the end.
    extra = good[HEADER_BYTES : HEADER_BYTES + 80]
    for length in range(1, len(extra), 1 if FULL else 5):
        segment.write_bytes(good + extra[:length])
        assert stored(tmp_path, "a") == EVENTS
        with TopicLog(tmp_path, small()) as log:
            assert log.report.torn_tails
            topic, offset, cut = log.report.torn_tails[0]
            assert (topic, offset) == ("a", 6)
            assert cut <= length
        assert segment.read_bytes() == good


def test_a_segment_that_lost_its_end_is_corrupt_from_there_on(tmp_path: Path) -> None:
    segment = filled(tmp_path)
    good = segment.read_bytes()
    for length in range(HEADER_BYTES, len(good), 7):
        segment.write_bytes(good[:length])
        served, bad = survivors(tmp_path)
        assert served == list(enumerate(EVENTS))[: len(served)]
        assert bad == [(len(served), 5)]


def test_an_index_that_lies_or_is_missing_changes_nothing(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=1 << 20)) as log:
        events = [b"%04d" % i * 100 for i in range(1000)]
        log.append_many("a", events)
    (index,) = (tmp_path / "topics").rglob("*.idx")
    good = index.read_bytes()
    assert len(good) >= 24 * 10
    chosen = random.Random(7)
    for round in range(count(60, 2000)):
        noisy = bytearray(good)
        for _ in range(chosen.randint(1, 20)):
            noisy[chosen.randrange(len(noisy))] = chosen.randrange(256)
        index.write_bytes(bytes(noisy) if round % 3 else noisy[: chosen.randrange(len(noisy))])
        if round % 10 == 9:
            index.unlink()
        with LogReader(tmp_path) as reader:
            offset = chosen.randrange(1000)
            assert reader.topic("a").read(offset).events()[0] == events[offset]


def test_segments_full_of_nonsense_never_crash_a_reader(tmp_path: Path) -> None:
    segment = filled(tmp_path)
    good = segment.read_bytes()
    chosen = random.Random(11)
    for _ in range(count(200, 20_000)):
        noisy = bytearray(good)
        start = chosen.randrange(len(noisy))
        length = chosen.randint(1, 60)
        noisy[start : start + length] = chosen.randbytes(chosen.randint(0, 60))
        segment.write_bytes(noisy)
        served, _ = survivors(tmp_path)
        assert all(EVENTS[offset] == event for offset, event in served)


def test_events_that_hold_records_themselves_are_not_mistaken_for_records(tmp_path: Path) -> None:
    segment = filled(tmp_path)
    inside = segment.read_bytes()[HEADER_BYTES:]
    other = tmp_path / "other"
    with TopicLog(other, small(segment_bytes=1 << 20)) as log:
        log.append_many("a", [b"x" * 36 + inside, *EVENTS])
    (path,) = (other / "topics").rglob("*.seg")
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES] ^= 255
    path.write_bytes(data)
    with LogReader(other) as reader:
        topic = reader.topic("a")
        with pytest.raises(LogCorrupt) as caught:
            topic.read(0)
        assert (caught.value.first, caught.value.last) == (0, 0)
        assert events_of(topic, 1) == EVENTS
