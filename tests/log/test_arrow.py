"""Topics as Arrow batches: ranges of offsets, live tails, and the errors of the reader."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from echomesh.errors import HoleError, LogBehind, LogCorrupt, NotAnEvent, OffsetGone
from echomesh.events import Event
from echomesh.log import LogOptions, LogReader, TopicLog
from echomesh.log.arrow import batches, follow
from tests.log.arrow_support import packed, values
from tests.log.support import crash, small


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20, 20 << 20])
def test_events_of_any_size_come_through_the_log(tmp_path: Path, size: int) -> None:
    event = Event(type="t", source="/s", data=random.Random(1).randbytes(size))
    with TopicLog(tmp_path, LogOptions(duplicate_bytes=0)) as log:
        log.append_many("a", [packed(), event, packed()])
        found = list(batches(log.reader().topic("a"), 0, max_bytes=16 << 20))
    assert [value for batch in found for value in values(batch, "data")] == [None, event.payload, None]
    assert len(found) == (3 if size > 16 << 20 else 1)


def filled(directory: Path, number: int = 200) -> None:
    with TopicLog(directory, small()) as log:
        log.append_many("a", [packed(data=b"%d" % i) for i in range(number)])


def collect(found: Iterator[pa.RecordBatch], seen: list[int]) -> list[int]:
    """Adds the offsets of the batches to those seen, as far as they come."""
    for batch in found:
        seen += values(batch, "offset")
    return seen


def offsets(found: Iterator[pa.RecordBatch]) -> list[int]:
    return collect(found, [])


def test_a_range_of_offsets_over_many_segments(tmp_path: Path) -> None:
    filled(tmp_path)
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        assert offsets(batches(topic, 0)) == list(range(200))
        assert offsets(batches(topic, 17, 111, max_rows=10)) == list(range(17, 111))
        assert offsets(batches(topic, 200)) == []
        assert offsets(batches(topic, 20, 10)) == []
        with pytest.raises(LogBehind):
            next(batches(topic, 0, 201))


def test_a_corrupt_record_ends_a_batch_and_then_raises(tmp_path: Path) -> None:
    filled(tmp_path)
    path = sorted((tmp_path / "topics").rglob("*.seg"))[2]
    data = bytearray(path.read_bytes())
    at = data.index(b"\xa4data") + 5
    data[at + 200] ^= 1
    path.write_bytes(data)
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        seen: list[int] = []
        with pytest.raises(LogCorrupt) as caught:
            collect(batches(topic, 0), seen)
        assert seen == list(range(caught.value.first))
        assert offsets(batches(topic, caught.value.last + 1)) == list(range(caught.value.last + 1, 200))


def test_a_record_that_is_no_event_is_named_and_can_be_skipped(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append_many("a", [packed(), packed(), b"no event", packed()])
        topic = log.reader().topic("a")
        seen: list[int] = []
        with pytest.raises(NotAnEvent, match="offset 2") as caught:
            collect(batches(topic, 0), seen)
        assert (seen, caught.value.first, caught.value.last) == ([0, 1], 2, 2)
        assert offsets(batches(topic, 3)) == [3]
        assert offsets(batches(topic, 0, columns=["offset", "topic", "timestamp"])) == [0, 1, 2, 3]


def test_gaps_by_retention_and_unclean_stops_are_the_readers_errors(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(retention_bytes=4000)) as log:
        log.append_many("a", [packed(data=b"%d" % i) for i in range(300)])
        log.core.keeper.care()
        topic = log.reader().topic("a")
        assert topic.earliest > 0
        with pytest.raises(OffsetGone) as gone:
            next(batches(topic, 0))
        assert gone.value.last == topic.earliest - 1
    log = TopicLog(tmp_path, small())
    log.create("o", level="os")
    log.append_many("o", [packed() for _ in range(5)])
    crash(log)
    with TopicLog(tmp_path, small()) as log:
        log.append("o", packed())
        topic = log.reader().topic("o")
        seen: list[int] = []
        with pytest.raises(HoleError) as hole:
            collect(batches(topic, 0), seen)
        assert seen == [0, 1, 2, 3, 4]
        assert offsets(batches(topic, hole.value.last + 1)) == [topic.end - 1]


def test_a_live_tail_is_followed(tmp_path: Path) -> None:
    with TopicLog(tmp_path, LogOptions(duplicate_bytes=0)) as log:
        log.append("a", packed(data=b"0"))

        def write() -> None:
            for i in range(1, 200):
                log.append("a", packed(data=b"%d" % i))

        writer = threading.Thread(target=write)
        writer.start()
        with LogReader(tmp_path) as reader:
            seen: list[bytes] = []
            for batch in follow(reader.topic("a"), 0, timeout=30, columns=["data"]):
                seen += values(batch, "data")
                if len(seen) == 200:
                    break
        writer.join()
        assert seen == [b"%d" % i for i in range(200)]


def test_the_log_works_without_pyarrow_and_says_what_to_install() -> None:
    script = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "import echomesh.errors, echomesh.log\n"
        "try:\n"
        "    import echomesh.log.arrow\n"
        "except echomesh.errors.UsageError as error:\n"
        "    print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "echomesh[node]" in found.stdout
