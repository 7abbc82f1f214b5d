"""What a data directory asks of the machine's disk."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from echomesh.log import LogReader, TopicLog

GET_FLAGS = 0x80086601
DAY_S = 86_400


def test_who_reads_a_log_writes_no_access_times(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, GET_FLAGS, bytes(8))
    except OSError as error:
        pytest.skip(f"this file system has no flags for that: {error}")
    finally:
        os.close(handle)
    log = TopicLog(tmp_path)
    log.append("a", b"1")
    (segment,) = (tmp_path / "topics").rglob("*.seg")
    written = segment.stat().st_mtime
    os.utime(segment, (written - 2 * DAY_S, written))
    before = segment.stat().st_atime_ns
    with LogReader(tmp_path) as reader:
        assert reader.topic("a").read(0).events() == [b"1"]
    assert segment.read_bytes()
    assert segment.stat().st_atime_ns == before
    log.close()
