"""What it costs to find the subscriptions of a topic: with 100,000 of them, and with 100.

Both matchers are asked for 10,000 topics that match the same number of filters each. Nothing is remembered
between calls, so that the search itself is measured: over a working set that no processor cache holds.
"""

from __future__ import annotations

import random
import statistics
import time

from bench.harness.machine import OtherLoad
from bench.harness.rows import Row, compare
from echomesh.topics import Matcher

MANY = 100_000
FEW = 100
TOPICS = 10_000


def build(subscriptions: int) -> tuple[Matcher[int], list[str]]:
    """Subscriptions as a fleet has them: exact ones, `*` and `**`; and topics over all of its devices."""
    matcher: Matcher[int] = Matcher(remembered=0)
    devices = subscriptions // 4
    for device in range(devices):
        site = f"site{device % 50}"
        for offset, name in enumerate(
            (
                f"{site}/device{device}/temperature",
                f"{site}/device{device}/**",
                f"*/device{device}/temperature",
                f"**/device{device}/alarm",
            )
        ):
            matcher.add(name, 4 * device + offset)
    picked = random.Random(7).choices(range(devices), k=TOPICS)
    return matcher, [f"site{device % 50}/device{device}/temperature" for device in picked]


def row(quick: bool) -> Row:
    """The cost of a match with 100,000 subscriptions beside that with 100, in turns on the same machine."""
    repetitions = 20 if quick else 200
    many, many_topics = build(MANY)
    few, few_topics = build(FEW)
    for matcher, topics in ((many, many_topics), (few, few_topics)):
        if any(len(matcher.match(topic)) != 3 for topic in topics):
            raise AssertionError("every topic should match three subscriptions")
    costs_many, costs_few, loads = [], [], []
    for _ in range(repetitions):
        load = OtherLoad()
        costs_many.append(_cost_us(many, many_topics))
        costs_few.append(_cost_us(few, few_topics))
        loads.append(load.cpus())
    return compare(
        f"filter matching with {MANY:,} subscriptions",
        costs_many,
        f"{FEW} subscriptions",
        costs_few,
        unit="µs a topic",
        target=0.5,  # within twice the cost
        less_is_better=True,
        other_cpus=round(statistics.fmean(loads), 2),
    )


def _cost_us(matcher: Matcher[int], topics: list[str]) -> float:
    match = matcher.match
    start = time.perf_counter_ns()
    for topic in topics:
        match(topic)
    return (time.perf_counter_ns() - start) / 1000 / len(topics)
