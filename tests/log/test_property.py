"""The whole log against a list."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from echomesh.log import LogReader, TopicLog
from tests.log.support import crash, events_of, small, stored
from tests.support.counts import count

pytestmark = pytest.mark.timeout(900)
TOPICS = st.sampled_from(["a", "b", "deep/c"])
EVENTS = st.one_of(st.binary(max_size=300), st.integers(65_000, 70_000).map(bytes))


class LogAgainstLists(RuleBasedStateMachine):
    """Appends, stages, crashes, restarts and reads, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="echomesh-log-")
        self.model: dict[str, list[bytes]] = {}
        self.epoch = 0
        self.log = TopicLog(self.directory, small())
        self.reader = LogReader(self.directory)

    @rule(topic=TOPICS, event=EVENTS)
    def append(self, topic: str, event: bytes) -> None:
        expected = self.model.setdefault(topic, [])
        assert self.log.append(topic, event) == len(expected)
        expected.append(event)

    @rule(topic=TOPICS, events=st.lists(EVENTS, min_size=1, max_size=20))
    def append_many(self, topic: str, events: list[bytes]) -> None:
        expected = self.model.setdefault(topic, [])
        first = len(expected)
        assert self.log.append_many(topic, events) == list(range(first, first + len(events)))
        expected.extend(events)

    @rule(rows=st.lists(st.tuples(TOPICS, st.binary(max_size=300)), max_size=30))
    def commit(self, rows: list[tuple[str, bytes]]) -> None:
        stage = self.log.stage("w", self.epoch, "r")
        for topic, event in rows:
            stage.add(topic, event)
            self.model.setdefault(topic, []).append(event)
        assert self.log.commit("w", self.epoch, "r", [stage.close().stage]).rows == len(rows)
        self.epoch += 1

    @rule(topic=TOPICS, parts=st.lists(st.lists(st.binary(max_size=300), max_size=6), min_size=1, max_size=4))
    def commit_of_one_topic(self, topic: str, parts: list[list[bytes]]) -> None:
        stages = []
        for part, events in enumerate(parts):
            stage = self.log.stage("w", self.epoch, "r", part)
            for event in events:
                stage.add(topic, event)
                self.model.setdefault(topic, []).append(event)
            stages.append(stage.close().stage)
        assert self.log.commit("w", self.epoch, "r", stages).rows == sum(map(len, parts))
        self.epoch += 1

    @rule()
    def care(self) -> None:
        self.log.core.keeper.care()

    @rule(chosen=st.randoms(use_true_random=False))
    def damage_an_index(self, chosen: random.Random) -> None:
        indexes = sorted(Path(self.directory).rglob("*.idx"))
        if indexes:
            path = chosen.choice(indexes)
            data = path.read_bytes()
            other = chosen.choice(indexes).read_bytes()
            path.write_bytes(chosen.choice([b"", data[:-5], chosen.randbytes(len(data)), data + b"?", other]))

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.log.close()
        else:
            crash(self.log)
        self._compare()
        self.log = TopicLog(self.directory, small())

    @rule(data=st.data())
    def read_somewhere(self, data: Any) -> None:
        if not self.model:
            return
        topic = data.draw(st.sampled_from(sorted(self.model)))
        offset = data.draw(st.integers(0, len(self.model[topic])))
        found = self.reader.topic(topic)
        records = found.read(offset, max_bytes=data.draw(st.sampled_from([64, 1000, 1 << 20])))
        assert records.events() == self.model[topic][offset : offset + len(records)]
        assert len(records) or offset == len(self.model[topic])

    def _compare(self) -> None:
        for topic, events in self.model.items():
            assert stored(self.directory, topic) == events

    @invariant()
    def the_log_is_the_list(self) -> None:
        reader = self.log.reader()
        for topic, events in self.model.items():
            assert events_of(reader.topic(topic)) == events
        reader.close()

    def teardown(self) -> None:
        self.log.close()
        self.reader.close()
        shutil.rmtree(self.directory)


LogAgainstLists.TestCase.settings = settings(max_examples=count(20, 500), stateful_step_count=20, deadline=None)
TestLogAgainstLists = LogAgainstLists.TestCase
