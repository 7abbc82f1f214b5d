"""Durations, counted in logarithmic buckets: any number in a bounded space, each known to within 0.4 %."""

from __future__ import annotations

from collections.abc import Iterator

_BITS = 8
_STEPS = 1 << _BITS
_OCTAVES = 64 - _BITS


class Histogram:
    """Counts durations in nanoseconds and tells their percentiles."""

    def __init__(self) -> None:
        self._counts = [0] * (_STEPS * _OCTAVES)
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0
        self._min_ns = 1 << 63

    def record(self, duration_ns: int) -> None:
        """Counts one; a clock that went backwards counts as 0."""
        value = max(0, duration_ns)
        octave = max(0, value.bit_length() - _BITS - 1)
        # In the first octave, and up to twice its length, a bucket is one nanosecond wide.
        self._counts[(octave << _BITS) + (value >> octave)] += 1
        self.count += 1
        self.total_ns += value
        if value > self.max_ns:
            self.max_ns = value
        if value < self._min_ns:
            self._min_ns = value

    def add(self, other: Histogram) -> None:
        """Counts all that another one has counted."""
        for i, count in enumerate(other._counts):
            self._counts[i] += count
        self.count += other.count
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self._min_ns = min(self._min_ns, other._min_ns)

    @property
    def min_ns(self) -> int:
        """The shortest, or 0 when there is none."""
        return self._min_ns if self.count else 0

    @property
    def mean_ns(self) -> float:
        """The average, or 0 when there is none."""
        return self.total_ns / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """The duration in nanoseconds that `percent` of all are not above."""
        wanted = self.count * percent / 100
        seen = 0
        for low, high, count in self.buckets():
            seen += count
            if seen >= wanted:
                return min(max((low + high - 1) // 2, self.min_ns), self.max_ns)
        return self.max_ns

    def buckets(self) -> Iterator[tuple[int, int, int]]:
        """The buckets that are not empty, shortest first: from, to (exclusive) and how many."""
        for i, count in enumerate(self._counts):
            if count:
                octave = max(0, (i >> _BITS) - 1)
                low = (i - (octave << _BITS)) << octave
                yield low, low + (1 << octave), count
