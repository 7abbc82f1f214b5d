"""Segments that are old enough become Parquet files, in the background of the writer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from echomesh.errors import LogDamaged, LogLocked, UsageError
from echomesh.log.index import Mark
from echomesh.log.layout import parquet_name, segment_name
from echomesh.log.reader import LogReader
from echomesh.log.segments import Segments, began_ns
from echomesh.log.topic_reader import TopicReader
from echomesh.log.view import TopicName

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore
    from echomesh.log.parquet import Conversion

_NEW: Final = ".parquet.new"
_log = logging.getLogger(__name__)


class Conversions:
    """Which segments are to be converted, and which can't be. PyArrow is loaded when the first one is due."""

    def __init__(self, log: LogCore, stopping: Callable[[], bool]) -> None:
        self.log = log
        self.stopping = stopping
        self.stayed: dict[int, set[int]] = {}  # by topic, segments that can't be converted
        self.limits: dict[int, int] = {}  # by topic, the segment before which recovery needs none
        self.possible = True  # whether PyArrow is there, as far as is known

    def steps(self, topic: ActiveTopic, found: Segments) -> Iterator[None]:
        """Converts what is due of this topic, a segment at a step."""
        if self.log.options.parquet_after_s is None or topic.level == "none" or not self.possible:
            return
        due = self._due(topic, found)
        if not due and not _interrupted(found):
            return
        try:
            from echomesh.log import parquet
        except UsageError as error:
            self._impossible(error)
            return
        with LogReader(self.log.paths.root, storage=self.log.storage, sealed_only=False) as reader:
            mine = TopicReader(reader, TopicName(topic.number, topic.environment, topic.name, topic.level))
            try:
                with parquet.alone(reader):
                    parquet.tidy(mine)
                for base, behind in due:
                    self._cover(topic, behind)
                    with parquet.alone(reader):
                        made = parquet.convert(mine, base, behind, stopping=self.stopping)
                    self._settle(topic, base, made)
                    yield
            except LogLocked:
                return  # somebody else is at it

    def _cover(self, topic: ActiveTopic, behind: int) -> None:
        # Recovery must not need the segment any more.
        from echomesh.log.parquet import checkpointed

        if behind > self.limits.get(topic.number, 0):
            self.limits = checkpointed(self.log.storage, self.log.paths)
        if behind > self.limits.get(topic.number, 0):
            self.log.keeper.sync()
            self.log.keeper.checkpoint()
            self.limits = checkpointed(self.log.storage, self.log.paths)

    def _settle(self, topic: ActiveTopic, base: int, made: Conversion | None) -> None:
        if made is None:
            return
        if not made.done:
            self.stayed[topic.number].add(base)
            _log.info("topic %s: the segment from %d stays as it is: %s", topic.name, base, made.reason)
            return
        with self.log.keeper.turn:
            self.log.retention.kept.pop(topic.number, None)

    def marks(self, topic: ActiveTopic, base: int) -> list[Mark] | None:
        """Entries for the index of a segment that was converted; None when it can't be read."""
        try:
            from echomesh.log.parquet_file import open_segment

            return open_segment(self.log, f"{topic.directory}/{parquet_name(base)}", topic.number, base).marks()
        except UsageError as error:
            self._impossible(error)
        except (LogDamaged, FileNotFoundError):
            pass  # who reads it is told
        return None

    def _impossible(self, error: UsageError) -> None:
        if self.possible:
            self.possible = False
            note = f"segments that are old enough do not become Parquet files: {error}"
            self.log.report.notes.append(note)
            _log.warning("%s", note)

    def _due(self, topic: ActiveTopic, found: Segments) -> list[tuple[int, int]]:
        options = self.log.options
        assert options.parquet_after_s is not None
        # The window of duplicates is read from the log again when it is opened: not from Parquet, if that can be.
        wait_s = max(options.parquet_after_s, options.duplicate_s if options.duplicate_bytes else 0.0)
        before = options.clock() - int(wait_s * 1e9)
        stayed = self.stayed.setdefault(topic.number, set())
        stayed &= set(found.firsts)
        due = []
        for base, behind in pairwise(found.firsts):
            if behind > topic.done[0] or base < topic.earliest or base in found.converted or base in stayed:
                continue
            # All of a segment is older than the first record of the next one.
            if began_ns(self.log, topic, behind, found.adopted) >= before:
                break
            due.append((base, behind))
        return due


def _interrupted(found: Segments) -> bool:
    # A crash in a conversion leaves a part of the new file, or both.
    return any(name.endswith(_NEW) for name in found.names) or any(
        segment_name(base) in found.names or base in found.adopted for base in found.converted
    )
