"""What a log refused, or never took, is read by nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomesh.errors import DiskFull
from echomesh.log import TopicLog
from echomesh.log.storage import SimulatedStorage
from tests.log.support import ENOSPC, FaultyStorage, events_of, small, stored


def test_a_refused_event_is_not_read_where_its_offset_goes_to_a_new_segment(tmp_path: Path) -> None:
    disk = FaultyStorage()
    disk.only = "journal"
    with TopicLog(tmp_path, small(disk)) as log:
        log.append("t", b"first")
        reader = log.reader().topic("t")
        assert events_of(reader) == [b"first"]
        disk.fail["fdatasync"] = (1, ENOSPC)
        with pytest.raises(DiskFull):
            log.append("t", b"refused")
        # Too large for what is left of the segment, which the reader knows.
        assert log.append("t", b"x" * 1990) == 1
        assert reader.read(1).events() == [b"x" * 1990]


def test_what_was_begun_and_never_committed_is_not_taken_for_a_new_topic(tmp_path: Path) -> None:
    disk = SimulatedStorage()
    TopicLog(tmp_path, small(disk)).close()
    for name in disk.names(f"{tmp_path}/journal"):
        disk.unlink(f"{tmp_path}/journal/{name}")
    left = f"{tmp_path}/topics/00000000/00000000000000000002.seg"
    disk.pwrite(disk.open(left, create=True), b"part of a segment", 0)
    with TopicLog(tmp_path, small(disk)) as log:
        assert log.report.notes
        for number in range(5):
            log.append("t", b"%d" % number)
        assert stored(tmp_path, "t", disk) == [b"0", b"1", b"2", b"3", b"4"]
    assert disk.names(f"{tmp_path}/aside/00000000") == ["00000000000000000002.seg"]


def test_a_large_event_that_is_passed_over_does_not_make_the_next_batch_large(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small(segment_bytes=1 << 20)) as log:
        log.append_many("t", [b"x" * 100_000, *(b"y" * 100 for _ in range(500))])
        records = log.reader().topic("t").read(1, max_bytes=1000)
        assert 0 < len(records) < 20
