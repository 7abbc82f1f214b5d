"""Ranges are packed into tasks: nothing is lost or read twice, and no task has much more than the others."""

from __future__ import annotations

import pickle
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from echomesh.spark import options
from echomesh.spark.local import LocalReach
from echomesh.spark.plan import LEAST_BYTES, Part, pack, parts
from echomesh.spark.reach import Range
from echomesh.spark.source import read
from tests.spark.support import made, opened


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5000), st.integers(0, 10**7)), max_size=30), st.integers(1, 9)
)
def test_packing_keeps_every_offset_once(given: list[tuple[int, int, int]], tasks: int) -> None:
    ranges = [Range(f"t{i}", start, start + rows) for i, (start, rows, _) in enumerate(given)]
    packed = list(pack(ranges, [size for _, _, size in given], tasks))
    assert len(packed) <= tasks
    assert all(packed)
    joined: list[Range] = []
    for one in (one for part in packed for one in part):
        assert one.start < one.until
        if joined and joined[-1].topic == one.topic:
            assert joined[-1].until == one.start
            joined[-1] = Range(one.topic, joined[-1].start, one.until)
        else:
            joined.append(one)
    assert joined == ranges


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50), st.integers(1, 9))
def test_tasks_have_about_as_many_bytes(rows: list[int], tasks: int) -> None:
    ranges = [Range(f"t{i}", 0, number) for i, number in enumerate(rows)]
    packed = list(pack(ranges, [100 * number for number in rows], tasks))
    share = 100 * sum(rows) / tasks
    for part in packed:
        assert sum(100 * (one.until - one.start) for one in part) <= share + 200 * tasks


def test_a_small_batch_is_one_task_and_a_large_one_several(data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
        log.append_many("b", made(10))
        log.append_many("large", made(LEAST_BYTES // 50))
    chosen = options.parse({"subscribe": "**", "path": str(data)})
    reach = LocalReach(str(data), "TST")
    small = [Range("a", 0, 10), Range("b", 3, 10), Range("b", 10, 10)]
    assert [part.ranges for part in parts(reach, chosen, small, {"id": True})] == [small[:2]]
    assert len(parts(reach, chosen, [Range("large", 0, LEAST_BYTES // 50)], {"id": True})) > 1
    assert parts(reach, chosen, [Range("a", 5, 5)], {"id": True}) == []
    reach.close()


def test_a_task_is_small_and_travels(data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
    reach = LocalReach(str(data), "TST")
    (part,) = parts(reach, options.parse({"subscribe": "a", "path": str(data)}), [Range("a", 2, 9)], {"offset": True})
    reach.close()
    sent = pickle.dumps(part)
    assert len(sent) < 1000
    arrived = pickle.loads(sent)
    assert isinstance(arrived, Part)
    assert [row for batch in read(arrived) for row in batch.column("offset").to_pylist()] == list(range(2, 9))
