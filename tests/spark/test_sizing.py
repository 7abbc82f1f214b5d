"""How many bytes a range has is guessed well, also when events become larger or smaller on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomesh.events import Event
from echomesh.spark.local import LocalReach
from echomesh.spark.reach import Range
from tests.spark.support import opened


def filled(directory: Path, sizes: list[int]) -> None:
    with opened(directory, duplicate_bytes=0) as log:
        log.create("a", level="os")
        log.append_many("a", [Event(type="t", source="/s", id=str(i), data=bytes(n)) for i, n in enumerate(sizes)])


def near(found: int, sizes: list[int]) -> bool:
    wanted = sum(size + 100 for size in sizes)
    return wanted / 2 < found < wanted * 2


@pytest.mark.parametrize("sizes", [[0] * 10, [300] * 5000, [10] * 3000 + [9000] * 3000, [9000] * 1000 + [10] * 1000])
def test_a_range_is_guessed_within_a_factor_of_two(data: Path, sizes: list[int]) -> None:
    filled(data, sizes)
    reach = LocalReach(str(data), "TST")
    whole = Range("a", 0, len(sizes))
    assert near(reach.sizes([whole])[0], sizes)
    assert near(reach.sizes([Range("a", 0, len(sizes) // 10)])[0], sizes[: len(sizes) // 10])
    reach.close()


def test_a_reader_that_goes_on_looks_again(data: Path) -> None:
    sizes = [10] * 2000 + [20_000] * 200 + [10] * 2000
    filled(data, sizes)
    reach = LocalReach(str(data), "TST")
    for start in range(0, len(sizes), 100):
        until = min(start + 100, len(sizes))
        assert near(reach.sizes([Range("a", start, until)])[0], sizes[start:until]), start
    reach.close()


def test_many_topics_cost_a_few_looks(data: Path) -> None:
    with opened(data) as log:
        for i in range(300):
            log.append(f"t/{i}", Event(type="t", source="/s", id="1", data=bytes(400)))
    reach = LocalReach(str(data), "TST")
    found = reach.sizes([Range(f"t/{i}", 0, 1) for i in range(300)])
    assert near(sum(found), [400] * 300)
    assert len(reach.looks.seen) < 100
    reach.close()
