"""What a nukleus counts, in its control file for all to see."""

from __future__ import annotations

import logging

from echomesh.errors import CountersFull
from echomesh.native.counters import Counter, Counters

_log = logging.getLogger(__name__)


class Tally:
    """Counters by label, each made when it is first needed."""

    def __init__(self, table: Counters) -> None:
        self._table = table
        self._counters: dict[str, Counter | None] = {}

    def counter(self, label: str) -> Counter | None:
        """The counter of that label, or None when there is no room for it: no reason to stop the streams."""
        if label not in self._counters:
            try:
                self._counters[label] = self._table.allocate(label)
            except CountersFull as error:
                _log.warning("%r is not counted: %s", label, error)
                self._counters[label] = None
        return self._counters[label]

    def count(self, label: str) -> None:
        """Adds one."""
        counter = self.counter(label)
        if counter is not None:
            counter.add()

    def all(self) -> dict[str, int]:
        """All values by label."""
        return {label: value for _, label, value in self._table.list()}
