"""Many readers, and many topics, in bounded memory and file handles."""

from __future__ import annotations

import multiprocessing
from multiprocessing.queues import Queue
from pathlib import Path

import psutil
import pytest

from echomesh.log import LogReader, TopicLog
from tests.log.support import small
from tests.support.counts import count


def follow(directory: str, expected: int, results: Queue[str]) -> None:
    """A reader process: everything, in order, nothing twice."""
    try:
        with LogReader(directory) as reader:
            topic = reader.topic("a")
            offset = 0
            for batch in topic.follow(0, timeout=60):
                for record in batch:
                    if record[0] != offset or record[3] != b"%d" % offset:
                        results.put(f"offset {offset} has {record!r}")
                        return
                    offset += 1
                if offset == expected:
                    break
        results.put("" if offset == expected else f"only {offset}")
    except BaseException as error:
        results.put(repr(error))


@pytest.mark.slow
def test_twenty_readers_follow_a_writer_at_full_speed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results: Queue[str] = context.Queue()
    events = count(20_000, 500_000)
    with TopicLog(tmp_path) as log:
        log.append("a", b"0")
        readers = [context.Process(target=follow, args=(str(tmp_path), events, results)) for _ in range(20)]
        for reader in readers:
            reader.start()
        at = 1
        while at < events:
            batch = [b"%d" % i for i in range(at, min(at + 200, events))]
            log.append_many("a", batch)
            at += len(batch)
        found = [results.get(timeout=100) for _ in readers]
    for reader in readers:
        reader.join()
    assert found == [""] * 20


@pytest.mark.slow
def test_ten_thousand_topics_are_open_in_bounded_memory_and_file_handles(tmp_path: Path) -> None:
    topics = count(2_000, 10_000)
    process = psutil.Process()
    with TopicLog(tmp_path, small(background=True, open_segments=200, duplicate_bytes=1 << 20)) as log:
        before, handles = process.memory_info().rss, process.num_fds()
        ticket = 0
        for round in range(2):
            for i in range(0, topics, 50):
                for k in range(i, i + 50):
                    topic = log.core.topic("TST", f"topic/{k}")
                    assert log.core.commits.add(topic, b"%d" % round, 1) == round
                    ticket = topic.ticket
                log.core.commits.wait(ticket)
        assert process.num_fds() - handles < 300
        assert (process.memory_info().rss - before) / topics < 20_000
        reader = log.reader()
        names = {name.name: name for name in reader.topics()}
        assert len(names) == topics
        for k in range(0, topics, topics // 50):
            assert reader.topic(f"topic/{k}").read(0).events() == [b"0", b"1"]
        assert process.num_fds() - handles < 500
    used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "topics").rglob("*.seg"))
    assert used / topics <= 8192
    with LogReader(tmp_path) as reader:
        assert len(reader.topics()) == topics
