"""The pool: slots that are free when nobody has them, in files of bounded size."""

from __future__ import annotations

from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import ClosedError, MessageTooLarge, ViewKept
from echomesh.native.pool import Lease, Pool

MIB = 1 << 20


def make(directory: Path, limit: int = 16 * MIB) -> Pool:
    return Pool(directory / "pool", count(1).__next__, limit)


def test_a_slot_is_free_when_its_lease_is_gone_and_used_again_first(shm_dir: Path) -> None:
    pool = make(shm_dir)
    first = pool.lease(100_000)
    assert first is not None
    token = first.token
    assert pool.used == 1
    del first
    assert pool.used == 0
    again = pool.lease(99_999)
    assert again is not None
    assert again.token == token
    pool.close()


def test_leases_never_overlap(shm_dir: Path) -> None:
    pool = make(shm_dir)
    held = [pool.lease(300_000) for _ in range(20)]
    for number, lease in enumerate(held):
        assert lease is not None
        memoryview(lease)[:] = bytes([number]) * 300_000
    for number, lease in enumerate(held):
        assert lease is not None
        assert bytes(memoryview(lease)) == bytes([number]) * 300_000
    pool.close()


def test_a_full_pool_gives_none_and_one_that_can_never_fit_is_an_error(shm_dir: Path) -> None:
    pool = make(shm_dir, 4 * MIB)
    held = [pool.lease(MIB) for _ in range(4)]
    assert all(held)
    assert pool.lease(MIB) is None
    held.pop()
    assert pool.lease(MIB) is not None
    with pytest.raises(MessageTooLarge):
        pool.lease(4 * MIB + 1)
    pool.close()


def test_a_sealed_lease_gives_no_more_views(shm_dir: Path) -> None:
    pool = make(shm_dir)
    lease = pool.lease(100)
    assert lease is not None
    view = memoryview(lease)
    with pytest.raises(ViewKept):
        lease.seal(100)
    view.release()
    with pytest.raises(MessageTooLarge):
        lease.seal(101)
    lease.seal(50)
    assert lease.length == 50
    with pytest.raises(ClosedError):
        memoryview(lease)
    pool.close()


def test_segments_that_nobody_uses_make_room_for_another_size(shm_dir: Path) -> None:
    pool = make(shm_dir, 4 * MIB)
    retired: list[int] = []
    pool.on_retired = retired.append
    assert pool.lease(MIB) is not None
    assert pool.lease(3 * MIB) is not None
    assert retired == [1]
    assert pool.total <= 4 * MIB
    pool.close()
    assert list((shm_dir / "pool").iterdir()) == []


@given(st.lists(st.tuples(st.integers(1, 3 * MIB), st.booleans()), max_size=60))
def test_whatever_is_leased_is_bounded_and_apart(steps: list[tuple[int, bool]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        pool = make(Path(directory), 8 * MIB)
        held: list[Lease] = []
        lease: Lease | None = None
        for size, keep in steps:
            lease = pool.lease(size)
            if lease is None:
                held = held[1:]
                continue
            if keep:
                held.append(lease)
            assert pool.total <= 8 * MIB
            places = sorted(
                (one.token >> 32, one.offset, one.offset + one.length)
                for one in {id(h): h for h in [*held, lease]}.values()
            )
            for (segment, _, end), (other, start, _) in pairwise(places):
                assert segment != other or end <= start
        lease = None
        held.clear()
        assert pool.used == 0
        pool.close()
