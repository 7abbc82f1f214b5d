"""What one key is up to: events in the order of the log come in, and alerts that fire or resolve go out.

All times are append times in microseconds. What comes out depends on the events of the key alone, and on how far the
log's time has come: not on where batches were cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from echomesh.spark.pipelines.ready.alert_rules import Rule

VALUES: Final = 1000
"""So many values of a key are kept for a z-score, at most."""

_TINY: Final = 1e-9  # of a mean: a key whose values never differ has some deviation all the same


class Change(msgspec.Struct, frozen=True):
    """An alert that fires, or does so no more."""

    state: Literal["firing", "resolved"]
    reason: str
    at_us: int
    since_us: int
    value: float | None = None
    score: float | None = None


class Watch(msgspec.Struct):
    """The state of one key under one rule."""

    seen_us: int | None = None  # its last event; None: there was none yet, or it is forgotten
    since_us: int | None = None  # the alert fires since then
    values: list[tuple[int, float]] = []

    def event(self, rule: Rule, at_us: int, value: float | None) -> Iterator[Change]:
        """An event of the key."""
        yield from self.advance(rule, at_us)
        self.seen_us = at_us
        if rule.kind == "silence":
            yield from self._now(False, at_us, "an event came")
        elif value is None:
            return
        elif rule.kind == "threshold":
            yield from self._now(_beyond(rule, value), at_us, _said(rule), value)
        else:
            score = self._score(rule, at_us, value)
            yield from self._now(abs(score) > rule.sigma, at_us, f"{rule.sigma:g} sigma", value, score)

    def advance(self, rule: Rule, to_us: int) -> Iterator[Change]:
        """No event of the key was appended before this time."""
        if self.seen_us is None:
            return
        silent_us, forgotten_us = self.seen_us + rule.after_ms * 1000, self.seen_us + rule.forget_ms * 1000
        if rule.kind == "silence" and silent_us < to_us:
            yield from self._now(True, silent_us, f"no event for {rule.after_ms / 1000:g} s")
        if forgotten_us < to_us:
            yield from self._now(False, forgotten_us, "forgotten")
            self.seen_us, self.values = None, []

    def deadline_us(self, rule: Rule) -> int | None:
        """The next time at which something happens without an event."""
        if self.seen_us is None:
            return None
        waits = rule.kind == "silence" and self.since_us is None
        return self.seen_us + 1000 * (rule.after_ms if waits else rule.forget_ms)

    def _now(
        self, fires: bool, at_us: int, reason: str, value: float | None = None, score: float | None = None
    ) -> Iterator[Change]:
        if fires and self.since_us is None:
            self.since_us = at_us
            yield Change("firing", reason, at_us, at_us, value, score)
        elif not fires and self.since_us is not None:
            yield Change("resolved", reason, at_us, self.since_us, value, score)
            self.since_us = None

    def _score(self, rule: Rule, at_us: int, value: float) -> float:
        """By how many standard deviations a value differs from those before it in the window; 0 for too few of them."""
        since_us = at_us - rule.window_ms * 1000
        before = [one for one in self.values if one[0] > since_us][-VALUES:]
        self.values = [*before, (at_us, value)][-VALUES:]
        if len(before) < rule.least:
            return 0.0
        mean = math.fsum(each for _, each in before) / len(before)
        deviation = math.sqrt(math.fsum((each - mean) ** 2 for _, each in before) / len(before))
        return (value - mean) / max(deviation, _TINY * max(1.0, abs(mean)))


def _beyond(rule: Rule, value: float) -> bool:
    return value > rule.above if rule.above is not None else rule.below is not None and value < rule.below


def _said(rule: Rule) -> str:
    return f"above {rule.above:g}" if rule.above is not None else f"below {rule.below:g}"
