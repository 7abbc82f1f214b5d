"""Durations in logarithmic buckets."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from echomesh.nukleus.histogram import Histogram

durations = st.lists(st.integers(0, 1 << 62) | st.integers(0, 5000), min_size=1, max_size=200)


def counted(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


@given(durations, st.floats(0, 100))
def test_a_percentile_is_within_a_bucket_of_the_true_one(values: list[int], percent: float) -> None:
    true = sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
    assert abs(counted(values).percentile(percent) - true) <= true / 256 + 1


@given(durations)
def test_count_least_most_and_mean_are_exact(values: list[int]) -> None:
    made = counted(values)
    assert (made.count, made.min_ns, made.max_ns) == (len(values), min(values), max(values))
    assert math.isclose(made.mean_ns, sum(values) / len(values))


@given(durations)
def test_buckets_hold_each_value_once_and_in_order(values: list[int]) -> None:
    buckets = list(counted(values).buckets())
    assert sum(count for _, _, count in buckets) == len(values)
    for low, high, count in buckets:
        assert sum(low <= value < high for value in values) == count
    edges = [edge for low, high, _ in buckets for edge in (low, high)]
    assert edges == sorted(edges)


@given(durations, durations)
def test_two_added_are_as_one(one: list[int], other: list[int]) -> None:
    both = counted(one)
    both.add(counted(other))
    assert list(both.buckets()) == list(counted(one + other).buckets())
    assert (both.count, both.min_ns, both.max_ns) == (len(one + other), min(one + other), max(one + other))


def test_an_empty_one_has_no_figures() -> None:
    empty = Histogram()
    assert (empty.count, empty.min_ns, empty.max_ns, empty.mean_ns, empty.percentile(50)) == (0, 0, 0, 0.0, 0)
    assert list(empty.buckets()) == []


def test_a_clock_that_went_backwards_counts_as_nothing() -> None:
    assert counted([-5]).percentile(50) == 0
