"""Stretches of files: the bytes of just these records, from a handle that stays good."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

import pytest

from echomesh.log import LogOptions, LogReader, TopicLog
from echomesh.log.parquet import compact
from echomesh.log.stretch import Stretch
from echomesh.log.topic_reader import TopicReader
from echomesh.native.log_record import scan
from tests.log.arrow_support import packed

MOST = 1 << 30


def events(number: int, first: int = 0) -> list[bytes]:
    sizes = random.Random(first)
    return [packed(id=str(i), data=bytes(sizes.randrange(400))) for i in range(first, first + number)]


def found(topic: TopicReader, offset: int, until: int, most: int = MOST) -> list[tuple[int, int, bytes]]:
    """(offset, time, event) of the records of a stretch, which has to end with the last of them."""
    stretch = topic.stretch(offset, until, most)
    assert stretch is not None
    size = len(stretch)
    data = stretch.read()
    assert len(data) == size
    records = scan(data, 0, offset - stretch.shift)
    assert records.next_position == size
    assert records.next_offset + stretch.shift == stretch.until
    return [
        (number + stretch.shift, stretch.time_ns if stretch.time_ns >= 0 else time_ns, event)
        for number, time_ns, _, event in records
    ]


def wanted(topic: TopicReader, offset: int, until: int) -> list[tuple[int, int, bytes]]:
    records = topic.read(offset, max_bytes=MOST, max_records=until - offset)
    return [(number, time_ns, event) for number, time_ns, _, event in records]


def test_a_stretch_has_the_records_that_were_asked_for_and_no_others(tmp_path: Path) -> None:
    with TopicLog(tmp_path, LogOptions(segment_bytes=1 << 20, duplicate_bytes=0)) as log:
        log.append_many("a", events(9000))
    chance = random.Random(7)
    with LogReader(tmp_path) as reader, LogReader(tmp_path) as other:
        topic = reader.topic("a")
        assert len({topic.place_of(offset, 9000).path for offset in range(0, 9000, 500)}) > 1
        for _ in range(100):
            offset = chance.randrange(9000)
            until = min(9000, offset + chance.choice((1, 7, 100, 2000)))
            got = found(topic, offset, until)
            assert got == wanted(other.topic("a"), offset, offset + len(got))
            assert got[-1][0] == until - 1 or topic.stretch(got[-1][0] + 1, until, MOST) is not None


def test_one_behind_the_other_they_are_all_of_the_topic(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=1 << 20, duplicate_bytes=0)
    with TopicLog(tmp_path, options) as log:
        log.append_many("a", events(5000))
    with TopicLog(tmp_path, options) as log:
        topic, offset, all_of_them = log.reader().topic("a"), 0, []
        while offset < 5000:
            all_of_them += found(topic, offset, min(5000, offset + 300))
            offset = all_of_them[-1][0] + 1
        log.append_many("a", events(100, 5000))
        all_of_them += found(topic, 5000, 5100)  # from where the last one ended, whatever the index knows
    assert [event for _, _, event in all_of_them] == events(5000) + events(100, 5000)
    assert [number for number, _, _ in all_of_them] == list(range(5100))


def test_rows_of_a_stage_say_how_they_are_to_be_read(tmp_path: Path) -> None:
    with TopicLog(tmp_path, LogOptions(adopt_bytes=1, duplicate_bytes=0)) as log:
        log.append_many("a", events(5))
        stage = log.stage("w", epoch=0, run="r")
        for event in events(3000, 5):
            stage.add("a", event)
        log.commit("w", 0, "r", [stage.close().stage])
        log.append_many("a", events(5, 3005))
        topic, other = log.reader().topic("a"), log.reader().topic("a")
        assert topic.stretch(5, 3005, MOST) is None  # its index is still to be made
        log.core.keeper.upkeep.round()
        for offset, until in ((5, 3005), (100, 101), (2500, 3010), (7, 1000)):
            got = found(topic, offset, until)
            assert got == wanted(other, offset, min(until, 3005))
        assert [number for number, _, _ in found(topic, 3, 8)] == [3, 4]


def test_what_has_to_be_read_is_no_stretch(tmp_path: Path) -> None:
    with TopicLog(tmp_path, LogOptions(segment_bytes=1 << 20, duplicate_bytes=0)) as log:
        log.append_many("a", events(9000))
        topic = log.reader().topic("a")
        assert topic.stretch(0, 1000, 1000) is None  # too many bytes
        assert topic.stretch(9000, 9000, MOST) is None  # nothing there
        assert topic.stretch(9100, 9200, MOST) is None
        log.create("memory", level="none")
    with LogReader(tmp_path) as reader:
        end = compact(reader.topic("a"), min_age_s=0).done[-1].end
        topic = reader.topic("a")
        assert topic.stretch(0, 100, MOST) is None  # Parquet
        assert topic.stretch(end, end + 10, MOST) is not None


def test_a_damaged_record_before_the_end_is_for_readers(tmp_path: Path) -> None:
    with TopicLog(tmp_path, LogOptions(duplicate_bytes=0)) as log:
        log.append_many("a", events(20))
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        path = Path(topic.path_of(0))
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
        assert topic.stretch(0, 20, MOST) is None


def test_its_handle_is_its_own(tmp_path: Path) -> None:
    with TopicLog(tmp_path, LogOptions(duplicate_bytes=0)) as log:
        log.append_many("a", events(50))
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        expected = found(topic, 10, 40)
        stretch = topic.stretch(10, 40, MOST)
        assert stretch is not None
        Path(topic.path_of(0)).unlink()
    assert [event for _, _, _, event in scan(stretch.read(), 0, 10)] == [event for _, _, event in expected]
    handle = stretch.handle
    stretch.close()
    stretch.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(handle)


def test_a_file_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with path.open("rb") as file:
        with pytest.raises(EOFError):
            Stretch(file.fileno(), 50, 51, 1).read()
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(EOFError):
            Stretch(file.fileno(), 100, 1, 1).send(ours.fileno())


def test_a_socket_takes_what_it_has_room_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = random.Random(1).randbytes(3 << 20)
    path.write_bytes(data)
    ours, theirs = socket.socketpair()
    with ours, theirs, path.open("rb") as file:
        ours.setblocking(False)
        theirs.settimeout(10)
        stretch = Stretch(file.fileno(), 1 << 20, 1 << 20, 1)
        got = b""
        while not stretch.send(ours.fileno()):
            assert 0 < len(stretch) < 1 << 20
            got += theirs.recv(1 << 16)
        while len(got) < 1 << 20:
            got += theirs.recv(1 << 16)
    assert got == data[1 << 20 : 2 << 20]
