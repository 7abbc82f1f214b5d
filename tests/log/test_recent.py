"""The last commits, read from the memory that they were written from."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from echomesh.log import AsyncTopicLog, LogReader, TopicLog
from echomesh.log.topic_reader import TopicReader
from echomesh.native.log_recent import recent
from echomesh.native.log_record import scan
from tests.log.support import small
from tests.support.counts import count

TOPICS = ["orders", "sensors/1", "sensors/2"]
LARGE = 1 << 17  # stands in its segment alone
ALL = 1 << 40


def filled(log: TopicLog, rng: random.Random, commits: int) -> None:
    """Commits of any number of events, to topics one behind the other and in turn."""
    for _ in range(commits):
        for topic in rng.choices(TOPICS, k=rng.randint(1, 4)):
            origin = rng.choice((None, rng.randbytes(24)))
            events = [rng.randbytes(rng.randint(1, 2000)) for _ in range(rng.randint(1, 6))]
            log.append_many(topic, events, origins=[origin] * len(events))


def stored(topic: TopicReader, offset: int, records: int) -> list[object]:
    """So many records, from as many segments as have them."""
    found: list[object] = []
    while len(found) < records:
        found += topic.read(offset + len(found), max_records=records - len(found)).tuples()
    return found


def test_what_is_in_memory_is_what_stands_in_the_segments(tmp_path: Path) -> None:
    rng = random.Random(7)
    with TopicLog(tmp_path, small()) as log, LogReader(tmp_path) as reader:
        filled(log, rng, 40)
        for _ in range(count(200, 2000)):
            topic = rng.choice(TOPICS)
            writer, other = log.core.topics["TST", topic], reader.topic(topic)
            offset, most, size = rng.randrange(other.end), rng.randint(1, 50), rng.randint(1, 20_000)
            found = recent(log.core.commits, writer, offset, size, most)
            if found is None:
                assert offset < writer.next_offset - 1, "the last one is always there"
                continue
            assert found.tuples() == stored(other, offset, len(found))
            assert 1 <= len(found) <= most
            assert len(found) == 1 or len(found.raw()) <= size
            assert scan(bytes(found.raw()), 0, offset).tuples() == found.tuples()


def test_records_that_somebody_holds_outlive_the_sync_of_their_segments(tmp_path: Path) -> None:
    rng = random.Random(8)
    with TopicLog(tmp_path, small(journal_bytes=1 << 20, segment_bytes=1 << 20)) as log:
        filled(log, rng, 20)
        writers, held = [log.core.topics["TST", topic] for topic in TOPICS], []
        for _ in range(count(10, 50)):
            begun = [writer.next_offset for writer in writers]
            filled(log, rng, 5)
            for writer, offset in zip(writers, begun, strict=True):
                found = recent(log.core.commits, writer, offset, ALL, ALL)
                assert found is not None
                held.append((found, found.tuples()))
            log.core.keeper.care()
            assert recent(log.core.commits, writers[0], writers[0].next_offset - 1, ALL, ALL) is None
        for found, before in held:
            assert found.tuples() == before
        # What nobody holds any more is used again.
        held.clear()
        del found, before
        filled(log, rng, 5)


def test_the_end_has_nothing_and_what_is_not_in_memory_is_left_to_the_segments(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append_many("orders", [b"0", b"1", b"x" * LARGE, b"3", b"4"])
        writer, commits = log.core.topics["TST", "orders"], log.core.commits
        at_end, beyond = recent(commits, writer, 5, ALL, ALL), recent(commits, writer, 6, ALL, ALL)
        assert at_end is not None
        assert len(at_end) == 0
        assert at_end.next_offset == 5
        assert beyond is None
        assert recent(commits, writer, -1, ALL, ALL) is None
        assert recent(commits, writer, 2, ALL, ALL) is None
        for offset, events in ((0, [b"0", b"1"]), (1, [b"1"]), (3, [b"3", b"4"])):
            found = recent(commits, writer, offset, ALL, ALL)
            assert found is not None
            assert found.events() == events
        writer.hold = 4
        assert recent(commits, writer, 4, ALL, ALL) is None
        found = recent(commits, writer, 3, ALL, ALL)
        assert found is not None
        assert found.events() == [b"3"]
        writer.hold = (1 << 63) - 1


def test_a_loop_in_the_midst_of_its_work_has_commits_begun_and_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncTopicLog(tmp_path, small(background=True)) as log:
            await log.append("orders", b"first")
            await asyncio.sleep(0)  # out of the pass of answers in which this goes on
            answers = [log.append("orders", b"%d" % number) for number in range(3)]
            deadline = time.monotonic() + 10
            # No turn of the event loop: all of it is done by `look`.
            while not answers[-1].done() and time.monotonic() < deadline:
                log.look()
                time.sleep(0.001)  # noqa: ASYNC251 - the loop is not to turn
            assert [answer.result() for answer in answers] == [1, 2, 3]

    asyncio.run(run())
