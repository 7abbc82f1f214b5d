"""Readers on a network file system see sealed segments only."""

from __future__ import annotations

from pathlib import Path

from echomesh.log import LogReader, TopicLog
from echomesh.log.view import on_network
from tests.log.support import events_of, small


def test_a_reader_of_sealed_segments_sees_those_before_the_last_checkpoint_and_no_others(tmp_path: Path) -> None:
    events = [b"%03d" % i * 20 for i in range(100)]
    with TopicLog(tmp_path, small()) as log:
        for event in events:
            log.append("a", event)
        with LogReader(tmp_path, sealed_only=True) as reader:
            assert not reader.view.live
            assert reader.topics() == []
            log.core.keeper.sync()
            log.core.keeper.checkpoint()
            reader.refresh()
            topic = reader.topic("a")
            assert topic.end == log.core.topics["TST", "a"].base
            assert 0 < topic.end < 100
            assert events_of(topic) == events[: topic.end]
            log.append("a", b"not sealed")
            reader.refresh()
            assert len(events_of(topic)) < 100


def test_a_local_directory_is_not_taken_for_a_network_file_system(tmp_path: Path) -> None:
    assert not on_network(str(tmp_path))
    assert not on_network("/proc")
