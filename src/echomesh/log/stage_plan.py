"""What the stages of a commit give to each topic: some become its segments as they are, the others' rows are copied."""

from __future__ import annotations

import errno
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echomesh.log import duplicates, stage_copy
from echomesh.log.layout import Paths
from echomesh.log.stage_copy import Key, Stage
from echomesh.native.log_stage import Layout
from echomesh.native.log_window import Window

if TYPE_CHECKING:
    from echomesh.log.core import LogCore

_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)


def room_of(paths: Paths) -> str:
    """A new name for what becomes a segment, until that has its own."""
    return f"{paths.staging}/{uuid.uuid4().hex}.room"


@dataclass(frozen=True)
class Whole:
    """What a topic gets of stages that become segments as they are."""

    count: int
    bytes: int


class StagePlan:
    """Decided before anything is taken from the topics; made whole, or not at all."""

    def __init__(self, log: LogCore, stages: list[tuple[str, Stage]], time_ns: int, *, told: bool) -> None:
        self.log = log
        self.stages = dict(stages)
        self.time_ns = time_ns
        self.links: dict[Key, list[str]] = {}  # second names of stages that become segments
        self.windows: dict[Key, Window] = {}  # hashes of the rows, against duplicates
        try:
            self.whole = self._adoptable()
            self._check(told)
            self.layouts = self._lay_out()
        except BaseException:
            for path in [path for links in self.links.values() for path in links]:
                log.storage.unlink(path)
            raise

    def _adoptable(self) -> dict[Key, list[str]]:
        # The stages of topics that take theirs as segments: those with this topic alone, neither tiny nor too large.
        found: dict[Key, list[str]] = {}
        others: set[Key] = set()
        for name, stage in self.stages.items():
            topics = stage.ending.topics if stage.ending.rows else []
            if len(topics) == 1 and stage.end <= self.log.options.segment_bytes:
                found.setdefault(topics[0], []).append(name)
            else:
                others.update(topics)
        least = self.log.options.adopt_bytes
        return {
            key: names
            for key, names in found.items()
            if key not in others
            and sum(self.stages[name].end for name in names) >= least * len(names)
            and self._link(key, names)
        }

    def _link(self, key: Key, names: list[str]) -> bool:
        # Second names for the stages, which wait for the segments' own.
        storage, paths = self.log.storage, self.log.paths
        made: list[str] = []
        try:
            for name in names:
                made.append(room_of(paths))
                storage.link(stage_copy.path_of(paths, name), made[-1])
        except OSError as error:
            for path in made:
                storage.unlink(path)
            if error.errno in _NO_LINKS:
                return False
            raise self.log.refused(error, 0) from error
        self.links[key] = made
        return True

    def _check(self, told: bool) -> None:
        # A stage that becomes a segment and ends as its writer has `told` is whole, as it was synced. Should the disk
        # have spoilt a row since, whoever reads that one is told, as with any other.
        sure = {name for names in self.whole.values() for name in names} if told else set()
        for name in self.stages.keys() - sure:
            stage_copy.check(self.log.storage, self.log.paths, name)

    def _lay_out(self) -> dict[Key, Layout | Whole]:
        log, whole = self.log, {name for names in self.whole.values() for name in names}
        copied = [(name, stage) for name, stage in self.stages.items() if name not in whole]
        given = (log.options.segment_bytes, self.time_ns, self._window)
        found: dict[Key, Layout | Whole] = dict(stage_copy.lay_out(log.storage, log.paths, copied, *given).items())
        for key, names in self.whole.items():
            stages = [self.stages[name] for name in names]
            found[key] = Whole(sum(stage.ending.rows for stage in stages), sum(stage.end for stage in stages))
            if log.options.knows_duplicates and not self._know(key, names):
                stage_copy.lay_out(log.storage, log.paths, [(name, self.stages[name]) for name in names], *given)
        return found

    def _know(self, key: Key, names: list[str]) -> bool:
        # By what the window of duplicates knows the rows; False when a stage does not tell, and they have to be read.
        window, first = self._window(key), 0
        # The window would have forgotten those before by the end.
        gone = sum(self.stages[name].ending.rows for name in names) - self.log.options.duplicate_events
        for name in names:
            behind = first + self.stages[name].ending.rows
            if behind > gone:
                told = stage_copy.hashes(self.log.storage, self.log.paths, name, self.stages[name])
                if told is None:
                    return False
                if window is not None:
                    skipped = max(0, gone - first)
                    window.load_hashes(told[16 * skipped :], first + skipped, self.time_ns)
            first = behind
        return True

    def _window(self, key: Key) -> Window | None:
        made = duplicates.empty(self.log)
        if made is not None:
            self.windows[key] = made
        return made
