"""A disk that fails by chance, and what was acknowledged on it."""

from __future__ import annotations

import random
import threading

from echomesh.events import Event
from echomesh.log import LogReader
from tests.log.support import EIO, ENOSPC, FaultyStorage, events_of


def event(who: object, number: object, size: int) -> bytes:
    return Event(type="t", source=f"/{who}", id=str(number), data="x" * size, time=None).encode()


class Unsteady(FaultyStorage):
    """A disk on which calls fail by chance: it is full for a moment, or a sync is lost."""

    def __init__(self, seed: int, chance: float) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.chance = chance

    def _maybe(self, call: str, path: str) -> None:
        # What is committed gets its place before, so a full disk does not keep the copy from its segments.
        likely = call in ("create", "allocate") or (call == "pwrite" and "/journal/" in path)
        if likely and self.random.random() < self.chance:
            raise OSError(ENOSPC, "by chance", path)
        if call == "fdatasync" and "/journal/" in path and self.random.random() < self.chance / 20:
            raise OSError(EIO, "by chance", path)


class Promises:
    """What was acknowledged, by topic and offset."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, int], bytes] = {}
        self.lock = threading.Lock()

    def keep(self, topic: str, offset: int, encoded: bytes) -> None:
        with self.lock:
            assert self.acknowledged.setdefault((topic, offset), encoded) == encoded, "an offset given twice"

    def check(self, reader: LogReader) -> None:
        found = {name.name: events_of(reader.topic(name.name)) for name in reader.topics()}
        for (topic, offset), encoded in self.acknowledged.items():
            assert found[topic][offset] == encoded
        for topic, events in found.items():
            assert len(events) == len(set(events)), f"{topic}: one is there twice"
