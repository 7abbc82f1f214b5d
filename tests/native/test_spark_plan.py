"""Loops over thousands of topics find what plain Python finds."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echomesh.native.spark_plan import ends, filled, grown, guessed, rows_of
from echomesh.spark.reach import Range
from echomesh.spark.sizing import FEW, Sizes, _Seen

TOPICS = st.sampled_from([f"t/{number}" for number in range(12)])
OFFSETS = st.integers(0, 300)
BOUNDS = st.dictionaries(TOPICS, st.tuples(OFFSETS, OFFSETS).map(lambda two: (min(two), max(two))))
RANGES = st.lists(st.builds(Range, TOPICS, OFFSETS, OFFSETS).filter(lambda one: one.start <= one.until), max_size=20)


@given(begin=st.dictionaries(TOPICS, OFFSETS), bounds=BOUNDS)
def test_what_has_grown_is_told_or_left_to_python(begin: dict[str, int], bounds: dict[str, tuple[int, int]]) -> None:
    found = grown(begin, bounds, Range)
    none = (1, 0)
    plain = all(bounds.get(topic, none)[0] <= at <= bounds.get(topic, none)[1] for topic, at in begin.items())
    if not plain:
        assert found is None
        return
    wanted = [
        Range(topic, begin.get(topic, earliest), end)
        for topic, (earliest, end) in bounds.items()
        if topic in begin or earliest < end
    ]
    assert found == (wanted, sum(one.until - one.start for one in wanted))
    assert all(type(one) is Range for one in found[0])
    assert rows_of(found[0]) == found[1]
    assert filled(found[0]) == [one for one in wanted if one.start < one.until]
    others = {"t/0": 7, "gone": 5}
    assert ends(found[0], others) == others | {one.topic: one.until for one in wanted}
    assert others == {"t/0": 7, "gone": 5}


def seen_of() -> st.SearchStrategy[_Seen]:
    marks = st.lists(st.tuples(OFFSETS, st.floats(1, 5000)), min_size=1, max_size=4).map(sorted)
    return st.builds(_Seen, marks, st.integers(300, 600))


def test_a_range_of_another_kind_is_not_made() -> None:
    class Other(tuple[str, int, int]):
        more = 1

    with pytest.raises(TypeError, match="more than a tuple"):
        grown({}, {"t/0": (0, 1)}, Other)


@example(ranges=[Range("t/0", 0, 3)], seen={}, usual=1.5, enough=False)  # half an even number and half an odd one
@example(ranges=[Range("t/0", 0, 1)], seen={}, usual=1.5, enough=False)
@given(ranges=RANGES, seen=st.dictionaries(TOPICS, seen_of()), usual=st.floats(1, 1000), enough=st.booleans())
def test_sizes_are_guessed_from_what_was_seen(
    ranges: list[Range], seen: dict[str, _Seen], usual: float, enough: bool
) -> None:
    sizes, new = guessed(ranges, seen, usual, FEW, enough)
    assert sizes == [
        round((one.until - one.start) * usual if one.topic not in seen else seen[one.topic].size(one)) for one in ranges
    ]
    for one in ranges:
        known = seen.get(one.topic)
        begin = known.marks[0][0] if known is not None else 0
        fits = known is not None and (
            one.start - begin <= FEW and one.until - known.until <= max(FEW, known.until - begin)
        )
        assert (one in new) == (not fits and (not enough or one.until - one.start > FEW))


def test_topics_with_few_events_are_not_looked_into_for_ever() -> None:
    looked = []

    def look(topic: str, start: int, until: int) -> float:
        looked.append(topic)
        return 100.0

    sizes, found = Sizes(look), []
    for batch in range(20):
        found = sizes.of([Range(f"t/{number}", batch, batch + 1) for number in range(1000)])
    assert 256 <= len(looked) < 400
    assert all(90 < size < 130 for size in found)
    sizes.of([Range("large", 0, 10_000)])
    assert looked[-1] == "large"
