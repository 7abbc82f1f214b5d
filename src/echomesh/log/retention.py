"""Retention: whole segments are removed once they are too old or too many. `earliest` moves first."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from echomesh.log.layout import index_name, parquet_name
from echomesh.log.segments import UNKNOWN_NS, began_ns, listed

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.adopted import Adopted
    from echomesh.log.core import LogCore


class Kept:
    """The sealed segments of a topic, as far as retention has to know them."""

    def __init__(self, active: int) -> None:
        self.active = active  # the segment that was written to when this was looked up
        self.sizes: dict[int, int] = {}  # by the first offset, in order
        self.stages: dict[int, Adopted] = {}  # those that are stages
        self.total = 0
        self.oldest_ns = UNKNOWN_NS  # when the first of them was sealed, about

    def path(self, topic: ActiveTopic, base: int) -> str:
        """The file of a segment, before it was converted."""
        return self.stages[base].path if base in self.stages else topic.path(base)


class Retention:
    """Looks at a topic's directory only when a segment of it was sealed or removed."""

    def __init__(self, log: LogCore) -> None:
        self.log = log
        self.kept: dict[int, Kept] = {}
        self.looked = 0

    def run(self, now: int) -> None:
        """Removes what the options of the log no longer want."""
        options = self.log.options
        gone: list[tuple[ActiveTopic, list[tuple[int, str]]]] = []
        for topic in list(self.log.numbered):
            limit = options.memory_topic_bytes if topic.level == "none" else options.retention_bytes
            # Nothing is sealed where the first offset stands in the segment that is being written.
            if (limit is not None or options.retention_s is not None) and topic.earliest < topic.done[0]:
                found = self._unwanted(topic, limit, now)
                if found:
                    gone.append((topic, found))
        if not gone:
            return
        # After a crash the checkpoint says what was removed, and that it was not lost.
        self.log.keeper.checkpoint()
        for topic, found in gone:
            for base, path in found:
                self.log.storage.unlink(path)
                self.log.storage.unlink(f"{topic.directory}/{index_name(base)}")
                self.log.storage.unlink(f"{topic.directory}/{parquet_name(base)}")

    def _unwanted(self, topic: ActiveTopic, limit: int | None, now: int) -> list[tuple[int, str]]:
        active = topic.done[0]
        seconds = self.log.options.retention_s
        oldest = -1 if seconds is None else now - int(seconds * 1e9)
        kept = self.kept.get(topic.number)
        if kept is None or kept.active != active or self._over(topic, kept, limit, oldest):
            # Looked at again before anything goes: a segment that became a Parquet file is far smaller.
            kept = self.kept[topic.number] = self._look(topic, active)
        found: list[tuple[int, str]] = []
        while self._over(topic, kept, limit, oldest):
            base = next(iter(kept.sizes))
            kept.total -= kept.sizes.pop(base)
            found.append((base, kept.path(topic, base)))
            topic.earliest = next(iter(kept.sizes), active)
            kept.oldest_ns = self._sealed_ns(topic, kept)
        if found:
            self.log.water.set_earliest(topic.number, topic.earliest)
        return found

    def _over(self, topic: ActiveTopic, kept: Kept, limit: int | None, oldest_ns: int) -> bool:
        too_much = limit is not None and kept.total + topic.done[1] > limit
        return bool(kept.sizes) and (too_much or kept.oldest_ns < oldest_ns)

    def _look(self, topic: ActiveTopic, active: int) -> Kept:
        self.looked += 1
        kept = Kept(active)
        found = listed(self.log.storage, topic.directory)
        kept.stages = found.adopted
        for base in found.firsts:
            if topic.earliest <= base < active:
                kept.sizes[base] = self._size(topic, base, kept)
        kept.total = sum(kept.sizes.values())
        kept.oldest_ns = self._sealed_ns(topic, kept)
        return kept

    def _size(self, topic: ActiveTopic, base: int, kept: Kept) -> int:
        # Another process may convert a segment to Parquet at any time; both files are there for a moment.
        for path in (f"{topic.directory}/{parquet_name(base)}", kept.path(topic, base)):
            with suppress(FileNotFoundError):
                handle = self.log.storage.open(path)
                try:
                    return self.log.storage.size(handle)
                finally:
                    self.log.storage.close(handle)
        return 0

    def _sealed_ns(self, topic: ActiveTopic, kept: Kept) -> int:
        # All records of the first segment are older than the first one of the next.
        if not kept.sizes or self.log.options.retention_s is None:
            return UNKNOWN_NS
        for following in [*kept.sizes, kept.active][1:]:
            found = began_ns(self.log, topic, following, kept.stages)
            if found < UNKNOWN_NS:
                return found
        return UNKNOWN_NS
